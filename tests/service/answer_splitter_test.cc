// Thoughts apart from answers, with scripted tokens.
#include "service/answer_splitter.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "service/thinking_model.h"

namespace kakeya::service {
namespace {

class AnswerSplitterTest : public testing::Test {
 protected:
  // A text that spells markers, as a model's tokens.
  std::vector<TokenId> ids(std::string_view text) const { return tokenizer_.encode(text).value(); }

  // Thought and answer; what was given out with each token alone, put together.
  std::pair<std::string, std::string> split(const std::vector<TokenId>& tokens,
                                            const std::vector<std::string>& stop_strings = {},
                                            bool has_channels = true) const {
    auto splitter =
        AnswerSplitter::create(tokenizer_, stop_strings,
                               has_channels ? find_channel_markers(tokenizer_) : std::nullopt)
            .value();
    std::pair<std::string, std::string> texts;
    for (const TokenId id : tokens) {
      if (splitter.push(id, texts.first, texts.second)) return texts;
    }
    splitter.finish(texts.first, texts.second);
    return texts;
  }

  std::pair<std::string, std::string> split(
      std::string_view text, const std::vector<std::string>& stop_strings = {}) const {
    return split(ids(text), stop_strings);
  }

  using Texts = std::pair<std::string, std::string>;
  Tokenizer tokenizer_ = Tokenizer::load(KAKEYA_DEMO_MODEL "/tokenizer.json").value();
};

TEST_F(AnswerSplitterTest, ThoughtsAreToldFromAnswers) {
  EXPECT_EQ(split("<|channel>thought\na\nb\n<channel|>An answer.<turn|>"),
            Texts("a\nb", "An answer."));
  EXPECT_EQ(
      split("Well. <|channel>thought\none\n\n<channel|>Yes.<|channel>thought\ntwo<channel|>No"),
      Texts("one\ntwo", "Well. Yes.No"));
  EXPECT_EQ(split("<|channel>thought\n<channel|>An answer."), Texts("", "An answer."));
  EXPECT_EQ(split("<|channel>thought<channel|>An answer."), Texts("", "An answer."));
  EXPECT_EQ(split("<|channel><channel|>An answer."), Texts("", "An answer."));
  EXPECT_EQ(split("An answer.<channel|> More."), Texts("", "An answer. More."));
}

// As Google's template leaves it behind a tool's result.
TEST_F(AnswerSplitterTest, AChannelThatThePromptLeavesOpenGoesOn) {
  const auto behind = [&](std::string_view prompt, std::string_view text) {
    auto splitter =
        AnswerSplitter::create(tokenizer_, {}, find_channel_markers(tokenizer_)).value();
    splitter.begin_behind(ids(prompt));
    Texts texts;
    for (const TokenId id : ids(text)) splitter.push(id, texts.first, texts.second);
    splitter.finish(texts.first, texts.second);
    return texts;
  };
  EXPECT_EQ(behind("a<|channel>thought\n", "So it is.\n<channel|>Yes."),
            Texts("So it is.", "Yes."));
  EXPECT_EQ(behind("a<|channel>thought\nIt is", " so.<channel|>Yes."), Texts(" so.", "Yes."));
  EXPECT_EQ(behind("a<|channel>", "thought\nSo.<channel|>Yes."), Texts("So.", "Yes."));
  EXPECT_EQ(behind("<|channel>thought\nx\n<channel|>a", "Yes."), Texts("", "Yes."));
  EXPECT_EQ(behind("a", "Yes."), Texts("", "Yes."));
}

TEST_F(AnswerSplitterTest, ACallOfAToolCanBeRead) {
  const std::string call = "<|tool_call>call:get_weather{city:<|\"|>Berne<|\"|>}<tool_call|>";
  EXPECT_EQ(split("Well. " + call), Texts("", "Well. " + call));
  EXPECT_EQ(split("<|channel>thought\nx\n<channel|>" + call), Texts("x", call));
  // Stop strings are looked for in what is seen.
  EXPECT_EQ(split("ST" + call, {"ST<|tool"}), Texts("", ""));
}

TEST_F(AnswerSplitterTest, AThoughtMayBeCutAnywhere) {
  EXPECT_EQ(split("<|channel>"), Texts("", ""));
  EXPECT_EQ(split("<|channel>tho"), Texts("", ""));
  EXPECT_EQ(split("<|channel>thought\nSo\n"), Texts("So\n", ""));
  EXPECT_EQ(split("<|channel>thought\nSo <|channel>we<channel|>end"), Texts("So we", "end"));
}

TEST_F(AnswerSplitterTest, AChannelWithoutANameIsAThought) {
  const std::string line = "a line that is longer than the name of any channel\n";
  EXPECT_EQ(split("<|channel>" + line + "next<channel|>said"), Texts(line + "next", "said"));
  EXPECT_EQ(split("<|channel>this is no name but all of a thought<channel|>said"),
            Texts("this is no name but all of a thought", "said"));
}

TEST_F(AnswerSplitterTest, ThoughtsComeBeforeTheirChannelEnds) {
  auto splitter = AnswerSplitter::create(tokenizer_, {}, find_channel_markers(tokenizer_)).value();
  std::string thought;
  std::string said;
  for (const TokenId id : ids("<|channel>thought\nFirst, second")) splitter.push(id, thought, said);
  EXPECT_EQ(thought, "First, second");
}

TEST_F(AnswerSplitterTest, StopStringsEndWhatIsSaidAlone) {
  EXPECT_EQ(split("<|channel>thought\nSTOP now\n<channel|>One STOP two", {"STOP"}),
            Texts("STOP now", "One "));
  // The words around a thought are one text.
  EXPECT_EQ(split("One ST<|channel>thought\nx\n<channel|>OP two", {"STOP"}), Texts("x", "One "));
}

TEST_F(AnswerSplitterTest, TextThatSpellsAMarkerIsNone) {
  const std::string text = "<|channel>thought\na\n<channel|>b";
  const auto plain = tokenizer_.encode(text, {.parse_special = false}).value();
  EXPECT_EQ(split(plain), Texts("", text));
}

TEST_F(AnswerSplitterTest, BytesThatNoMarkerInterruptsAreOneText) {
  // U+00E9 in two byte tokens, then one half of it before each marker.
  const auto byte = [&](const char* name) { return tokenizer_.token_id(name).value(); };
  const auto markers = find_channel_markers(tokenizer_).value();
  const TokenId first = byte("<0xC3>");
  const TokenId second = byte("<0xA9>");
  EXPECT_EQ(
      split({first, second, first, markers.begin, byte("<0x0A>"), first, second, markers.end}),
      Texts("\u00E9", "\uFFFD\uFFFD\uFFFD"));
}

TEST_F(AnswerSplitterTest, WithoutChannelsNothingChanges) {
  EXPECT_EQ(split(ids("<|channel>thought\na\n<channel|>b"), {}, false), Texts("", "thought\na\nb"));
  // Markers that are text are none.
  std::ifstream file(KAKEYA_DEMO_MODEL "/tokenizer.json");
  auto whole = nlohmann::json::parse(file);
  for (auto& token : whole["added_tokens"]) {
    if (token["content"] == "<|channel>") token["special"] = false;
  }
  EXPECT_FALSE(find_channel_markers(Tokenizer::parse(whole.dump()).value()));
}

class ThinkSplitterTest : public testing::Test {
 protected:
  using Texts = std::pair<std::string, std::string>;

