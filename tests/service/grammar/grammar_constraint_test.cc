// Masks against what is accepted one by one, thoughts before the grammar, drafts taken back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/token_mask.h"
#include "service/grammar/grammar_test.h"
#include "service/thinking_model.h"

namespace kakeya::service {
namespace {

using Kind = AnswerFormat::Kind;
using GrammarConstraints = GrammarTest;

constexpr std::size_t kWords = DemoGrammars::kVocabulary / 32;

std::vector<std::uint32_t> mask_of(Constraint& constraint) {
  std::vector<std::uint32_t> mask(kWords, 0);
  if (!constraint.fill_mask(mask)) mask.assign(kWords, ~std::uint32_t{0});
  return mask;
}

bool is_in(const std::vector<std::uint32_t>& mask, TokenId id) {
  return is_allowed(mask, static_cast<std::size_t>(id));
}

const AnswerFormat kFormats[] = {
    format_of(Kind::kJsonObject, ""),
    format_of(
        Kind::kJsonSchema,
        R"({"type":"object","properties":{"name":{"type":"string","maxLength":5},"n":{"type":"integer","minimum":-12,"maximum":305},"t":{"type":"array","items":{"enum":["x","yy"]}}},"required":["n"]})"),
    format_of(Kind::kJsonSchema, R"({"type":"string","format":"date-time"})"),
    format_of(Kind::kRegex, "([a-c]+ ){2,4}.*"),
    format_of(Kind::kGrammar, "root ::= e\ne ::= e \"+\" e | \"(\" e \")\" | [0-9]+"),
    {.kind = Kind::kChoice, .choices = {"yes", "no", "yes indeed"}},
};

// Walks by chance; at each state every id is tried.
TEST_F(GrammarConstraints, MasksAreWhatIsAcceptedOneByOne) {
  std::mt19937 random(2);
  for (const AnswerFormat& format : kFormats) {
    const auto compiled = demo_grammars().engine->compile(format);
    ASSERT_TRUE(compiled) << compiled.error().message();
    const auto constraint = (*compiled)->constrain({}, false);
    for (int step = 0; step < 12; ++step) {
      const auto mask = mask_of(*constraint);
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < DemoGrammars::kVocabulary; ++id) {
        const bool accepted = constraint->advance(id);
        if (accepted) {
          constraint->roll_back(1);
          allowed.push_back(id);
        }
        ASSERT_EQ(accepted, is_in(mask, id)) << format.text << " step " << step << " id " << id;
      }
      ASSERT_FALSE(allowed.empty()) << format.text;
      ASSERT_TRUE(constraint->advance(allowed[random() % allowed.size()]));
    }
  }
}

// After drafts that came to nothing all is as if they had not been.
TEST_F(GrammarConstraints, RollingBackIsExact) {
  std::mt19937 random(4);
  for (const AnswerFormat& format : kFormats) {
    const auto compiled = demo_grammars().engine->compile(format);
    ASSERT_TRUE(compiled);
    const auto constraint = (*compiled)->constrain({}, false);
    std::vector<TokenId> told;
    for (int round = 0; round < 30; ++round) {
      const auto before = mask_of(*constraint);
      std::int64_t drafted = 0;
      for (; drafted < static_cast<std::int64_t>(random() % 6); ++drafted) {
        const auto mask = mask_of(*constraint);
        TokenId id = static_cast<TokenId>(random() % DemoGrammars::kVocabulary);
        while (!is_in(mask, id)) id = (id + 1) % DemoGrammars::kVocabulary;
        ASSERT_TRUE(constraint->advance(id));
        told.push_back(id);
      }
      const auto back = static_cast<std::int64_t>(random() % static_cast<unsigned>(drafted + 1));
      constraint->roll_back(back);
      told.resize(told.size() - static_cast<std::size_t>(back));
      if (back == drafted) {
        ASSERT_EQ(mask_of(*constraint), before) << format.text;
      }
      const auto fresh = (*compiled)->constrain({}, false);
      for (const TokenId id : told) ASSERT_TRUE(fresh->advance(id));
      ASSERT_EQ(mask_of(*fresh), mask_of(*constraint)) << format.text << " round " << round;
    }
  }
}

// A thought is free, but no answer ends in it.
TEST_F(GrammarConstraints, GrammarsBeginBehindThoughts) {
  const Tokenizer& tokenizer = demo_grammars().tokenizer;
  const auto markers = find_channel_markers(tokenizer);
  ASSERT_TRUE(markers);
  const auto compiled = demo_grammars().engine->compile(format_of(Kind::kRegex, "[0-9]+"));
  ASSERT_TRUE(compiled);
  const TokenId letter = tokenizer.token_id("a").value();
  const TokenId digit = tokenizer.token_id("7").value();
  for (const bool in_channel : {false, true}) {
    const auto constraint = (*compiled)->constrain(markers, in_channel);
    if (!in_channel) {
      EXPECT_TRUE(is_in(mask_of(*constraint), markers->begin));
      EXPECT_FALSE(is_in(mask_of(*constraint), letter));
      ASSERT_TRUE(constraint->advance(markers->begin));
    }
    EXPECT_TRUE(is_in(mask_of(*constraint), letter));
    EXPECT_FALSE(is_in(mask_of(*constraint), DemoGrammars::kStop));
    ASSERT_TRUE(constraint->advance(letter));
    EXPECT_FALSE(constraint->advance(DemoGrammars::kStop));
    ASSERT_TRUE(constraint->advance(markers->end));
    EXPECT_FALSE(constraint->advance(letter));
    ASSERT_TRUE(constraint->advance(digit));
    EXPECT_FALSE(is_in(mask_of(*constraint), markers->begin));
    ASSERT_TRUE(constraint->advance(DemoGrammars::kStop));
    // Back into the thought, as if its end had been a draft.
    constraint->roll_back(3);
    EXPECT_TRUE(constraint->advance(letter));
  }
}

// The line ends that part a thought of Qwen3's from its answer are no part of the form.
TEST_F(GrammarConstraints, OneLineEndMayPartAThoughtFromItsAnswer) {
  const Tokenizer tokenizer = Tokenizer::parse(test::thinking_tokenizer()).value();
  const auto markers = find_think_markers(tokenizer);
  ASSERT_TRUE(markers);
  ASSERT_EQ(markers->line_ends.size(), 2u);
  const auto engine =
      GrammarEngine::create(tokenizer, DemoGrammars::kVocabulary, std::vector<TokenId>{1}).value();
  const TokenId line_ends = tokenizer.token_id("\n\n").value();
  const TokenId digit = tokenizer.token_id("7").value();
  // Where a form has line ends of its own, those come behind.
  for (const bool has_line_ends : {false, true}) {
    const auto compiled =
        engine->compile(format_of(Kind::kRegex, has_line_ends ? "\n\n[0-9]" : "[0-9]"));
    ASSERT_TRUE(compiled);
    const auto constraint = (*compiled)->constrain(markers, true);
    ASSERT_TRUE(constraint->advance(markers->end));
    EXPECT_TRUE(is_in(mask_of(*constraint), line_ends));
    ASSERT_TRUE(constraint->advance(line_ends));
    EXPECT_EQ(is_in(mask_of(*constraint), line_ends), has_line_ends);
    EXPECT_EQ(constraint->advance(line_ends), has_line_ends);
    ASSERT_TRUE(constraint->advance(digit));
    constraint->roll_back(has_line_ends ? 3 : 2);
    EXPECT_TRUE(is_in(mask_of(*constraint), line_ends));
    EXPECT_TRUE(is_in(mask_of(*constraint), markers->begin));
    if (has_line_ends) continue;
    ASSERT_TRUE(constraint->advance(digit));
    EXPECT_FALSE(is_in(mask_of(*constraint), markers->begin));
  }
}

// Keys, quotes and signs are proposed, with the spacing that the answer has; what was asked for is
// as if nobody had asked.
TEST_F(GrammarConstraints, ProposesWhatLeavesNoChoice) {
  const Tokenizer& tokenizer = demo_grammars().tokenizer;
  const auto compiled = demo_grammars().engine->compile(format_of(
      Kind::kJsonSchema,
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"kind":{"enum":["cat","cow"]}},"required":["name","age","kind"],"additionalProperties":false})"));
  ASSERT_TRUE(compiled) << compiled.error().message();
  struct Case {
    std::string before;
    std::string proposed;
  };
  for (const Case& each :
       {Case{"{", ""}, Case{"{\"", "name\":"}, Case{"{\"na", "me\":"}, Case{"{\"name\": \"", ""},
        Case{"{\"name\": \"a\",", ""}, Case{"{\"name\": \"a\", \"", "age\":"},
        Case{"{ \"name\": \"a\", \"age\": 3,", " \"kind\": \""},
        Case{"{\"name\": \"a\", \"age\": 3, \"kind\": \"c", ""},
        Case{"{\"name\":\"a\",\"age\":3,\"kind\":\"ca", "t\""}}) {
    const auto constraint = (*compiled)->constrain({}, false);
    const auto before = tokenizer.encode(each.before, {.parse_special = false}).value();
    for (const TokenId id : before) ASSERT_TRUE(constraint->advance(id)) << each.before;
    const auto mask = mask_of(*constraint);
    std::vector<TokenId> ids(15);
    ids.resize(static_cast<std::size_t>(constraint->propose(ids)));
    EXPECT_EQ(tokenizer.decode(ids), each.proposed) << each.before;
    EXPECT_EQ(mask_of(*constraint), mask) << each.before;
    for (const TokenId id : ids) EXPECT_TRUE(constraint->advance(id)) << each.before;
  }
}

