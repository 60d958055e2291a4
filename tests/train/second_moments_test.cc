// Sums of products against the products of whole matrices, in pieces and on several threads.
#include "second_moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "train/random_rows.h"

namespace kakeya::train {
namespace {

constexpr std::int64_t kSummedRows = 150;
constexpr std::int64_t kSummedFeatures = 70;  // more than a piece of work has columns
const std::vector<std::int64_t> kSummedWidths = {5, 130};

// Small whole numbers, whose sums are exact in whatever order: tests are of equality.
std::vector<float> whole_numbers(std::int64_t width, unsigned seed) {
  std::vector<float> rows = random_rows(kSummedRows, width, seed);
  for (float& value : rows) value = std::round(4.0F * value);
  return rows;
}

class SecondMomentsTest : public testing::Test {
 protected:
  // Adds all rows, `piece` at a time.
  SecondMoments summed(std::int64_t piece, int threads) const {
    ThreadPool pool({.num_threads = threads, .pin = false});
    SecondMoments moments(kSummedFeatures, kSummedWidths);
    for (std::int64_t first = 0; first < kSummedRows; first += piece) {
      const std::int64_t count = std::min(piece, kSummedRows - first);
      std::vector<std::vector<float>> targets;
      for (std::size_t i = 0; i < kSummedWidths.size(); ++i) {
        const auto part = rows(targets_[i], kSummedWidths[i], first, count);
        targets.emplace_back(part.begin(), part.end());
      }
      moments.add(rows(features_, kSummedFeatures, first, count), targets, pool);
    }
    return moments;
  }
  static std::span<const float> rows(const std::vector<float>& all,
                                     std::int64_t width,
                                     std::int64_t first,
                                     std::int64_t count) {
    return std::span(all).subspan(static_cast<std::size_t>(first * width),
                                  static_cast<std::size_t>(count * width));
  }

  const std::vector<float> features_ = whole_numbers(kSummedFeatures, 1);
  const std::vector<std::vector<float>> targets_ = {whole_numbers(kSummedWidths[0], 2),
                                                    whole_numbers(kSummedWidths[1], 3)};
};

TEST_F(SecondMomentsTest, AreTheProductsOfAllRowsHoweverTheyCome) {
  const Eigen::MatrixXd x = matrix_of(features_, kSummedFeatures);
  const Eigen::MatrixXd xx = x.transpose() * x;
  for (const std::int64_t piece : {kSummedRows, std::int64_t{64}, std::int64_t{1}}) {
    for (const int threads : {1, 3}) {
      const SecondMoments moments = summed(piece, threads);
      EXPECT_EQ(moments.rows(), kSummedRows);
      EXPECT_TRUE(moments.features() == xx) << piece;
      for (std::size_t i = 0; i < kSummedWidths.size(); ++i) {
        const Eigen::MatrixXd y = matrix_of(targets_[i], kSummedWidths[i]);
        const Eigen::MatrixXd xy = x.transpose() * y;
        EXPECT_TRUE(moments.cross(i) == xy) << piece;
        EXPECT_EQ(moments.energy(i), y.squaredNorm()) << piece;
      }
      EXPECT_TRUE(moments.finite());
    }
  }
}

TEST_F(SecondMomentsTest, SayWhenANumberIsNone) {
  ThreadPool pool({.num_threads = 1, .pin = false});
  for (const bool in_features : {true, false}) {
    std::vector<float> features = features_;
    std::vector<std::vector<float>> targets = targets_;
    (in_features ? features : targets[1])[7] = std::numeric_limits<float>::quiet_NaN();
    SecondMoments moments(kSummedFeatures, kSummedWidths);
    moments.add(features, targets, pool);
    EXPECT_FALSE(moments.finite()) << in_features;
  }
}

}  // namespace
}  // namespace kakeya::train
