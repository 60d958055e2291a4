#include "reduced_rank.h"

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"

namespace kakeya::train {
namespace {

bool is_fitted(const std::vector<bool>& fitted, std::size_t target) {
  return fitted.empty() || fitted[target];
}

// The factor that gives a target an energy of 1 a row.
double scale_of(const SecondMoments& moments, std::size_t target) {
  return std::sqrt(static_cast<double>(moments.rows()) / moments.energy(target));
}

// C: moments of features with all fitted targets side by side, scaled: [F, sum of W].
Eigen::MatrixXd scaled_cross(const SecondMoments& moments,
                             const std::vector<std::size_t>& targets) {
  std::int64_t width = 0;
  for (const std::size_t target : targets) width += moments.width(target);
  Eigen::MatrixXd cross(moments.num_features(), width);
  std::int64_t column = 0;
  for (const std::size_t target : targets) {
    cross.middleCols(column, moments.width(target)) =
        scale_of(moments, target) * moments.cross(target);
    column += moments.width(target);
  }
  return cross;
}

Status check_options(const SecondMoments& moments, const ReducedRankOptions& options) {
  if (!moments.finite()) {
    return data_loss("expected finite features, keys and values, got others in {} rows",
                     moments.rows());
  }
  std::vector<std::int64_t> widths;
  for (std::size_t i = 0; i < moments.num_targets(); ++i) widths.push_back(moments.width(i));
  const std::int64_t most = most_rank(moments.num_features(), widths, options.fitted);
  if (options.rank < 1 || options.rank > most) {
    return invalid_argument("rank: expected 1 to {}, got {}", most, options.rank);
  }
  if (!(options.ridge >= 0.0) || !std::isfinite(options.ridge)) {
    return invalid_argument("ridge: expected 0 or more, got {}", options.ridge);
  }
  return {};
}

// The features' moments with the ridge on their diagonal.
Eigen::MatrixXd regular_features(const SecondMoments& moments, const ReducedRankOptions& options) {
  Eigen::MatrixXd regular = moments.features();
  const double mean = regular.trace() / static_cast<double>(regular.rows());
  regular.diagonal().array() += options.ridge * mean;
  return regular;
}

// Decoders of targets that the code was not made for: the regression of the target on the code.
void decode_others(const SecondMoments& moments,
                   const Eigen::MatrixXd& regular,
                   const ReducedRankOptions& options,
                   ReducedRankFit& fit) {
  const Eigen::MatrixXd codes = fit.encoder * regular * fit.encoder.transpose();
  const Eigen::LDLT<Eigen::MatrixXd> solver(codes);
  for (std::size_t i = 0; i < moments.num_targets(); ++i) {
    if (is_fitted(options.fitted, i)) continue;
    fit.decoders[i] = solver.solve(fit.encoder * moments.cross(i)).transpose();
  }
}

}  // namespace

std::int64_t most_rank(std::int64_t num_features,
                       const std::vector<std::int64_t>& widths,
                       const std::vector<bool>& fitted) {
  std::int64_t width = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (is_fitted(fitted, i)) width += widths[i];
  }
  return std::min(num_features, width);
}

Result<ReducedRankFit> fit_reduced_rank(const SecondMoments& moments,
                                        const ReducedRankOptions& options) {
  KAKEYA_TRY(check_options(moments, options));
  std::vector<std::size_t> fitted;
  for (std::size_t i = 0; i < moments.num_targets(); ++i) {
    if (!is_fitted(options.fitted, i)) continue;
    if (moments.energy(i) == 0.0) {
      return data_loss("expected keys and values other than zero, got none in target {}", i);
    }
    fitted.push_back(i);
  }
  const Eigen::MatrixXd regular = regular_features(moments, options);
  const Eigen::LLT<Eigen::MatrixXd> factor(regular);
  if (factor.info() != Eigen::Success) {
    return invalid_argument(
        "ridge: expected more than {} for {} features of which some follow from others (or from "
        "{} rows)",
        options.ridge, moments.num_features(), moments.rows());
  }
  const Eigen::MatrixXd cross = scaled_cross(moments, fitted);
  const Eigen::MatrixXd full_rank = factor.solve(cross);  // B
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(cross.transpose() * full_rank);
  if (eigen.info() != Eigen::Success) {
    return data_loss("expected the eigenvectors of {} directions, but they do not converge",
                     cross.cols());
  }
  // Eigenvalues come in ascending order; the code has its strongest element first.
  const Eigen::MatrixXd kept = eigen.eigenvectors().rightCols(options.rank).rowwise().reverse();
  ReducedRankFit fit{.encoder = (full_rank * kept).transpose(),
                     .decoders = std::vector<Eigen::MatrixXd>(moments.num_targets())};
  std::int64_t row = 0;
  for (const std::size_t target : fitted) {
    fit.decoders[target] = kept.middleRows(row, moments.width(target)) / scale_of(moments, target);
    row += moments.width(target);
  }
  decode_others(moments, regular, options, fit);
  return fit;
}

void refit_others(const SecondMoments& moments,
                  const ReducedRankOptions& options,
                  ReducedRankFit& fit) {
  decode_others(moments, regular_features(moments, options), options, fit);
}

double explained_energy(const SecondMoments& moments,
                        const ReducedRankFit& fit,
                        std::size_t target) {
  const double energy = moments.energy(target);
  if (energy == 0.0) return 0.0;
  // |y - D E f|^2 = |y|^2 - 2 tr(D E f y^T) + tr(D E f f^T E^T D^T)
  const Eigen::MatrixXd& decoder = fit.decoders[target];
  const Eigen::MatrixXd crossed = fit.encoder * moments.cross(target);  // [R, W]
  const Eigen::MatrixXd codes = fit.encoder * moments.features() * fit.encoder.transpose();
  const double agreement = (crossed.transpose().array() * decoder.array()).sum();
  const double size = ((decoder * codes).array() * decoder.array()).sum();
  return (2.0 * agreement - size) / energy;
}

}  // namespace kakeya::train
