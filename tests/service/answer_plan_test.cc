// The plan of an answer: what is refused before anything runs, and what one answer is made by.
#include "service/answer_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/demo_sessions.h"
#include "service/thinking_model.h"

namespace kakeya::service {
namespace {

constexpr const char* kTool =
    R"({"type":"function","function":{"name":"f","parameters":{"type":"object"}}})";
using Kind = AnswerFormat::Kind;

class AnswerPlans : public testing::Test {
 protected:
  std::string refused(const AnswerOptions& options) {
    const auto plan = planner_.plan(options);
    return plan ? "" : plan.error().parameter;
  }
  std::vector<TokenId> ids(std::string_view text) const {
    return engine_->tokenizer().value()->encode(text).value();
  }
  // Thought and text of an answer, and how many calls it has.
  std::tuple<std::string, std::string, std::size_t> parts(const AnswerOptions& options,
                                                          std::string_view answer) {
    AnswerSplitter splitter = planner_.plan(options)->split(ids("a")).value();
    std::string thought;
    std::string said;
    for (const TokenId id : ids(answer)) splitter.push(id, thought, said);
    splitter.finish(thought, said);
    std::vector<ToolCallPiece> calls;
    for (ToolCallPiece& piece : splitter.take_calls()) add_call(calls, std::move(piece));
    return {thought, said, calls.size()};
  }

  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
  AnswerPlanner planner_{*engine_};
};

TEST_F(AnswerPlans, RefuseByTheNameOfWhatIsWrong) {
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({.stop_strings = {""}}), "stop");
  EXPECT_EQ(refused({.must_call = true}), "tool_choice");
  EXPECT_EQ(refused({.tools = {kTool, kTool}}), "tools");
  EXPECT_EQ(refused({.format = {.kind = Kind::kRegex, .text = "(a", .field = "regex"}}), "regex");
  const AnswerFormat form = {.kind = Kind::kRegex, .text = "a", .field = "regex"};
  EXPECT_EQ(refused({.format = form, .rules = {.min_tokens = 1}}), "min_tokens");
  EXPECT_EQ(refused({.format = form, .rules = {.allowed_ids = {1}}}), "allowed_token_ids");
  EXPECT_EQ(refused({.format = form, .ignore_eos = true}), "ignore_eos");
}

TEST_F(AnswerPlans, TellThePartsOfAChatApartAndLeaveOtherTextAsItIs) {
  const char* const answer =
      "<|channel>thought\nOne.<channel|>Two.<|tool_call>call:f{}<tool_call|>";
  EXPECT_EQ(parts({.tools = {kTool}}, answer), std::tuple("One.", "Two.", 1U));
  EXPECT_EQ(parts({}, answer), std::tuple("One.", "Two.<|tool_call>call:f{}<tool_call|>", 0U));
  const auto [thought, said, calls] = parts({.tools = {kTool}, .is_chat = false}, answer);
  EXPECT_EQ(thought, "");
  EXPECT_NE(said.find("One."), std::string::npos) << said;
  EXPECT_EQ(calls, 0U);
}

TEST_F(AnswerPlans, HoldNothingWhereNothingIsAsked) {
  EXPECT_EQ(planner_.plan({})->constrain(ids("a")), nullptr);
  EXPECT_NE(planner_.plan({.rules = {.min_tokens = 3}})->constrain(ids("a")), nullptr);
  EXPECT_NE(planner_.plan({.thought_budget = 3})->constrain(ids("a")), nullptr);
}

// Beside rules that could forbid them, and in a build without grammars, calls are left free.
TEST_F(AnswerPlans, HoldCallsWhereTheyCanBeHeld) {
  EXPECT_EQ(planner_.plan({.tools = {kTool}})->constrain(ids("a")) != nullptr, has_grammars());
  EXPECT_EQ(planner_.plan({.tools = {kTool}, .ignore_eos = true})->constrain(ids("a")), nullptr);
  EXPECT_EQ(refused({.tools = {kTool}, .must_call = true}) == "", has_grammars());
}

// Grammars are charged to the memory limit: those that are kept are few beside it and make room for
// one that is asked for, which is refused where there is none.
TEST(AnswerPlansOfSmallEngines, ChargeTheirGrammars) {
  if (!has_grammars()) GTEST_SKIP() << "built without xgrammar";
  EngineOptions options = test::demo_options("none");
  options.memory_limit = Engine::estimate(options)->total_reserved() + (4U << 20U);
  const auto engine = test::open_engine(options);
  const auto charged = [&] { return engine->footprint().reserved_bytes(MemoryClass::kGrammars); };
  {
    AnswerPlanner planner(*engine);
    const auto plan = [&](int number) {
      const std::string text = fmt::format("[a-z]{{1,20}}{}", number);
      return planner.plan({.format = {.kind = Kind::kRegex, .text = text, .field = "regex"}});
    };
    EXPECT_EQ(charged(), 0U);
    ASSERT_TRUE(plan(0));
    const std::uint64_t of_vocabulary_and_one = charged();
    EXPECT_GT(of_vocabulary_and_one, 4096U * 32U);
    for (int i = 1; i < 60; ++i) EXPECT_TRUE(plan(i));
    EXPECT_GT(charged(), of_vocabulary_and_one);
    EXPECT_LE(charged(), of_vocabulary_and_one + options.memory_limit / 64);
    const std::uint64_t free = options.memory_limit - engine->footprint().total_reserved();
    const auto all = engine->charge(MemoryClass::kGrammars, free - 1024);
    ASSERT_TRUE(all);
    EXPECT_TRUE(plan(60)) << "kept ones make room";
    const auto rest = engine->charge(
        MemoryClass::kGrammars, options.memory_limit - engine->footprint().total_reserved() - 1024);
    ASSERT_TRUE(rest);
    AnswerPlanner other(*engine);  // keeps none that could go
    const auto refused =
        other.plan({.format = {.kind = Kind::kRegex, .text = "a", .field = "regex"}});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().parameter, "regex");
    EXPECT_EQ(refused.error().status, StatusCode::kResourceExhausted);
    EXPECT_NE(refused.error().message.find("grammars"), std::string::npos);
  }
  EXPECT_EQ(charged(), 0U);
}

// A form begins behind a thought that is open, and at once where thinking is off.
TEST(AnswerPlansOfThinkers, BeginTheFormWhereThinkingEnds) {
  if (!has_grammars()) GTEST_SKIP() << "built without xgrammar";
  const auto engine = test::open_thinking_engine("Qwen-Qwen3-0.6B.jinja");
  const Tokenizer& tokenizer = *engine->tokenizer().value();
  const TokenId begin = tokenizer.token_id("<think>").value();
  const TokenId five = tokenizer.encode("5")->front();
  AnswerPlanner planner(*engine);
  const AnswerFormat digits = {.kind = Kind::kRegex, .text = "[0-9]{3}", .field = "regex"};
  const auto may_begin = [&](std::optional<bool> thinking, TokenId id) {
    const auto plan = planner.plan({.format = digits, .thinking = thinking});
    return plan->constrain(tokenizer.encode("a").value())->advance(id);
  };
  EXPECT_TRUE(may_begin({}, begin));
  EXPECT_TRUE(may_begin(true, begin));
  EXPECT_FALSE(may_begin(false, begin));
  EXPECT_TRUE(may_begin(false, five));
}

}  // namespace
}  // namespace kakeya::service
