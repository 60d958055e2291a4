// The rows of stacked matrices, one after the other.
#pragma once

#include <cstdint>

#include "tensor/tensor_view.h"

namespace kakeya {

// Rows of all stacked matrices.
inline std::int64_t num_rows(const TensorView& weight) {
  return num_elements(weight.shape) / weight.shape.back();
}

// Where one of these rows lies, counted as rows lie in memory.
inline std::int64_t source_row(const TensorView& weight, std::int64_t row) {
  const std::int64_t rows = weight.shape[weight.shape.size() - 2];
  const std::int64_t stride =
      weight.stack_stride == 0 ? rows : weight.stack_stride / weight.shape.back();
  return row / rows * stride + row % rows;
}

}  // namespace kakeya