  std::vector<TokenId> ids(std::string_view text) const { return tokenizer_.encode(text).value(); }

  // Thought and answer of a text behind a prompt, put together from what each token gave out.
  Texts behind(std::string_view prompt,
               std::string_view text,
               const std::vector<std::string>& stop_strings = {}) const {
    auto splitter =
        AnswerSplitter::create(tokenizer_, stop_strings, find_think_markers(tokenizer_)).value();
    splitter.begin_behind(ids(prompt));
    Texts texts;
    for (const TokenId id : ids(text)) {
      if (splitter.push(id, texts.first, texts.second)) return texts;
    }
    splitter.finish(texts.first, texts.second);
    return texts;
  }
  Texts split(std::string_view text, const std::vector<std::string>& stop_strings = {}) const {
    return behind("", text, stop_strings);
  }

  Tokenizer tokenizer_ = Tokenizer::parse(test::thinking_tokenizer()).value();
};

TEST_F(ThinkSplitterTest, ThoughtsInFrontAreToldFromAnswers) {
  EXPECT_EQ(split("<think>\na\n\nb\n</think>\n\nAn answer.<|im_end|>"),
            Texts("a\n\nb", "An answer."));
  EXPECT_EQ(split("<think>a</think>An answer."), Texts("a", "An answer."));
  EXPECT_EQ(split("<think>\n\n</think>\n\nAn answer."), Texts("", "An answer."));
  EXPECT_EQ(split("<think></think>\nAn answer."), Texts("", "An answer."));
  EXPECT_EQ(split("<think>\na\n</think>\n\n<think>b</think>c"), Texts("ab", "c"));
  EXPECT_EQ(split("An answer.\n\nMore."), Texts("", "An answer.\n\nMore."));
  EXPECT_EQ(split("\n\nAn answer."), Texts("", "\n\nAn answer."));
}

TEST_F(ThinkSplitterTest, OneTokenOfLineEndsPartsAThoughtFromItsAnswer) {
  // The demo's vocabulary has line ends in twos.
  ASSERT_EQ(ids("\n\n").size(), 1u);
  EXPECT_EQ(split("<think>a</think>\n\nb\n\nc"), Texts("a", "b\n\nc"));
}

TEST_F(ThinkSplitterTest, MarkersBehindWordsAreText) {
  EXPECT_EQ(split("Tags: <think>a</think>."), Texts("", "Tags: <think>a</think>."));
  EXPECT_EQ(split("<think>a <think> b</think>c </think> d"), Texts("a <think> b", "c </think> d"));
  EXPECT_EQ(split("</think>b"), Texts("", "</think>b"));
}

TEST_F(ThinkSplitterTest, AThoughtThatThePromptOpensGoesOn) {
  const std::string turn = "<|im_start|>assistant\n";
  EXPECT_EQ(behind(turn + "<think>\n", "So.\n</think>\n\nYes."), Texts("So.", "Yes."));
  EXPECT_EQ(behind(turn + "<think>", "\nSo.\n</think>\n\nYes."), Texts("So.", "Yes."));
  EXPECT_EQ(behind(turn + "<think>\nIt is", " so.</think>Yes."), Texts(" so.", "Yes."));
  EXPECT_EQ(behind(turn + "<think>\n\n</think>\n\n", "Yes."), Texts("", "Yes."));
  EXPECT_EQ(behind("<|im_start|>user\n<think><|im_end|>\n" + turn, "Yes."), Texts("", "Yes."));
}

TEST_F(ThinkSplitterTest, AThoughtMayBeCutAnywhere) {
  EXPECT_EQ(split("<think>"), Texts("", ""));
  EXPECT_EQ(split("<think>\n"), Texts("", ""));
  EXPECT_EQ(split("<think>\nSo\n"), Texts("So\n", ""));
  EXPECT_EQ(split("<think>STOP</think>One STOP two", {"STOP"}), Texts("STOP", "One "));
}

}  // namespace
}  // namespace kakeya::service
