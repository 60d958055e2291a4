// Weights of the reference backend: kept as they were given, widened one element at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "backend/backend.h"

namespace kakeya::ref {

class RefMatrix final : public Matrix {
 public:
  // With `owned` empty the memory behind `weight`, which is contiguous, must outlive the matrix.
  RefMatrix(const TensorView& weight, Compute compute, Buffer owned)
      : Matrix(weight.shape.size() == 3 ? weight.shape[0] : 1,
               weight.shape[weight.shape.size() - 2],
               weight.shape.back()),
        weight_(weight),
        compute_(compute),
        owned_(std::move(owned)) {}

  // Of integers: IntegerBlocks, row after row.
  RefMatrix(const Shape& shape, const IntegerFormat& format, Buffer blocks)
      : Matrix(shape.size() == 3 ? shape[0] : 1, shape[shape.size() - 2], shape.back()),
        compute_(Compute::kFast),
        integers_(format),
        owned_(std::move(blocks)) {}

  // Products go by fast_integers() of the seam.
  const std::optional<IntegerFormat>& integers() const { return integers_; }
  // The blocks of row [x, n].
  const IntegerBlock* blocks(std::int64_t x, std::int64_t n) const {
    return owned_.as<IntegerBlock>() + (x * rows() + n) * (cols() / kIntegerBlock);
  }

  // Element [x, n, k], widened exactly (with a minimum: rounded once).
  float at(std::int64_t x, std::int64_t n, std::int64_t k) const {
    if (integers_) {
      const IntegerBlock& block = blocks(x, n)[k / kIntegerBlock];
      const std::int64_t column = k % kIntegerBlock;
      const std::int64_t half = column / kSmallestIntegerGroup;
      return block.scales[half] * static_cast<float>(block.codes[column] - integers_->zero) +
             block.minimums[half];
    }
    if (weight_.is_quantized()) return decoded(x * rows() + n, k);
    const auto index = static_cast<std::size_t>((x * rows() + n) * cols() + k);
    if (weight_.dtype == DType::kF32) {
      float value = 0.0F;
      std::memcpy(&value, weight_.data + index * sizeof(value), sizeof(value));
      return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, weight_.data + index * sizeof(bits), sizeof(bits));
    return weight_.dtype == DType::kBF16 ? to_float(BFloat16{bits}) : half_to_float(bits);
  }

  std::uint64_t bytes() const override {
    if (integers_) {
      return static_cast<std::uint64_t>(rows() * cols() / kIntegerBlock) * sizeof(IntegerBlock);
    }
    return static_cast<std::uint64_t>(rows() * weight_.row_bytes());
  }

  // Whether activations are rounded to bf16 before they meet these weights.
  bool rounds_activations() const {
    return compute_ == Compute::kFast && weight_.dtype == DType::kBF16;
  }

 private:
  float decoded(std::int64_t row, std::int64_t k) const {
    float run[kQuantizedRun];
    const std::int64_t begin = k / kQuantizedRun * kQuantizedRun;
    copy_to_f32(weight_, row, begin, std::min(kQuantizedRun, cols() - begin), run);
    return run[k - begin];
  }

  TensorView weight_;
  Compute compute_;
  std::optional<IntegerFormat> integers_;
  Buffer owned_;
};

}  // namespace kakeya::ref
