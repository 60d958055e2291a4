#include "projection_matrices.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>

#include "base/random.h"

namespace kakeya::train {
namespace {

constexpr const char* kSideNames[] = {"k", "v"};

Eigen::MatrixXd random_matrix(std::int64_t rows, std::int64_t inputs, SequenceRng& rng) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
  return Eigen::MatrixXd::NullaryExpr(rows, inputs, [&] { return bound * rng.symmetric(); });
}

// Calls f(number in ProjectionMatrices, name, matrix of the fits) for each of them, in that order
// of numbers.
template <typename Fits, typename F>
void for_each_matrix(const CapturePlan& plan,
                     const ProjectionMoments& moments,
                     Fits fits,
                     const F& f) {
  for (std::size_t side = 0; side < kSides.size(); ++side) {
    f(side, fmt::format("encoder_{}.weight", kSideNames[side]), fits[side].encoder);
  }
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const auto index = static_cast<std::size_t>(plan.layers[i].cache_index);
    for (std::size_t side = 0; side < kSides.size(); ++side) {
      f(2 + 2 * i + side,
        fmt::format("decoders_{}.{}.weight", kSideNames[side], plan.layers[i].layer),
        fits[side].decoders[moments.target(kSides[side], index)]);
    }
  }
}

}  // namespace

std::vector<float> row_major(const Eigen::MatrixXd& matrix) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(matrix.size()));
  for (Eigen::Index row = 0; row < matrix.rows(); ++row) {
    for (Eigen::Index column = 0; column < matrix.cols(); ++column) {
      values.push_back(static_cast<float>(matrix(row, column)));
    }
  }
  return values;
}

std::vector<ReducedRankFit> random_fits(const CapturePlan& plan,
                                        const ProjectionMoments& moments,
                                        std::int64_t rank,
                                        std::uint64_t seed) {
  SequenceRng rng(seed ^ 0x6b616b657961ULL);
  std::vector<ReducedRankFit> fits;
  for (const Side side : kSides) {
    ReducedRankFit fit{.encoder = random_matrix(rank, plan.num_features, rng),
                       .decoders = std::vector<Eigen::MatrixXd>(moments.of(side).num_targets())};
    for (const CapturePlan::Layer& layer : plan.layers) {
      fit.decoders[moments.target(side, static_cast<std::size_t>(layer.cache_index))] =
          random_matrix(layer.width(), rank, rng);
    }
    fits.push_back(std::move(fit));
  }
  return fits;
}

ProjectionMatrices trained_matrices(const CapturePlan& plan,
                                    const ProjectionMoments& moments,
                                    std::span<const ReducedRankFit> fits) {
  ProjectionMatrices matrices;
  for_each_matrix(plan, moments, fits,
                  [&](std::size_t /*index*/, const std::string& name, const Eigen::MatrixXd& of) {
                    matrices.push_back(
                        {.name = name, .shape = {of.rows(), of.cols()}, .values = row_major(of)});
                  });
  return matrices;
}

void put_matrices(const CapturePlan& plan,
                  const ProjectionMoments& moments,
                  const ProjectionMatrices& matrices,
                  std::span<ReducedRankFit> fits) {
  using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  for_each_matrix(plan, moments, fits,
                  [&](std::size_t index, const std::string& /*name*/, Eigen::MatrixXd& of) {
                    const DrafterTensor& matrix = matrices[index];
                    of = Eigen::Map<const Floats>(matrix.values.data(), matrix.shape[0],
                                                  matrix.shape[1])
                             .cast<double>();
                  });
}

}  // namespace kakeya::train
