// How far decoded numbers are from the ones that were encoded.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace kakeya {

// The root of the mean squared error, relative to that of the numbers.
inline double relative_error(const std::vector<float>& x, const std::vector<float>& values) {
  double error = 0.0;
  double power = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(values[i]) - x[i], 2);
    power += std::pow(static_cast<double>(x[i]), 2);
  }
  return std::sqrt(error / power);
}

}  // namespace kakeya