// Repetitions of the same letters within each other, whose masks take the longer the more there
// are.
const AnswerFormat kSlowing = format_of(Kind::kGrammar, "root ::= ([a-z]+ \" \"?)* \".\"");

// The masks that the worker makes are those that are made where they are asked for.
TEST_F(GrammarConstraints, MasksOfTheWorkerAreTheSame) {
  const auto compiled = demo_grammars().engine->compile(kSlowing);
  ASSERT_TRUE(compiled) << compiled.error().message();
  const auto constraint = (*compiled)->constrain({}, false);
  const auto at_once = (*compiled)->constrain({}, false);
  const Tokenizer& tokenizer = demo_grammars().tokenizer;
  const auto letters = tokenizer.encode("abcdefgh", {.parse_special = false}).value();
  ASSERT_FALSE(letters.empty());
  int waited = 0;
  int slow = 0;
  for (int step = 0; step < 300 && (waited == 0 || slow == 0); ++step) {
    const TokenId id = letters[static_cast<std::size_t>(step) % letters.size()];
    ASSERT_TRUE(constraint->advance(id));
    if (constraint->pace() == Constraint::Pace::kNotYet) ++waited;
    ASSERT_TRUE(at_once->advance(id));
    at_once->roll_back(1);  // behind which nothing was made beforehand
    ASSERT_TRUE(at_once->advance(id));
    const auto mask = mask_of(*constraint);
    ASSERT_EQ(mask, mask_of(*at_once)) << step;
    if (constraint->pace() == Constraint::Pace::kSlowly) ++slow;
    const TokenId capital = tokenizer.token_id("A").value();
    ASSERT_FALSE(constraint->advance(capital));
    ASSERT_EQ(mask_of(*constraint), mask);
  }
  EXPECT_GT(waited, 0);
  EXPECT_GT(slow, 0);
  constraint->roll_back(2);
  EXPECT_TRUE(is_in(mask_of(*constraint), letters[0]));
}

