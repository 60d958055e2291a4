// A named, typed, row-major block of memory that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kakeya/status.h"
#include "tensor/affine_format.h"
#include "tensor/dtype.h"
#include "tensor/quantized_format.h"

namespace kakeya {

// Sizes, slowest axis first. An empty shape is a scalar.
using Shape = std::vector<std::int64_t>;

// "[262144, 2816]"
std::string shape_string(const Shape& shape);

// Product of the sizes; 1 for a scalar. The shape must have been validated (no overflow).
std::int64_t num_elements(const Shape& shape);

// Scales and biases of a tensor in an affine format, whose codes are the view's data.
struct AffineGroups {
  AffineFormat format = {};
  DType dtype = DType::kBF16;         // of scales and biases: F32, F16 or BF16
  const std::byte* scales = nullptr;  // [..., K / group_size]
  const std::byte* biases = nullptr;  // the same shape
};

// How the values of a tensor are coded, if they are; rows, those of the last axis, are whole blocks
// or groups.
using Quantization = std::variant<std::monostate, QuantizedFormat, AffineGroups>;

// Quantised rows can be read from any multiple of this many elements on: whole blocks and groups.
inline constexpr std::int64_t kQuantizedRun = 256;

// Never owns. Elements are contiguous, last axis fastest; `data` may be unaligned.
struct TensorView {
  const std::byte* data = nullptr;
  Shape shape = {};
  DType dtype = DType::kF32;  // of quantised tensors F32, what their values are
  std::string name = {};      // the checkpoint's name, for messages
  // Elements from one stacked matrix [N, K] to the next in a tensor [X, N, K]; 0: contiguous. Lets
  // the gate and up halves of a fused expert tensor be seen without a copy.
  std::int64_t stack_stride = 0;
  Quantization quantization = {};

  bool is_quantized() const { return !std::holds_alternative<std::monostate>(quantization); }
  // The bytes of one row of `data`.
  std::int64_t row_bytes() const;
  // The bytes of `data`.
  std::size_t bytes() const;
};

// Moves the view's beginning so many rows on, counted as they lie in memory.
void skip_rows(TensorView& view, std::int64_t rows);

// Copies `count` elements of a row, from number `begin` on, to f32; rows are counted as they lie in
// memory. The tensor is floating point (F32, F16, BF16) or quantised; then `begin` is a multiple of
// kQuantizedRun, and so is `count` unless it reaches the row's end.
void copy_to_f32(
    const TensorView& view, std::int64_t row, std::int64_t begin, std::int64_t count, float* out);

// Copies a floating point (F32, F16, BF16) or quantised tensor to f32.
// Errors: kInvalidArgument for another dtype.
Result<std::vector<float>> to_f32(const TensorView& tensor);

}  // namespace kakeya
