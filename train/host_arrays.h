// Numbers between the host and MLX.
#pragma once

#include <mlx/mlx.h>

#include <cstdint>
#include <vector>

namespace kakeya::train {

namespace mx = ::mlx::core;

// Sizes, which MLX counts in int; drafters' and documents' fit.
inline int to_int(std::int64_t value) {
  return static_cast<int>(value);
}

// Runs what leads to the array; its numbers, row-major. Throws as MLX does.
inline std::vector<float> to_host(const mx::array& array) {
  mx::array plain = mx::contiguous(mx::astype(array, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

}  // namespace kakeya::train
