// Needle prompts: of exactly the tokens that were asked for, the needle where it was asked for,
// and what is hidden as its kind is defined.
#include "eval/prompts/needle_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>

#include "eval/prompts/prompt_set.h"
#include "model/test_model.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class NeedlePromptsTest : public testing::Test {
 protected:
  static EngineImpl& engine() {
    static const std::unique_ptr<EngineImpl> kEngine =
        EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2}).value();
    return *kEngine;
  }
  static const Tokenizer& tokenizer() { return *engine().tokenizer().value(); }

  static std::vector<std::string> texts() {
    std::string text;
    for (int i = 0; i < 700; ++i) {
      text += "The clerk wrote number " + std::to_string(i * 7919 % 613) +
              " into the book,\n  and extraordinarily quietly closed it again. ";
    }
    return {text};
  }

  static NeedlePrompts maker(const NeedleTask& task = {}, std::uint64_t seed = 1) {
    return NeedlePrompts::create(engine().text(), texts(), task, seed).value();
  }

  static std::string decoded(const NeedlePrompt& prompt, std::int64_t begin, std::int64_t count) {
    return tokenizer().decode(
        std::span(prompt.ids)
            .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
  }
};

// Who is asked over a text makes tokens of it anew, which may join where pieces met.
TEST_F(NeedlePromptsTest, TheMessageAsTextHasThePromptsTokens) {
  for (const NeedleTask& task : {NeedleTask{}, NeedleTask{.needles = 3}, NeedleTask{.hops = 2}}) {
    for (const std::int64_t depth : {0, 40, 100}) {
      const NeedlePrompt prompt = maker(task).make({512, depth, 1}).value();
      const ChatMessage message{.role = "user", .content = prompt.message};
      const auto chat = engine().apply_chat_template({&message, 1}, {}).value();
      const auto ids = tokenizer().encode(chat.text).value();
      EXPECT_NEAR(static_cast<double>(ids.size()), 512.0, 2.0) << prompt.message;
      for (const HiddenSentence& sentence : prompt.sentences) {
        EXPECT_THAT(prompt.message, HasSubstr(sentence.text));
      }
    }
  }
}

TEST_F(NeedlePromptsTest, HaveExactlyTheLengthAndTheNeedleAtTheDepth) {
  // A needle goes between two words, and the texts' words have at most so many tokens.
  constexpr std::int64_t kLongestWord = 8;
  const NeedlePrompts prompts = maker();
  for (const std::int64_t length : {64, 101, 512, 1777, 4096}) {
    for (const std::int64_t depth : {0, 1, 37, 50, 99, 100}) {
      const auto prompt = prompts.make({length, depth, 0});
      ASSERT_OK(prompt);
      EXPECT_EQ(std::ssize(prompt->ids), length);
      ASSERT_EQ(prompt->sentences.size(), 1U);
      const HiddenSentence& needle = prompt->sentences[0];
      const double asked = static_cast<double>(prompt->haystack * depth) / 100.0;
      EXPECT_NEAR(static_cast<double>(needle.offset), asked, depth == 0 ? 0 : kLongestWord);
      const auto size =
          std::ssize(tokenizer().encode((depth == 0 ? "" : " ") + needle.text).value());
      EXPECT_EQ(decoded(*prompt, needle.at, size), (depth == 0 ? "" : " ") + needle.text);
      // Haystack, needle and what the template and the question take are all there is.
      const std::int64_t before = needle.at - needle.offset;
      EXPECT_EQ(decoded(*prompt, 0, before), "user\n");
      const std::string rest = decoded(*prompt, before + prompt->haystack + size, 12);
      EXPECT_THAT(rest, StartsWith("\n\nWhat is the secret code"));
      if (depth == 100) {
        EXPECT_EQ(needle.offset, prompt->haystack);
      }
    }
  }
}

// Put together from tokens, they are what the tokenizer makes of their text.
TEST_F(NeedlePromptsTest, AreTokensThatTheTextHas) {
  const NeedlePrompts prompts = maker({.distractors = 2});
  for (const std::int64_t depth : {0, 40, 100}) {
    const NeedlePrompt prompt = prompts.make({400, depth, 3}).value();
    const std::string text = tokenizer().decode(prompt.ids, /*skip_special=*/false);
    EXPECT_EQ(tokenizer().encode(text).value(), prompt.ids) << text;
  }
}

TEST_F(NeedlePromptsTest, AreAFunctionOfSeedAndPlace) {
  const NeedlePrompts prompts = maker();
  const NeedlePlace place{300, 50, 2};
  const NeedlePrompt first = prompts.make(place).value();
  ASSERT_OK(prompts.make({300, 50, 1}));
  EXPECT_EQ(prompts.make(place)->ids, first.ids);
  EXPECT_EQ(maker().make(place)->ids, first.ids);
  EXPECT_NE(maker({}, 2).make(place)->ids, first.ids);
  std::set<std::vector<TokenId>> seen;
  for (const NeedlePlace other :
       {place, NeedlePlace{300, 50, 1}, NeedlePlace{300, 49, 2}, NeedlePlace{301, 50, 2}}) {
    EXPECT_TRUE(seen.insert(prompts.make(other)->ids).second);
  }
}

