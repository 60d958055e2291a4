#include "second_moments.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace kakeya::train {
namespace {

using FloatRows =
    Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

// Columns of one piece of work: enough for a product of matrices to be fast, and few enough that
// threads share evenly. Fixed, so that sums do not depend on the number of threads.
constexpr std::int64_t kColumns = 64;

FloatRows as_matrix(std::span<const float> rows, std::int64_t count, std::int64_t width) {
  KAKEYA_CHECK(std::ssize(rows) == count * width);
  return {rows.data(), count, width};
}

}  // namespace

SecondMoments::SecondMoments(std::int64_t features, const std::vector<std::int64_t>& target_widths)
    : num_features_(features), widths_(target_widths), energies_(target_widths.size(), 0.0) {
  std::int64_t column = features;
  for (const std::int64_t width : widths_) {
    columns_.push_back(column);
    column += width;
  }
  products_ = Eigen::MatrixXd::Zero(features, column);
}

void SecondMoments::add(std::span<const float> features,
                        std::span<const std::vector<float>> targets,
                        ThreadPool& pool) {
  KAKEYA_CHECK(targets.size() == widths_.size());
  const std::int64_t count = std::ssize(features) / num_features_;
  if (count == 0) return;
  Eigen::MatrixXd all(count, products_.cols());
  all.leftCols(num_features_) = as_matrix(features, count, num_features_).cast<double>();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    auto columns = all.middleCols(columns_[i], widths_[i]);
    columns = as_matrix(targets[i], count, widths_[i]).cast<double>();
    energies_[i] += columns.squaredNorm();
  }
  const std::int64_t pieces = (all.cols() + kColumns - 1) / kColumns;
  pool.parallel_for(pieces, [&](std::int64_t piece) {
    const std::int64_t first = piece * kColumns;
    const std::int64_t columns = std::min(kColumns, all.cols() - first);
    // Between features alone, the part above the diagonal follows from the part below.
    const std::int64_t top = first + columns <= num_features_ ? first : 0;
    const std::int64_t height = num_features_ - top;
    products_.block(top, first, height, columns).noalias() +=
        all.middleCols(top, height).transpose() * all.middleCols(first, columns);
  });
  rows_ += count;
}

Eigen::MatrixXd SecondMoments::features() const {
  return products_.leftCols(num_features_).selfadjointView<Eigen::Lower>();
}

Eigen::MatrixXd SecondMoments::cross(std::size_t target) const {
  return products_.middleCols(columns_[target], widths_[target]);
}

bool SecondMoments::finite() const {
  return products_.allFinite() &&
         std::ranges::all_of(energies_, [](double energy) { return std::isfinite(energy); });
}

}  // namespace kakeya::train
