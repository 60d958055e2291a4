// Long runs: buckets and verdict of rounds that were made up and worked out by hand, and runs of
// the demo model of about a second, alone and through a scheduler.
#include "eval/longrun/longrun_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "model/test_model.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

constexpr double kBinWidth = 0.0026;  // half a bin is 0.25 %

void expect_about(double expected, double got) {
  EXPECT_NEAR(got, expected, kBinWidth * expected);
}

TEST(DurationCounts, QuantilesAreThoseOfTheSortedList) {
  DurationCounts counts;
  EXPECT_EQ(counts.quantile(0.5), 0.0);
  for (int i = 1; i <= 100; ++i) counts.add(1e-3 * i);
  EXPECT_EQ(counts.count(), 100);
  expect_about(0.050, counts.quantile(0.50));
  expect_about(0.095, counts.quantile(0.95));
  expect_about(0.099, counts.quantile(0.99));
  expect_about(0.001, counts.quantile(0.0));
  expect_about(0.100, counts.quantile(1.0));
}

TEST(DurationCounts, WhatLiesOutsideCountsAtTheEnds) {
  DurationCounts counts;
  counts.add(0.0);
  expect_about(1e-6, counts.quantile(1.0));
  counts.add(1e9);
  expect_about(3600.0, counts.quantile(1.0));
  EXPECT_EQ(counts.count(), 2);
}

TEST(LongRunBuckets, AreSixOrMore) {
  EXPECT_EQ(longrun_buckets(60.0, 10.0), 6);
  EXPECT_EQ(longrun_buckets(61.0, 10.0), 7);
  EXPECT_EQ(longrun_buckets(0.3, 0.1), 6);
  EXPECT_EQ(longrun_buckets(5.0, 10.0), 6);
  EXPECT_EQ(longrun_buckets(120.0, 10.0), 12);
  EXPECT_EQ(longrun_buckets(0.0, 10.0), 6) << "by tokens";
}

// A minute in six buckets of ten seconds.
TEST(LongRunRecorder, SortsRoundsByTheirEnds) {
  LongRunRecorder recorder({.minutes = 1.0, .buckets = 6});
  recorder.begin_conversation(0.0);
  recorder.see_memory(0.0, 700, 1000);
  recorder.add({.end_seconds = 0.5, .tokens = 1});  // of the prompt's pass
  // 98 rounds of 1 ms and two of 4 ms.
  for (int i = 0; i < 100; ++i) {
    recorder.add({.end_seconds = 1.0 + 0.05 * i,
                  .seconds = i % 50 == 0 ? 0.004 : 0.001,
                  .tokens = 3,
                  .drafted = 4,
                  .accepted = 2});
  }
  recorder.see_memory(9.0, 650, 900);
  // Memory that was seen meanwhile may be told first.
  recorder.see_memory(10.5, 600, 1100);
  recorder.add({.end_seconds = 9.999, .seconds = 0.001, .tokens = 1});
  recorder.add({.end_seconds = 10.0, .seconds = 0.002, .tokens = 2});
  recorder.begin_conversation(31.0);
  EXPECT_FALSE(recorder.done(59.9));
  EXPECT_TRUE(recorder.done(60.0));
  EXPECT_EQ(recorder.share_done(15.0), 0.25);
  recorder.add({.end_seconds = 60.5, .seconds = 0.003, .tokens = 1});  // over the end
  const std::vector<LongRunBucket> rows = recorder.rows(60.6);
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[0].tokens, 1 + 300 + 1);
  EXPECT_EQ(rows[0].rounds, 101);
  EXPECT_EQ(rows[0].drafted, 400);
  EXPECT_EQ(rows[0].accepted, 200);
  EXPECT_EQ(rows[0].conversations, 1);
  EXPECT_EQ(rows[0].ledger_bytes, 700U) << "the most";
  EXPECT_EQ(rows[0].resident_bytes, 900U) << "the last";
  expect_about(1.0, rows[0].p50_ms);
  expect_about(1.0, rows[0].p95_ms);
  expect_about(4.0, rows[0].p99_ms);  // the 100th of 101
  EXPECT_EQ(rows[0].tokens_per_second(), 30.2);
  EXPECT_EQ(rows[1].tokens, 2);
  expect_about(2.0, rows[1].p50_ms);
  EXPECT_EQ(rows[2].rounds, 0);
  EXPECT_EQ(rows[2].p50_ms, 0.0);
  EXPECT_EQ(rows[2].ledger_bytes, 600U) << "as it was seen last";
  EXPECT_EQ(rows[3].conversations, 1);
  EXPECT_EQ(rows[5].tokens, 1);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(rows[i].begin_seconds, 10.0 * static_cast<double>(i));
    EXPECT_EQ(rows[i].end_seconds, i == 5 ? 60.6 : 10.0 * static_cast<double>(i + 1));
  }
}

