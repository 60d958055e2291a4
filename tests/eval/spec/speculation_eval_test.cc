// Checks what `kakeya eval spec` adds up, and that it would notice another output.
#include "eval/spec/speculation_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "eval/prompts/prompt_set.h"
#include "eval/spec/round_statistics.h"

namespace kakeya::eval {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RoundRecord round_of(std::int32_t drafted, std::int32_t accepted, std::int32_t committed) {
  return {.drafted = drafted, .accepted = accepted, .committed = committed};
}

TEST(RoundStatistics, CountsDraftingRoundsApartFromPlainSteps) {
  RoundStatistics statistics;
  const std::vector<RoundRecord> first = {round_of(0, 0, 1), round_of(4, 2, 3), round_of(0, 0, 1)};
  // The last round ends at a stop id: its second draft was accepted and is the last token.
  const std::vector<RoundRecord> second = {round_of(2, 0, 1), round_of(3, 2, 2)};
  statistics.add(first);
  statistics.add(second);
  EXPECT_EQ(statistics.rounds(), 5);
  EXPECT_EQ(statistics.drafting_rounds(), 3);
  EXPECT_EQ(statistics.drafted(), 9);
  EXPECT_EQ(statistics.accepted(), 4);
  EXPECT_EQ(statistics.committed(), 8);
  EXPECT_DOUBLE_EQ(statistics.accepted_per_round(), 4.0 / 3.0);
  EXPECT_DOUBLE_EQ(statistics.acceptance_length(), 1.0 + 4.0 / 3.0);
  EXPECT_DOUBLE_EQ(statistics.tokens_per_round(), 8.0 / 5.0);
}

TEST(RoundStatistics, TakesTheShareOfADepthAmongTheRoundsThatDraftedSoFar) {
  RoundStatistics statistics;
  const std::vector<RoundRecord> rounds = {round_of(1, 1, 2), round_of(3, 2, 3), round_of(2, 0, 1),
                                           round_of(3, 3, 4)};
  statistics.add(rounds);
  std::vector<std::int64_t> reached;
  std::vector<std::int64_t> accepted;
  for (const DepthAcceptance& depth : statistics.by_depth()) {
    reached.push_back(depth.rounds);
    accepted.push_back(depth.accepted);
  }
  EXPECT_THAT(reached, ElementsAre(4, 3, 2));
  EXPECT_THAT(accepted, ElementsAre(3, 2, 1));
  EXPECT_DOUBLE_EQ(statistics.by_depth()[1].share(), 2.0 / 3.0);
}

TEST(RoundStatistics, IsDefinedWithoutAnyRound) {
  const RoundStatistics statistics;
  EXPECT_EQ(statistics.accepted_per_round(), 0.0);
  EXPECT_EQ(statistics.acceptance_length(), 1.0);
  EXPECT_EQ(statistics.tokens_per_round(), 0.0);
  EXPECT_TRUE(statistics.by_depth().empty());
}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({4.0, 1.0, 2.0, 10.0}), 3.0);
  EXPECT_EQ(median({}), 0.0);
}

TEST(SpeculationReport, TakesTheMedianOfTheRatiosAndNotTheRatioOfTheMedians) {
  SpeculationReport report;
  for (const double seconds : {1.0, 2.0, 4.0}) report.plain_times.add(0, seconds);
  // The medians, 2 and 4, have another ratio.
  for (const double seconds : {0.5, 4.0, 4.0}) report.speculative_times.add(0, seconds);
  EXPECT_THAT(report.time_ratios(), ElementsAre(0.5, 2.0, 1.0));
  EXPECT_EQ(report.time_ratio(), 1.0);
}

// In each pair another prompt is disturbed, so that every pair's sum is, but no prompt's median.
TEST(SpeculationReport, IsSteadyAgainstBurstsThatFallOnDifferentPrompts) {
  SpeculationReport report;
  for (std::size_t pair = 0; pair < 3; ++pair) {
    for (std::size_t prompt = 0; prompt < 3; ++prompt) {
      report.plain_times.add(prompt, 2.0);
      report.speculative_times.add(prompt, pair == prompt ? 10.0 : 1.0);
    }
  }
  EXPECT_THAT(report.plain_times.pairs(), ElementsAre(6.0, 6.0, 6.0));
  EXPECT_THAT(report.speculative_times.pairs(), ElementsAre(12.0, 12.0, 12.0));
  EXPECT_EQ(report.time_ratio(), 2.0);
  EXPECT_EQ(report.steady_time_ratio(), 0.5);
}

