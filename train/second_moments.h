// Sums of products of features and of what is to be predicted from them, over rows that come in
// pieces: all that a linear fit needs, whatever the number of rows.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace kakeya::train {

// In double precision: f32 sums over a hundred thousand rows would lose the small directions that a
// fit divides by. One thread at a time.
class SecondMoments {
 public:
  // F features and targets of these widths. Takes 8 * F * (F + the sum of widths) bytes.
  SecondMoments(std::int64_t features, const std::vector<std::int64_t>& target_widths);

  // Adds rows: features [T, F] and for each target [T, W], all rows one after the other in memory.
  // How rows are divided between calls changes sums by their rounding alone. The same calls give
  // the same bits, whatever the number of threads.
  void add(std::span<const float> features,
           std::span<const std::vector<float>> targets,
           ThreadPool& pool);

  std::int64_t rows() const { return rows_; }
  std::int64_t num_features() const { return num_features_; }
  std::size_t num_targets() const { return widths_.size(); }
  std::int64_t width(std::size_t target) const { return widths_[target]; }

  // The moments of features with one another: [F, F], symmetric.
  Eigen::MatrixXd features() const;
  // The moments of features with a target: [F, W].
  Eigen::MatrixXd cross(std::size_t target) const;
  // The sum of a target's squares.
  double energy(std::size_t target) const { return energies_[target]; }
  // False once anything that was added is not finite, or too large to be summed.
  bool finite() const;

 private:
  std::int64_t num_features_;
  std::vector<std::int64_t> widths_;
  std::vector<std::int64_t> columns_;  // where each target begins in products_
  std::int64_t rows_ = 0;
  Eigen::MatrixXd products_;  // [F, F + sum of W]; of the first F columns the lower triangle counts
  std::vector<double> energies_;
};

}  // namespace kakeya::train