TEST(LongRunRecorder, OfARunByTokensABucketEndsWithTheRoundThatFillsIt) {
  LongRunRecorder recorder({.tokens = 60, .buckets = 6});
  EXPECT_EQ(recorder.tokens_to_boundary(), 10);
  for (int i = 1; i <= 15; ++i) {
    recorder.add({.end_seconds = 1.0 * i, .seconds = 1.0, .tokens = 4});
  }
  EXPECT_TRUE(recorder.done(0.0));
  const std::vector<LongRunBucket> rows = recorder.rows(15.5);
  ASSERT_EQ(rows.size(), 6U);
  // 12, 20, 32, 40, 52 and 60 tokens.
  const std::vector<double> ends = {3.0, 5.0, 8.0, 10.0, 13.0, 15.5};
  const std::vector<std::int64_t> tokens = {12, 8, 12, 8, 12, 8};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(rows[i].end_seconds, ends[i]);
    EXPECT_EQ(rows[i].begin_seconds, i == 0 ? 0.0 : ends[i - 1]);
    EXPECT_EQ(rows[i].tokens, tokens[i]);
  }
}

TEST(LongRunRecorder, AnInterruptedRunHasRowsUpToWhereItCame) {
  LongRunRecorder recorder({.minutes = 1.0, .buckets = 6});
  recorder.add({.end_seconds = 12.0, .seconds = 0.001, .tokens = 1});
  const std::vector<LongRunBucket> rows = recorder.rows(13.0);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].begin_seconds, 10.0);
  EXPECT_EQ(rows[1].end_seconds, 13.0);
}

TEST(LongRunVerdict, ComparesTheLastRowWithTheFirst) {
  std::vector<LongRunBucket> rows = {{.p50_ms = 2.0, .ledger_bytes = 100, .resident_bytes = 1000},
                                     {.p50_ms = 9.0, .ledger_bytes = 100, .resident_bytes = 5000},
                                     {.p50_ms = 3.0, .ledger_bytes = 100, .resident_bytes = 1300}};
  EXPECT_EQ(longrun_verdict(rows).p50_ratio, 1.5);
  EXPECT_EQ(longrun_verdict(rows).ledger_growth, 0U);
  EXPECT_EQ(longrun_verdict(rows).resident_growth, 300U);
  EXPECT_TRUE(longrun_verdict(rows).flat());
  rows[1].ledger_bytes = 164;  // whichever it is
  EXPECT_EQ(longrun_verdict(rows).ledger_growth, 64U);
  EXPECT_FALSE(longrun_verdict(rows).flat());
  rows[2].resident_bytes = 900;
  EXPECT_EQ(longrun_verdict(rows).resident_growth, 0U);
  rows[0].p50_ms = 0.0;
  EXPECT_EQ(longrun_verdict(rows).p50_ratio, 0.0);
}

class LongRunEval : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = EngineImpl::open(
                  {.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2, .draft = {.source = "auto"}})
                  .value();
    set_ = {.name = "three",
            .prompts = {{.id = "a", .ids = {2, 100, 101}, .answer = ""},
                        {.id = "b", .ids = {2, 200, 201, 202}, .answer = ""},
                        {.id = "c", .ids = {2, 300}, .answer = ""}}};
    options_.length = {.tokens = 1200, .buckets = 6};
    options_.session.context = 160;
    options_.session.max_rows = 32;
    options_.session.window = 32;
    options_.session.evicted_full = Evicted::kDrop;
    options_.sampling = {.temperature = 1.0F, .seed = 5};
    options_.resident_bytes = [] { return 1000; };
    options_.hash = [](std::span<const TokenId> ids) {
      return std::to_string(
          std::accumulate(ids.begin(), ids.end(), std::int64_t{0},
                          [](std::int64_t a, TokenId b) { return 31 * a % 1000003 + b; }));
    };
  }

  LongRunReport run() { return run_long(*engine_, set_, options_).value(); }

  static void expect_rows_add_up(const LongRunReport& report) {
    ASSERT_EQ(report.buckets.size(), 6U);
    double before = 0.0;
    for (const LongRunBucket& row : report.buckets) {
      EXPECT_EQ(row.begin_seconds, before);
      EXPECT_GT(row.rounds, 0);
      EXPECT_GE(row.tokens, row.rounds);
      EXPECT_GE(row.drafted, row.accepted);
      EXPECT_GT(row.p50_ms, 0.0);
      EXPECT_LE(row.p50_ms, row.p99_ms);
      EXPECT_EQ(row.resident_bytes, 1000U);
      before = row.end_seconds;
    }
    EXPECT_EQ(before, report.seconds);
  }

  std::unique_ptr<EngineImpl> engine_;
  PromptSet set_;
  LongRunOptions options_;
};

