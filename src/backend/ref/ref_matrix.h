// Weights of the reference backend: kept as they were given, widened a row at a time.
#pragma once

#include <optional>
#include <utility>
#include <vector>

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

  // Makes a matrix of integers: IntegerBlocks, row after row.
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

  // Row [x, n, :], each element widened exactly (with a minimum: rounded once).
  std::vector<float> row(std::int64_t x, std::int64_t n) const {
    std::vector<float> widened(static_cast<std::size_t>(cols()));
    if (!integers_) {
      copy_to_f32(weight_, x * rows() + n, 0, cols(), widened.data());
      return widened;
    }
    for (std::int64_t k = 0; k < cols(); ++k) {
      const IntegerBlock& block = blocks(x, n)[k / kIntegerBlock];
      const std::int64_t column = k % kIntegerBlock;
      const std::int64_t half = column / kSmallestIntegerGroup;
      const auto code = static_cast<float>(block.codes[column] - integers_->zero);
      widened[static_cast<std::size_t>(k)] = block.scales[half] * code + block.minimums[half];
    }
    return widened;
  }

  std::uint64_t bytes() const override {
    if (integers_) {
      return static_cast<std::uint64_t>(rows() * cols() / kIntegerBlock) * sizeof(IntegerBlock);
    }
    return static_cast<std::uint64_t>(rows() * weight_.row_bytes());
  }

  // True if activations are rounded to bf16 before they meet these weights.
  bool rounds_activations() const {
    return compute_ == Compute::kFast && weight_.dtype == DType::kBF16;
  }

 private:
  TensorView weight_;
  Compute compute_;
  std::optional<IntegerFormat> integers_;
  Buffer owned_;
};

}  // namespace kakeya::ref
