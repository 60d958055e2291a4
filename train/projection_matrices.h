// The matrices of a projection between its fit and its training by gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "projection_moments.h"
#include "reduced_rank.h"
#include "refinement.h"

namespace kakeya::train {

inline constexpr std::array kSides = {Side::kKeys, Side::kValues};

std::vector<float> row_major(const Eigen::MatrixXd& matrix);

// Fits of keys and of values to begin with where nothing is known: numbers uniform within
// 1 / sqrt(inputs) of 0, as the first project began. Decoders of layers that are not in `plan` are
// missing (refit_others()). The same seed gives the same numbers.
std::vector<ReducedRankFit> random_fits(const CapturePlan& plan,
                                        const ProjectionMoments& moments,
                                        std::int64_t rank,
                                        std::uint64_t seed);

// The part of the fits of keys and of values that is trained.
ProjectionMatrices trained_matrices(const CapturePlan& plan,
                                    const ProjectionMoments& moments,
                                    std::span<const ReducedRankFit> fits);

// Puts it back. `matrices` has the shapes that trained_matrices() gives.
void put_matrices(const CapturePlan& plan,
                  const ProjectionMoments& moments,
                  const ProjectionMatrices& matrices,
                  std::span<ReducedRankFit> fits);

}  // namespace kakeya::train
