// Importance from sums, and the cutting of texts: plain arithmetic.
#include "convert/activation_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/host_rows.h"
#include "convert/text_windows.h"

namespace kakeya {
namespace {

TEST(ActivationSums, AreMeansOfSquaresOverTheLargest) {
  MemoryBudget budget;
  auto sums = ActivationSums::create(1, 3, budget);
  ASSERT_TRUE(sums.has_value());
  const std::vector<float> rows = {1, 2, 0, 3, -4, 0};  // mean squares 5, 10, 0
  sums->add(0, {device(rows.data()), 2, 3});
  EXPECT_EQ(sums->total_rows(), 2);
  const auto importance = sums->importance(budget);
  ASSERT_TRUE(importance.has_value());
  EXPECT_EQ(importance->matrices, 1);
  EXPECT_EQ(importance->columns, 3);
  const float* factors = importance->of_matrix(0);
  EXPECT_FLOAT_EQ(factors[0], 0.5F);
  EXPECT_FLOAT_EQ(factors[1], 1.0F);
  EXPECT_EQ(factors[2], 0.0F);
}

// An expert without rows has the mean of its layer; one with many has its own.
TEST(ActivationSums, ALayerStandsInForExpertsThatSawLittle) {
  MemoryBudget budget;
  auto sums = ActivationSums::create(3, 2, budget);
  ASSERT_TRUE(sums.has_value());
  std::vector<float> many(2 * 100'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i % 2 == 0 ? 1.0F : 2.0F;
  sums->add(0, {device(many.data()), 100'000, 2});
  const std::vector<float> one = {2.0F, 1.0F};
  sums->add(2, {device(one.data()), 1, 2});
  EXPECT_EQ(sums->rows(1), 0);
  const auto importance = sums->importance(budget);
  ASSERT_TRUE(importance.has_value());
  EXPECT_NEAR(importance->of_matrix(0)[0], 0.25F, 1e-4F);
  EXPECT_NEAR(importance->of_matrix(1)[0], 0.25F, 1e-4F);
  // (4 + 32 * 1) / (1 + 32 * 4), but for the one row's part in the layer's mean.
  EXPECT_NEAR(importance->of_matrix(2)[0], 36.0F / 129.0F, 1e-4F);
  EXPECT_EQ(importance->of_matrix(2)[1], 1.0F);
}

TEST(ActivationSums, ColumnsThatMetNothingGiveNumbers) {
  MemoryBudget budget;
  auto sums = ActivationSums::create(2, 2, budget);
  ASSERT_TRUE(sums.has_value());
  const std::vector<float> zeros(4, 0.0F);
  sums->add(1, {device(zeros.data()), 2, 2});
  const auto importance = sums->importance(budget);
  ASSERT_TRUE(importance.has_value());
  for (int m = 0; m < 2; ++m) {
    for (int k = 0; k < 2; ++k) EXPECT_EQ(importance->of_matrix(m)[k], 1.0F);
  }
}

TEST(ActivationSums, AreChargedBeforeTheyAreAllocated) {
  MemoryBudget little(1000);
  EXPECT_EQ(ActivationSums::create(1, 1000, little).error().code(), StatusCode::kResourceExhausted);
  MemoryBudget budget;
  const auto sums = ActivationSums::create(2, 1000, budget);
  EXPECT_GE(budget.footprint().total_reserved(), 2U * 1000U * sizeof(double));
}

TEST(TextWindows, HoldEveryTokenOnceEachBehindTheFirstToken) {
  std::vector<TokenId> ids(25);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(100 + i);
  const auto windows = cut_into_windows(ids, 2, 10);
  ASSERT_EQ(windows.size(), 3U);
  EXPECT_EQ(windows[1], (std::vector<TokenId>{2, 109, 110, 111, 112, 113, 114, 115, 116, 117}));
  EXPECT_EQ(windows[2], (std::vector<TokenId>{2, 118, 119, 120, 121, 122, 123, 124}));
  EXPECT_EQ(cut_into_windows(ids, std::nullopt, 10)[2].size(), 5U);
  // A token with nothing before and nothing behind it predicts nothing.
  EXPECT_EQ(cut_into_windows(std::span(ids).first(11), std::nullopt, 10).size(), 1U);
  EXPECT_TRUE(cut_into_windows({}, 2, 10).empty());
}

}  // namespace
}  // namespace kakeya
