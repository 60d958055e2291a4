// A named, typed, row-major block of memory that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/status.h"
#include "tensor/dtype.h"

namespace kakeya {

// Sizes, slowest axis first. An empty shape is a scalar.
using Shape = std::vector<std::int64_t>;

// "[262144, 2816]"
std::string shape_string(const Shape& shape);

// Product of the sizes; 1 for a scalar. The shape must have been validated (no overflow).
std::int64_t num_elements(const Shape& shape);

// Never owns. Elements are contiguous, last axis fastest; `data` may be unaligned.
struct TensorView {
  const std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::kF32;
  std::string name;  // the checkpoint's name, for messages
  // Elements from one stacked matrix [N, K] to the next in a tensor [X, N, K]; 0: contiguous. Lets
  // the gate and up halves of a fused expert tensor be seen without a copy.
  std::int64_t stack_stride = 0;

  std::size_t bytes() const;
};

// Copies a floating point tensor (F32, F16, BF16) to f32.
// Errors: kInvalidArgument for another dtype.
Result<std::vector<float>> to_f32(const TensorView& tensor);

}  // namespace kakeya
