// The fit in closed form against maps that are known, and against the same optimum found from the
// rows themselves by other decompositions.
#include "reduced_rank.h"

#include <gtest/gtest.h>

#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "formats/scratch_files.h"
#include "model/test_model.h"
#include "train/random_rows.h"

namespace kakeya::train {
namespace {

constexpr std::int64_t kRows = 400;
constexpr std::int64_t kFeatures = 12;
const std::vector<std::int64_t> kWidths = {7, 9};

struct Rows {
  std::vector<float> features;
  std::vector<std::vector<float>> targets;

  Eigen::MatrixXd x() const { return matrix_of(features, kFeatures); }
  Eigen::MatrixXd y(std::size_t target) const {
    return matrix_of(targets[target], kWidths[target]);
  }
  SecondMoments moments() const {
    ThreadPool pool({.num_threads = 1, .pin = false});
    SecondMoments moments(kFeatures, kWidths);
    moments.add(features, targets, pool);
    return moments;
  }
};

// Targets that follow from 3 directions of the features, of very different sizes, and noise of that
// share.
Rows rows_of_rank_three(float noise, const Eigen::MatrixXd& map) {
  Rows rows{.features = random_rows(kRows, kFeatures, 1), .targets = {}};
  Eigen::MatrixXd all = rows.x() * map;
  all += noise * matrix_of(random_rows(kRows, 16, 9), 16);
  all.rightCols(9) *= 50.0;
  rows.targets = {rows_of(all.leftCols(7)), rows_of(all.rightCols(9))};
  return rows;
}

Eigen::MatrixXd random_map() {
  return matrix_of(random_rows(kFeatures, 3, 4), 3) * matrix_of(random_rows(3, 16, 5), 16);
}

Eigen::MatrixXd map_of(const ReducedRankFit& fit, std::size_t target) {
  return (fit.decoders[target] * fit.encoder).transpose();  // [F, W]
}

TEST(ReducedRank, FindsAMapOfThatRank) {
  const Eigen::MatrixXd map = random_map();
  const Rows rows = rows_of_rank_three(0.0F, map);
  const SecondMoments moments = rows.moments();
  const auto fit = fit_reduced_rank(moments, {.rank = 3});
  ASSERT_OK(fit);
  // Targets are rounded to f32, 6e-8 of numbers up to 10 (500 where they are scaled), and the
  // features are well conditioned.
  EXPECT_LT((map_of(*fit, 0) - map.leftCols(7)).cwiseAbs().maxCoeff(), 1e-6);
  EXPECT_LT((map_of(*fit, 1) / 50.0 - map.rightCols(9)).cwiseAbs().maxCoeff(), 1e-6);
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    EXPECT_NEAR(explained_energy(moments, *fit, i), 1.0, 1e-12);
  }
  // One direction less leaves something of all that there is.
  const auto less = fit_reduced_rank(moments, {.rank = 2});
  ASSERT_OK(less);
  EXPECT_LT(explained_energy(moments, *less, 0), 0.999);
}

// The textbook: least squares of all targets by a QR decomposition of the rows, with the ridge as
// rows of its own, and the best approximation of what it predicts by a singular value
// decomposition (Eckart and Young).
TEST(ReducedRank, IsTheTextbooksSolution) {
  const Rows rows = rows_of_rank_three(2.0F, random_map());
  const SecondMoments moments = rows.moments();
  for (const double ridge : {0.0, 0.5}) {
    for (const std::int64_t rank : {1, 4, 12}) {
      const auto fit = fit_reduced_rank(moments, {.rank = rank, .ridge = ridge});
      ASSERT_OK(fit);
      Eigen::MatrixXd x = Eigen::MatrixXd::Zero(kRows + kFeatures, kFeatures);
      x.topRows(kRows) = rows.x();
      const double added = ridge * rows.x().squaredNorm() / kFeatures;
      x.bottomRows(kFeatures).diagonal().setConstant(std::sqrt(added));
      Eigen::MatrixXd y = Eigen::MatrixXd::Zero(kRows + kFeatures, 16);
      const double first = 1.0 / rows.y(0).norm();
      const double second = 1.0 / rows.y(1).norm();
      y.topLeftCorner(kRows, 7) = first * rows.y(0);
      y.topRightCorner(kRows, 9) = second * rows.y(1);
      const Eigen::MatrixXd full = x.householderQr().solve(y);
      const Eigen::JacobiSVD<Eigen::MatrixXd> svd(x * full,
                                                  Eigen::ComputeThinV | Eigen::ComputeThinU);
      const Eigen::MatrixXd kept = svd.matrixV().leftCols(rank);
      const Eigen::MatrixXd expected = full * kept * kept.transpose();
      // Moments square the condition of the rows, about 2, in double precision.
      EXPECT_LT((map_of(*fit, 0) - expected.leftCols(7) / first).cwiseAbs().maxCoeff(), 1e-10);
      EXPECT_LT((map_of(*fit, 1) - expected.rightCols(9) / second).cwiseAbs().maxCoeff(), 5e-9);
    }
  }
}

TEST(ReducedRank, SaysWhatIsLeftOfTheRows) {
  const Rows rows = rows_of_rank_three(2.0F, random_map());
  const auto fit = fit_reduced_rank(rows.moments(), {.rank = 2});
  ASSERT_OK(fit);
  // Other rows than those that the fit was made from.
  Rows others = rows_of_rank_three(3.0F, random_map());
  others.features = random_rows(kRows, kFeatures, 77);
  for (const Rows* of : {&rows, &std::as_const(others)}) {
    for (std::size_t i = 0; i < kWidths.size(); ++i) {
      const double left = (of->y(i) - of->x() * map_of(*fit, i)).squaredNorm();
      EXPECT_NEAR(explained_energy(of->moments(), *fit, i), 1.0 - left / of->y(i).squaredNorm(),
                  1e-12);  // a difference of numbers about 1, in double precision
    }
  }
}

TEST(ReducedRank, MakesTheCodeForSomeTargetsAndTheBestOfItForOthers) {
  const Rows rows = rows_of_rank_three(2.0F, random_map());
  const SecondMoments moments = rows.moments();
  const auto both = fit_reduced_rank(moments, {.rank = 2});
  const auto fit = fit_reduced_rank(moments, {.rank = 2, .fitted = {true, false}});
  ASSERT_OK(both);
  ASSERT_OK(fit);
  EXPECT_GT(explained_energy(moments, *fit, 0), explained_energy(moments, *both, 0));
  EXPECT_LT(explained_energy(moments, *fit, 1), explained_energy(moments, *both, 1));
  const Eigen::MatrixXd codes = rows.x() * fit->encoder.transpose();
  const Eigen::MatrixXd expected = codes.householderQr().solve(rows.y(1)).transpose();
  EXPECT_LT((fit->decoders[1] - expected).cwiseAbs().maxCoeff(), 1e-9);  // double precision
}

TEST(ReducedRank, RefusesWhatHasNoSolution) {
  const Rows rows = rows_of_rank_three(1.0F, random_map());
  const SecondMoments moments = rows.moments();
  for (const std::int64_t rank : {-1, 0, 13}) {
    EXPECT_EQ(message_of(fit_reduced_rank(moments, {.rank = rank})),
              "rank: expected 1 to 12, got " + std::to_string(rank));
  }
  EXPECT_EQ(message_of(fit_reduced_rank(moments, {.rank = 8, .fitted = {true, false}})),
            "rank: expected 1 to 7, got 8");
  EXPECT_EQ(message_of(fit_reduced_rank(moments, {.rank = 1, .ridge = -1.0})),
            "ridge: expected 0 or more, got -1");
  Rows flat = rows;  // a feature that is always 0
  for (std::size_t i = 0; i < flat.features.size(); i += kFeatures) flat.features[i] = 0.0F;
  EXPECT_EQ(code_of(fit_reduced_rank(flat.moments(), {.rank = 1})), StatusCode::kInvalidArgument);
  EXPECT_TRUE(fit_reduced_rank(flat.moments(), {.rank = 1, .ridge = 1e-6}).has_value());
  Rows bad = rows;
  bad.targets[1][3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(code_of(fit_reduced_rank(bad.moments(), {.rank = 1})), StatusCode::kDataLoss);
  Rows zero = rows;
  std::ranges::fill(zero.targets[0], 0.0F);
  EXPECT_EQ(code_of(fit_reduced_rank(zero.moments(), {.rank = 1})), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kakeya::train
