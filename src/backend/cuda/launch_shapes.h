// The shapes of launches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/cuda_matrix.h"
#include "backend/cuda/device/rows.h"
#include "backend/cuda/driver.h"

namespace kakeya::cuda {

inline const CudaMatrix& as_cuda(const Matrix& matrix) {
  return static_cast<const CudaMatrix&>(matrix);
}

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// A thread an element of `width`, for each of the rows.
inline LaunchShape element_shape(std::int64_t width, std::int64_t rows) {
  return {ceil_div(width, device::kElementThreads), rows, device::kElementThreads, 0};
}

// A warp a unit of what is to be made.
inline LaunchShape warp_shape(std::int64_t units, std::int64_t blocks_y) {
  return {ceil_div(units, device::kProductWarps), blocks_y, device::kProductWarps * dev::kWarp, 0};
}

// The most tiles of so many pairs that there can be: all but one of each expert are full.
inline std::int64_t count_expert_tiles(std::int64_t pairs,
                                       std::int64_t num_experts,
                                       std::int64_t tile_pairs = device::kGroupedRows) {
  return pairs / tile_pairs + std::min(pairs, num_experts);
}

}  // namespace kakeya::cuda