TEST_F(NeedlePromptsTest, AskForTheNeedlesAndNotForDistractors) {
  const NeedlePrompts prompts = maker({.needles = 3, .distractors = 5});
  for (std::int64_t index = 0; index < 20; ++index) {
    const NeedlePrompt prompt = prompts.make({700, 50, index}).value();
    ASSERT_EQ(prompt.sentences.size(), 8U);
    ASSERT_EQ(prompt.answers.size(), 3U);
    const std::string text = tokenizer().decode(prompt.ids);
    const std::string question = text.substr(text.rfind("\n\nWhat are the secret codes for"));
    std::set<std::string> things;
    std::set<std::string> codes;
    for (std::size_t i = 0; i < prompt.sentences.size(); ++i) {
      const std::string& sentence = prompt.sentences[i].text;
      ASSERT_THAT(sentence, StartsWith("The secret code for the "));
      EXPECT_THAT(text, HasSubstr(sentence));
      const std::string thing = sentence.substr(24, sentence.find(" is ") - 24);
      const std::string code = sentence.substr(sentence.size() - 5, 4);
      EXPECT_TRUE(things.insert(thing).second) << thing;
      EXPECT_TRUE(codes.insert(code).second) << code;
      if (i < 3) {
        EXPECT_THAT(question, HasSubstr("the " + thing));
        EXPECT_EQ(prompt.answers[i], code);
      } else {
        EXPECT_THAT(question, Not(HasSubstr("the " + thing)));
        EXPECT_THAT(prompt.answers, Not(testing::Contains(code)));
      }
    }
  }
}

// RULER's variable tracking: the value is written once a chain, each further variable is assigned
// the one before it, in the order of the text.
TEST_F(NeedlePromptsTest, ChainsAssignOneVariableToTheNext) {
  const NeedlePrompts prompts = maker({.distractors = 2, .hops = 3});
  std::set<std::string> values;
  for (std::int64_t index = 0; index < 20; ++index) {
    const NeedlePrompt prompt = prompts.make({900, 25, index}).value();
    EXPECT_EQ(std::ssize(prompt.ids), 900);
    ASSERT_EQ(prompt.sentences.size(), 12U);
    ASSERT_EQ(prompt.answers.size(), 4U);
    const std::string text = tokenizer().decode(prompt.ids);
    for (std::size_t chain = 0; chain < 3; ++chain) {
      std::string source;
      for (std::size_t hop = 0; hop < 4; ++hop) {
        const HiddenSentence& sentence = prompt.sentences[4 * chain + hop];
        const std::string name = sentence.text.substr(4, 5);
        EXPECT_EQ(sentence.text.substr(0, 4) + sentence.text.substr(9, 3), "VAR  = ");
        const std::string assigned = sentence.text.substr(12, sentence.text.size() - 13);
        if (hop == 0) {
          EXPECT_EQ(assigned.size(), 5U);
          EXPECT_TRUE(values.insert(assigned).second);
          const std::string question = "variables that are assigned the value " + assigned;
          EXPECT_EQ(text.find(question) != std::string::npos, chain == 0);
        } else {
          EXPECT_EQ(assigned, source);
          EXPECT_GT(sentence.at, prompt.sentences[4 * chain + hop - 1].at);
        }
        if (chain == 0) {
          EXPECT_EQ(prompt.answers[hop], name);
        }
        source = "VAR " + name;
      }
    }
    EXPECT_NEAR(static_cast<double>(prompt.sentences[0].offset),
                static_cast<double>(prompt.haystack) / 4.0, 8.0);
  }
}

TEST_F(NeedlePromptsTest, AreRefusedWithOneLine) {
  const auto message = [](const NeedleTask& task, const NeedlePlace& place) {
    const auto prompts = NeedlePrompts::create(engine().text(), texts(), task, 1);
    if (!prompts) return prompts.error().message();
    const auto prompt = prompts->make(place);
    return prompt ? std::string("made") : prompt.error().message();
  };
  EXPECT_THAT(message({}, {20, 50, 0}), HasSubstr("expected a length of "));
  EXPECT_THAT(message({}, {200, 101, 0}), HasSubstr("a depth of 0 to 100, got 200, 101"));
  EXPECT_THAT(message({}, {-1, 50, 0}), HasSubstr("expected a length of 1 to"));
  EXPECT_THAT(message({.needles = 0}, {200, 50, 0}), HasSubstr("expected 1 to 64 needles"));
  EXPECT_THAT(message({.needles = 2, .hops = 1}, {200, 50, 0}), HasSubstr("one needle with hops"));
  EXPECT_THAT(message({.distractors = 9, .hops = 9}, {200, 50, 0}),
              HasSubstr("at most 64 hidden sentences, got 100"));
  EXPECT_THAT(NeedlePrompts::create(engine().text(), {" \n"}, {}, 1).error().message(),
              HasSubstr("texts of words"));
}

TEST(ContainsWhole, FindsNumbersAndWordsButNotPartsOfOthers) {
  EXPECT_TRUE(contains_whole("4821", "4821"));
  EXPECT_TRUE(contains_whole("The code is 4821.", "4821"));
  EXPECT_TRUE(contains_whole("14821 and 4821", "4821"));
  EXPECT_TRUE(contains_whole("4821,5930", "5930"));
  EXPECT_TRUE(contains_whole("\u201c4821\u201d", "4821"));
  EXPECT_TRUE(contains_whole("VAR ABCDE.", "ABCDE"));
  EXPECT_FALSE(contains_whole("48210", "4821"));
  EXPECT_FALSE(contains_whole("14821", "4821"));
  EXPECT_FALSE(contains_whole("4821.5", "4821"));
  EXPECT_FALSE(contains_whole("1.4821", "4821"));
  EXPECT_FALSE(contains_whole("ABCDEF", "ABCDE"));
  EXPECT_FALSE(contains_whole("", "4821"));
  EXPECT_FALSE(contains_whole("4821", ""));
}

}  // namespace
}  // namespace kakeya::eval