TEST(SpeculationReport, IsDefinedIfNothingTookTime) {
  SpeculationReport report;
  EXPECT_EQ(report.time_ratio(), 0.0);
  EXPECT_EQ(report.steady_time_ratio(), 0.0);
  report.plain_times.add(0, 0.0);
  report.speculative_times.add(0, 0.0);
  EXPECT_EQ(report.time_ratio(), 0.0);
}

TEST(ParsePrompts, ReadsLinesAndNamesThoseWithoutAnId) {
  const auto prompts = parse_prompts(
      "{\"id\": \"a\", \"prompt\": \"x\", \"answer\": \"7\", \"category\": 3}\r\n"
      "\n"
      "{\"prompt\": \"two\\nlines\"}",
      "file");
  ASSERT_TRUE(prompts.has_value()) << prompts.error().message();
  ASSERT_EQ(prompts->size(), 2U);
  EXPECT_EQ((*prompts)[0].id, "a");
  EXPECT_EQ((*prompts)[0].answer, "7");
  EXPECT_EQ((*prompts)[1].id, "3");
  EXPECT_EQ((*prompts)[1].prompt, "two\nlines");
  EXPECT_EQ((*prompts)[1].answer, "");
}

TEST(ParsePrompts, RefusesBadLinesByTheirNumber) {
  const auto message = [](const char* text) {
    const auto prompts = parse_prompts(text, "file");
    return prompts ? "accepted" : prompts.error().message();
  };
  EXPECT_THAT(message("{\"prompt\": \"x\"}\n{\"prompt\""), HasSubstr("file:2: not valid JSON"));
  EXPECT_THAT(message("[1]"), HasSubstr("file:1: expected a JSON object"));
  EXPECT_THAT(message("\n{\"id\": \"a\"}"), HasSubstr("file:2: prompt: expected a text"));
  EXPECT_THAT(message("{\"prompt\": 7}"), HasSubstr("file:1: prompt: expected a string"));
  EXPECT_THAT(message("\n \n"), HasSubstr("file holds no prompt"));
}