// A constraint may go while its mask is made.
TEST_F(GrammarConstraints, AnAnswerNeedNotWaitForItsWorkerToEnd) {
  const auto compiled = demo_grammars().engine->compile(kSlowing);
  ASSERT_TRUE(compiled);
  const TokenId letter = demo_grammars().tokenizer.token_id("a").value();
  auto constraint = (*compiled)->constrain({}, false);
  for (int step = 0; step < 1000 && constraint->pace() != Constraint::Pace::kNotYet; ++step) {
    mask_of(*constraint);
    ASSERT_TRUE(constraint->advance(letter));
  }
  EXPECT_EQ(constraint->pace(), Constraint::Pace::kNotYet);
  constraint.reset();
}

// Nobody whose grammar is kept waits for the compiler.
TEST_F(GrammarConstraints, KeptGrammarsAreThereWhileAnotherIsCompiled) {
  GrammarEngine& engine = *demo_grammars().engine;
  const AnswerFormat kept = format_of(Kind::kRegex, "[a-z]{3}");
  ASSERT_TRUE(engine.compile(kept));
  std::string members;
  for (int i = 0; i < 60; ++i) {
    members += fmt::format(R"({}"m{}":{{"type":"string","maxLength":{}}})", i == 0 ? "" : ",", i,
                           4000 + i);
  }
  const AnswerFormat slow =
      format_of(Kind::kJsonSchema, R"({"type":"object","properties":{)" + members + "}}");
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> is_done = false;
  Clock::duration slow_time = {};
  std::thread other([&] {
    const auto begin = Clock::now();
    EXPECT_TRUE(engine.compile(slow));
    slow_time = Clock::now() - begin;
    is_done = true;
  });
  Clock::duration longest = {};
  while (!is_done) {
    const auto begin = Clock::now();
    EXPECT_TRUE(engine.compile(kept));
    longest = std::max(longest, Clock::now() - begin);
  }
  other.join();
  const auto milliseconds = [](Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  EXPECT_GT(milliseconds(slow_time), 20.0);
  EXPECT_LT(milliseconds(longest), milliseconds(slow_time) / 2);
}

}  // namespace
}  // namespace kakeya::service
