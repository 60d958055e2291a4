// Costs of all sizes from samples of some, disturbed or not; and those of passes that are run.
#include "decode/round_costs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "decode/scripted_decoder.h"

namespace kakeya::test {
namespace {

TEST(RoundCosts, InterpolatesBetweenMeasuredSizes) {
  std::vector<std::vector<double>> samples = {{1.0}, {2.0}, {4.0}};
  EXPECT_EQ(costs_of_samples({1, 2, 4}, samples, 4), (std::vector<double>{1.0, 2.0, 3.0, 4.0}));
}

TEST(RoundCosts, HeedsFastSamplesMoreThanDisturbedOnes) {
  std::vector<std::vector<double>> samples = {{9.0, 1.0, 8.0, 1.1, 7.0}, {2.0, 2.1, 9.0, 2.2, 2.3}};
  EXPECT_EQ(costs_of_samples({1, 2}, samples, 2), (std::vector<double>{1.1, 2.1}));
}

// A plateau over small sizes is what other work on the machine leaves, and held drafting for free.
TEST(RoundCosts, LowersASizeThatALargerOneUndercuts) {
  std::vector<std::vector<double>> samples = {{5.0}, {5.0}, {3.0}, {4.0}};
  EXPECT_EQ(costs_of_samples({1, 2, 3, 4}, samples, 4), (std::vector<double>{3.0, 3.0, 3.0, 4.0}));
}

constexpr std::chrono::microseconds kRowTime(500);

// Takes so long for each token.
class SlowDrafts final : public DraftSource {
 public:
  int num_lanes() const override { return 1; }
  DraftKind lane_kind(int /*lane*/) const override { return DraftKind::kDflash; }
  std::int64_t max_length() const override { return 15; }
  DraftOffer offer(std::span<const TokenId> /*tokens*/) override { return {0, 15}; }
  Status draft(std::span<const TokenId> /*tokens*/,
               Sampler& /*sampler*/,
               std::span<TokenId> out) override {
    std::fill(out.begin(), out.end(), 0);
    std::this_thread::sleep_for(kRowTime * out.size());
    return {};
  }
  std::span<const float> draft_probabilities(std::int64_t /*index*/) const override { return {}; }
};

// No row of a pass takes less than it sleeps. That it takes four times as long would need other
// work in each of the passes of a size, of three or more: sixteen rows take more than four of one.
void expect_costs_of_rows(const std::vector<double>& costs, std::size_t sizes) {
  const double row = std::chrono::duration<double>(kRowTime).count();
  ASSERT_EQ(costs.size(), sizes);
  for (std::size_t i = 0; i < sizes; ++i) {
    EXPECT_GE(costs[i], row * static_cast<double>(i + 1)) << i + 1 << " rows";
  }
  EXPECT_LT(4.0 * costs.front(), costs.back());
}

TEST(RoundCosts, AreMeasuredForEverySize) {
  const ScriptedDecoder decoder(
      8, [](TokenId, TokenId) { return 0.0F; }, kRowTime);
  ScriptedTarget target(decoder, {.context = 64, .max_rows = 16}, 16);
  SlowDrafts drafts;
  const TokenId pending = 1;
  ASSERT_OK(target.timeline().push({&pending, 1}));
  const auto measured = measure_round_costs(target.timeline(), target.sampler(), 15, &drafts);
  ASSERT_OK(measured);
  expect_costs_of_rows(measured->verify, 16);
  expect_costs_of_rows(measured->draft, 15);
}

}  // namespace
}  // namespace kakeya::test
