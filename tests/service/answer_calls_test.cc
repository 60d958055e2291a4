// Answers with calls of tools, made of tokens as they come; how models' templates write calls.
#include <gmock/gmock.h>

#include "runtime/demo_sessions.h"
#include "service/answer.h"
#include "service/tool_calls.h"

namespace kakeya::service {
namespace {

using testing::ElementsAre;

class AnswerCalls : public testing::Test {
 protected:
  std::vector<TokenId> ids(std::string_view text) const { return tokenizer_.encode(text).value(); }

  Answer answer(bool one_call = false, const std::vector<std::string>& stop_strings = {}) const {
    return Answer(AnswerSplitter::create(tokenizer_, stop_strings, find_channel_markers(tokenizer_),
                                         make_tool_parser(ToolFormat::kGemma, {}, one_call))
                      .value());
  }

  // The answer, whose tokens come so many at a time, then its end.
  WholeAnswer whole(Answer answer,
                    std::string_view text,
                    std::size_t at_once = 1,
                    StopReason reason = StopReason::kStopId) const {
    WholeAnswer out;
    Mail mail;
    const std::vector<TokenId> tokens = ids(text);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      mail.tokens.push_back({.id = tokens[i]});
      if (i + 1 == tokens.size()) mail.end = reason;
      if (mail.tokens.size() < at_once && !mail.end) continue;
      AnswerPiece piece;
      EXPECT_TRUE(answer.add(std::exchange(mail, {}), piece));
      append(out.piece, std::move(piece));
    }
    out.end = answer.end();
    return out;
  }

  static std::vector<std::string> shown(const WholeAnswer& answer) {
    std::vector<std::string> calls;
    for (const ToolCallPiece& call : answer.piece.tool_calls) {
      calls.push_back(std::to_string(call.at) + " " + call.name + call.arguments);
    }
    return calls;
  }

  Tokenizer tokenizer_ = Tokenizer::load(KAKEYA_DEMO_MODEL "/tokenizer.json").value();
};

constexpr const char* kCall = R"(<|tool_call>call:f{a:<|"|>two words<|"|>}<tool_call|>)";

TEST_F(AnswerCalls, AreToldFromTextAndThoughts) {
  const std::string text =
      std::string("<|channel>thought\nI could <|tool_call>call:g{}<tool_call|>\n<channel|>Yes. ") +
      kCall + kCall + "<turn|>";
  for (const std::size_t at_once : {1, 2, 7, 1000}) {
    const WholeAnswer got = whole(answer(), text, at_once);
    EXPECT_EQ(got.piece.text, "Yes. ");
    EXPECT_EQ(got.piece.reasoning, "I could call:g{}");
    EXPECT_THAT(shown(got), ElementsAre(R"(5 f{"a":"two words"})", R"(5 f{"a":"two words"})"));
    EXPECT_EQ(got.end.reason, FinishReason::kToolCalls);
  }
}

TEST_F(AnswerCalls, EndAnAnswerThatMayHaveOne) {
  Answer one = answer(true);
  AnswerPiece piece;
  Mail mail;
  for (const TokenId id : ids(std::string(kCall) + kCall)) mail.tokens.push_back({.id = id});
  ASSERT_TRUE(one.add(std::move(mail), piece));
  EXPECT_TRUE(one.finished());
  EXPECT_EQ(one.end().reason, FinishReason::kToolCalls);
  EXPECT_EQ(piece.tool_calls.size(), 1u);
  EXPECT_LT(one.token_count(), std::ssize(ids(kCall)) + 1);
}

TEST_F(AnswerCalls, SayWhyTheAnswerEnded) {
  EXPECT_EQ(whole(answer(), kCall, 1, StopReason::kMaxTokens).end.reason, FinishReason::kLength);
  EXPECT_EQ(whole(answer(), "No call.").end.reason, FinishReason::kStop);
  // Stop strings are looked for beside calls alone, and not across one.
  const auto stopped =
      whole(answer(false, {"two", "STOP"}), std::string("ST") + kCall + "OP STOP x");
  EXPECT_EQ(stopped.piece.text, "STOP ");
  EXPECT_THAT(shown(stopped), ElementsAre(R"(2 f{"a":"two words"})"));
  EXPECT_EQ(stopped.end.reason, FinishReason::kStop);
  EXPECT_EQ(stopped.end.stop_string, 1u);
}

TEST_F(AnswerCalls, AThoughtWithinACallBreaksIt) {
  const auto broken = whole(answer(), "<|tool_call>call:f{a:1,b<|channel>thought\nx<channel|>:2}");
  EXPECT_EQ(broken.piece.text, ",b:2}");
  EXPECT_THAT(shown(broken), ElementsAre(R"(0 f{"a":1)"));
}

TEST_F(AnswerCalls, TextThatSpellsAMarkerIsText) {
  WholeAnswer got;
  Mail mail;
  const auto plain_ids = tokenizer_.encode(kCall, {.parse_special = false}).value();
  for (const TokenId id : plain_ids) mail.tokens.push_back({.id = id});
  Answer plain = answer();
  ASSERT_TRUE(plain.add(std::move(mail), got.piece));
  EXPECT_EQ(got.piece.text, kCall);
  EXPECT_TRUE(got.piece.tool_calls.empty());
}

TEST(ToolFormatOfTemplates, IsHowTheyWriteACall) {
  const std::pair<const char*, ToolFormat> kTemplates[] = {
      {"", ToolFormat::kGemma},
      {"Qwen-Qwen3-0.6B", ToolFormat::kQwenJson},
      {"Qwen-Qwen2.5-7B-Instruct", ToolFormat::kQwenJson},
      {"Qwen3.5-4B", ToolFormat::kQwenXml},
      {"google-gemma-4-31B-it", ToolFormat::kGemma},
      {"openai-gpt-oss-120b", ToolFormat::kNone},
      // Shows no tools, so that they are written into the conversation.
      {"google-gemma-2-2b-it", ToolFormat::kQwenJson}};
  for (const auto& [name, format] : kTemplates) {
    EngineOptions options = test::demo_options("none");
    if (*name != '\0') {
      options.chat_template = std::string(KAKEYA_TEST_DATA "/chat_templates/") + name + ".jinja";
    }
    EXPECT_EQ(find_tool_format(*test::open_engine(options)), format) << name;
  }
}

}  // namespace
}  // namespace kakeya::service
