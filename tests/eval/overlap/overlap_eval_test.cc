// `kakeya eval overlap`: blocks counted by hand, rows that choose at random, and the demo's passes.
#include "eval/overlap/overlap_eval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/random.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {
namespace {

TEST(OverlapStatistics, CountsBlocksAndNeighbours) {
  // Two experts a row; five rows in one layer.
  const std::vector<std::vector<std::int32_t>> layers = {{0, 1, 1, 2, 1, 0, 3, 2, 3, 1}};
  OverlapStatistics statistics(4, {1, 2, 4, 8});
  statistics.add_text(layers, 2);
  const std::vector<OverlapRow> rows = statistics.rows();
  ASSERT_EQ(rows.size(), 3U);  // there is no block of eight rows
  EXPECT_EQ(rows[0].blocks, 5);
  EXPECT_EQ(rows[0].distinct, 10);
  EXPECT_EQ(rows[0].pairs, 0);
  EXPECT_EQ(rows[1].blocks, 2);
  EXPECT_EQ(rows[1].distinct, 3 + 4);
  EXPECT_EQ(rows[1].pairs, 2);
  EXPECT_EQ(rows[1].shared, 1 + 0);
  EXPECT_EQ(rows[2].blocks, 1);
  EXPECT_EQ(rows[2].distinct, 4);
  EXPECT_EQ(rows[2].shared, 1 + 1 + 0);
  EXPECT_DOUBLE_EQ(rows[1].mean_distinct(), 3.5);
  // Four experts, half of them a row: a half is missed, then a quarter.
  EXPECT_DOUBLE_EQ(rows[1].uniform, 3.0);
  // Two of five rows chose expert 0, four chose 1, two chose 2, two chose 3.
  EXPECT_DOUBLE_EQ(rows[1].by_frequency, 3 * (1 - 0.6 * 0.6) + (1 - 0.2 * 0.2));
}

// Each row for itself: both models say what is seen.
TEST(OverlapStatistics, RowsThatChooseAtRandomMeetTheModels) {
  SequenceRng random(3);
  std::vector<std::vector<std::int32_t>> layers(2);
  for (auto& layer : layers) {
    for (int row = 0; row < 8000; ++row) {
      const auto first = static_cast<std::int32_t>(random.below(16));
      const auto other = static_cast<std::int32_t>((first + 1 + random.below(15)) % 16);
      layer.insert(layer.end(), {first, other});
    }
  }
  OverlapStatistics statistics(16, {1, 2, 4, 8});
  statistics.add_text(layers, 2);
  // 2,000 blocks or more of at most 16 experts, whose number deviates by 1.5: five deviations of
  // the mean are 0.17.
  for (const OverlapRow& row : statistics.rows()) {
    EXPECT_NEAR(row.mean_distinct(), row.uniform, 0.17) << row.rows;
    EXPECT_NEAR(row.by_frequency, row.uniform, 0.05) << row.rows;
  }
}

TEST(OverlapEval, SeesEveryRowOfTheDemo) {
  RoutingLog log;
  const auto engine =
      EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2},
                       [&](std::unique_ptr<Backend> inner) {
                         return std::make_unique<RoutingBackend>(std::move(inner), log);
                       })
          .value();
  PromptSet prompts{.name = "ids", .prompts = {}};
  for (const char* id : {"a", "b"}) {
    prompts.prompts.push_back({.id = id, .ids = std::vector<TokenId>(40, 17), .answer = {}});
  }
  const auto report =
      evaluate_overlap(*engine, log, prompts,
                       {.num_experts = 8, .lengths = {1, 13}, .max_tokens = 20, .draft_length = 2});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  // Six layers.
  EXPECT_EQ(report->tokens, 2 * 40);
  ASSERT_EQ(report->text.size(), 2U);
  EXPECT_EQ(report->text[0].blocks, 6 * 2 * 40);
  EXPECT_EQ(report->text[0].distinct, 6 * 2 * 40 * 2);
  EXPECT_EQ(report->text[1].blocks, 6 * 2 * 3);
  ASSERT_EQ(report->drafts.size(), 1U);
  EXPECT_EQ(report->drafts[0].rows, 3);
  EXPECT_EQ(report->drafts[0].blocks % 6, 0);
  EXPECT_EQ(report->drafts[0].pairs, 2 * report->drafts[0].blocks);
}

}  // namespace
}  // namespace kakeya::eval
