// Rows of random numbers, as vectors and as matrices.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <random>
#include <vector>

namespace kakeya::train {

// Normally distributed numbers.
inline std::vector<float> random_rows(std::int64_t count, std::int64_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> rows(static_cast<std::size_t>(count * width));
  for (float& value : rows) value = normal(random);
  return rows;
}

// [count, width], row after row in memory.
inline Eigen::MatrixXd matrix_of(const std::vector<float>& rows, std::int64_t width) {
  using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  return Eigen::Map<const Floats>(rows.data(), std::ssize(rows) / width, width).cast<double>();
}

inline std::vector<float> rows_of(const Eigen::MatrixXd& matrix) {
  std::vector<float> rows;
  for (Eigen::Index t = 0; t < matrix.rows(); ++t) {
    for (Eigen::Index k = 0; k < matrix.cols(); ++k) {
      rows.push_back(static_cast<float>(matrix(t, k)));
    }
  }
  return rows;
}

}  // namespace kakeya::train