class SpeculationEval : public testing::Test {
 protected:
  static std::unique_ptr<EngineImpl> open() {
    const EngineOptions options{.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 1};
    auto engine = EngineImpl::open(options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return std::move(engine).value();
  }

  PromptSet set() const {
    const std::vector<PromptText> texts = {
        {"count", "Count from 5 to 12.", "7, 8"},
        {"code", "Write a Python function that adds two numbers.", ""},
        {"never", "Count from 3 to 6.", "no such words"}};
    auto encoded = encode_prompts(*engine_, "three", texts, PromptForm::kChat);
    EXPECT_TRUE(encoded.has_value()) << encoded.error().message();
    return std::move(encoded).value();
  }

  SpeculationReport evaluate(const SpeculationEvalOptions& options) {
    auto report = evaluate_speculation(*engine_, set(), options);
    EXPECT_TRUE(report.has_value()) << report.error().message();
    return std::move(report).value();
  }

  static SpeculationEvalOptions options_of(std::int64_t draft_length) {
    SpeculationEvalOptions options{.session = {.context = 512}, .pairs = 2};
    options.generate.max_tokens = 40;
    options.generate.draft_length = draft_length;
    return options;
  }

  std::unique_ptr<EngineImpl> engine_ = open();
};

TEST_F(SpeculationEval, EncodesTheTemplateOrTheBareTextAfterABeginning) {
  const std::vector<PromptText> text = {{"a", "Count from 5 to 12.", ""}};
  const auto raw = encode_prompts(*engine_, "raw", text, PromptForm::kRaw);
  ASSERT_TRUE(raw.has_value());
  std::vector<TokenId> expected =
      engine_.get()->tokenizer().value()->encode("Count from 5 to 12.").value();
  expected.insert(expected.begin(), engine_->bos_id());
  EXPECT_EQ(raw->prompts[0].ids, expected);
  const auto chat = encode_prompts(*engine_, "chat", text, PromptForm::kChat);
  ASSERT_TRUE(chat.has_value());
  const ChatMessage message{.role = "user", .content = text[0].prompt};
  EXPECT_EQ(chat->prompts[0].ids,
            engine_->tokenizer().value()->encode(
                engine_->apply_chat_template({&message, 1}, {}).value().text));
}

TEST_F(SpeculationEval, FindsEqualOutputsAndTheAnswersInThem) {
  std::int64_t calls = 0;
  SpeculationEvalOptions options = options_of(4);
  options.on_progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(done, ++calls);
    EXPECT_EQ(total, 15);  // three prompts: once plainly, then two pairs
  };
  const SpeculationReport report = evaluate(options);
  EXPECT_EQ(calls, 15);
  EXPECT_EQ(report.prompts, 3);
  EXPECT_EQ(report.outputs_equal(), 3);
  EXPECT_EQ(report.plain_ids, report.speculative_ids);
  EXPECT_EQ(report.tokens, static_cast<std::int64_t>(report.plain_ids.size()));
  EXPECT_GT(report.rounds.accepted(), 0);
  // Both pairs' rounds; the first token of each of the six replies is the prefill's.
  EXPECT_EQ(report.rounds.committed(), 2 * report.tokens - 6);
  EXPECT_EQ(report.answers, 2);
  EXPECT_EQ(report.plain_recall, 1);
  EXPECT_EQ(report.speculative_recall, 1);
  EXPECT_EQ(report.plain_times.pairs().size(), 2U);
  EXPECT_GT(report.time_ratio(), 0.0);
}

TEST_F(SpeculationEval, AcceptsNothingWithForcedRejectionAndGivesTheSameOutput) {
  SpeculationEvalOptions options = options_of(4);
  options.forced_rejection = true;
  const SpeculationReport report = evaluate(options);
  EXPECT_EQ(report.outputs_equal(), 3);
  EXPECT_EQ(report.rounds.accepted(), 0);
  EXPECT_GT(report.rounds.drafted(), 0);
  EXPECT_EQ(report.rounds.tokens_per_round(), 1.0);
}

// Every generation counts, of every pair and of both ways: one that is cut short is found.
TEST_F(SpeculationEval, ComparesEveryOutputOfEveryPair) {
  const std::vector<PromptText> texts = {{"count", "Count from 5 to 12.", ""}};
  const PromptSet one = encode_prompts(*engine_, "one", texts, PromptForm::kChat).value();
  // The first is what all others have to be; then come two pairs, plain before drafted.
  for (std::int64_t number = 2; number <= 5; ++number) {
    SpeculationEvalOptions options = options_of(4);
    options.generate.max_tokens = 12;
    options.on_progress = [&](std::int64_t done, std::int64_t) {
      options.generate.max_tokens = done + 1 == number ? 11 : 12;
    };
    const auto report = evaluate_speculation(*engine_, one, options);
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_THAT(report->differing, ElementsAre("count")) << number;
  }
}

TEST_F(SpeculationEval, AnAnswerIsAWholeNumber) {
  // The answer is a part of 10, 11 and 12.
  const std::vector<PromptText> texts = {{"count", "Count from 5 to 12.", "1"}};
  const PromptSet one = encode_prompts(*engine_, "one", texts, PromptForm::kChat).value();
  const auto report = evaluate_speculation(*engine_, one, options_of(4));
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->answers, 1);
  EXPECT_EQ(report->plain_recall, 0);
  EXPECT_EQ(report->speculative_recall, 0);
}

TEST_F(SpeculationEval, NamesThePromptThatDoesNotFit) {
  SpeculationEvalOptions options = options_of(4);
  options.session.context = 16;
  const auto report = evaluate_speculation(*engine_, set(), options);
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message(), HasSubstr("three count: "));
}

}  // namespace
}  // namespace kakeya::eval
