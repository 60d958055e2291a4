// Linear maps through a code of low rank: code = encoder f, target = decoder code.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "kakeya/status.h"
#include "second_moments.h"

namespace kakeya::train {

struct ReducedRankOptions {
  std::int64_t rank = 0;  // R
  // Added to the diagonal of the features' moments, as a share of its mean.
  double ridge = 0.0;
  // The targets that the code is made for; empty: all. Each counts alike, however large its
  // numbers: what is left of it is measured as a share of it.
  std::vector<bool> fitted = {};
};

struct ReducedRankFit {
  Eigen::MatrixXd encoder;                // [R, F]
  std::vector<Eigen::MatrixXd> decoders;  // [W, R], of every target
};

// The most that a rank can be for these targets.
std::int64_t most_rank(std::int64_t num_features,
                       const std::vector<std::int64_t>& widths,
                       const std::vector<bool>& fitted);

// Reduced-rank regression (Izenman 1975): of all maps of this rank the one that leaves least of the
// fitted targets, with the ridge's penalty on the map. With S the features' moments and C those of
// features and fitted targets, each scaled to the same energy, the map of full rank is
// B = (S + ridge)^-1 C, and the directions of the targets that are kept are the R largest
// eigenvectors of C^T B. Other targets get the best decoder for the code that there is then.
//
// Errors: kInvalidArgument for a rank that is not 1 to most_rank(), a ridge that is negative or too
// small for features that depend on one another; kDataLoss for moments that are not finite or of
// targets that are all zero.
Result<ReducedRankFit> fit_reduced_rank(const SecondMoments& moments,
                                        const ReducedRankOptions& options);

// Makes the decoders of the targets that are not fitted anew: the regression of each on the code
// that there is. What fit_reduced_rank() ends with. `options`: of that fit; moments that it took.
void refit_others(const SecondMoments& moments,
                  const ReducedRankOptions& options,
                  ReducedRankFit& fit);

// The share of a target's squares that the fit predicts, at most 1: of the rows it was made from or
// of others. 0 for a target without any.
double explained_energy(const SecondMoments& moments,
                        const ReducedRankFit& fit,
                        std::size_t target);

}  // namespace kakeya::train