TEST_F(LongRunEval, ASessionStaysAsSmallAndAnswersAsBefore) {
  const LongRunReport report = run();
  EXPECT_TRUE(report.complete);
  expect_rows_add_up(report);
  EXPECT_EQ(report.tokens(), 1200);
  // Answers of 157, 156 and 158 tokens: seven are 1099, and the eighth ends with the run.
  EXPECT_EQ(report.conversations(), 8);
  ASSERT_EQ(report.prompts.size(), 3U);
  EXPECT_EQ(report.prompts[0].answers, 3);
  EXPECT_EQ(report.prompts[1].answers, 2);
  EXPECT_NE(report.prompts[0].sha256, report.prompts[1].sha256);
  EXPECT_TRUE(report.answers_equal());
  EXPECT_TRUE(report.failures.empty());
  const LongRunVerdict verdict = longrun_verdict(report.buckets);
  EXPECT_EQ(verdict.ledger_growth, 0U);
  EXPECT_GT(verdict.p50_ratio, 0.0);
  EXPECT_GT(report.buckets[0].ledger_bytes, std::uint64_t{1} << 20) << "the weights, at least";
}

TEST_F(LongRunEval, AnswersOfASchedulerAreThoseOfASession) {
  const LongRunReport alone = run();
  options_.sessions = 3;
  options_.length.tokens = 2400;
  const LongRunReport together = run();
  EXPECT_TRUE(together.complete);
  expect_rows_add_up(together);
  EXPECT_GE(together.tokens(), 2400);
  EXPECT_TRUE(together.answers_equal());
  EXPECT_EQ(longrun_verdict(together.buckets).ledger_growth, 0U);
  ASSERT_EQ(together.prompts.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GE(together.prompts[i].answers, 2);
    EXPECT_EQ(together.prompts[i].sha256, alone.prompts[i].sha256) << i;
  }
}

TEST_F(LongRunEval, ByMinutesItEndsInTime) {
  options_.length = {.minutes = 0.01, .buckets = 6};
  std::int64_t shown = 0;
  options_.on_progress = [&](const LongRunProgress& progress) {
    ++shown;
    EXPECT_LE(progress.share, 1.0);
  };
  const LongRunReport report = run();
  EXPECT_TRUE(report.complete);
  expect_rows_add_up(report);
  EXPECT_GE(report.seconds, 0.6);
  EXPECT_GT(shown, 2);
}

TEST_F(LongRunEval, AnInterruptedRunIsMarked) {
  int asked = 0;
  options_.interrupted = [&] { return ++asked > 500; };
  const LongRunReport report = run();
  EXPECT_FALSE(report.complete);
  EXPECT_GT(report.tokens(), 100);
  EXPECT_LT(report.tokens(), 1200);
  EXPECT_LT(report.buckets.size(), 6U);
  EXPECT_EQ(report.buckets.back().end_seconds, report.seconds);
}

TEST_F(LongRunEval, AnotherAnswerToTheSamePromptIsSeen) {
  int asked = 0;
  options_.hash = [&](std::span<const TokenId>) { return std::to_string(++asked); };
  const LongRunReport report = run();
  EXPECT_FALSE(report.answers_equal());
  EXPECT_EQ(report.prompts[0].equal, 1);
  EXPECT_EQ(report.prompts[0].answers, 3);
}

TEST_F(LongRunEval, AConversationThatFailsIsARow) {
  set_.prompts[1].ids[2] = 1 << 20;
  for (const std::int64_t sessions : {1, 2}) {
    options_.sessions = sessions;
    const LongRunReport report = run();
    EXPECT_TRUE(report.complete) << sessions;
    EXPECT_GE(report.tokens(), 1200);
    ASSERT_GE(report.failures.size(), 2U);
    EXPECT_EQ(report.failures[0].conversation, 1);
    EXPECT_EQ(report.failures[0].prompt, "b");
    EXPECT_THAT(report.failures[0].error, HasSubstr("token id"));
    EXPECT_EQ(report.prompts[1].answers, 0);
  }
  set_.prompts = {set_.prompts[1]};
  const LongRunReport none = run();
  EXPECT_FALSE(none.complete);
  EXPECT_EQ(std::ssize(none.failures), kMostFailuresInARow);
}

TEST_F(LongRunEval, RefusesPromptsThatFillTheContext) {
  options_.session.context = 7;
  const auto refused = run_long(*engine_, set_, options_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("8 tokens for b"));
  options_.session.context = 160;
  options_.sampling.top_p = 0.0F;
  EXPECT_FALSE(run_long(*engine_, set_, options_));
}

}  // namespace
}  // namespace kakeya::eval
