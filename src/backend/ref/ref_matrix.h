// Weights of the reference backend: kept as they were given, widened one element at a time.
#pragma once

#include <cstring>
#include <utility>

#include "backend/backend.h"

namespace kakeya::ref {

class RefMatrix final : public Matrix {
 public:
  // With `owned` empty the memory behind `data` must outlive the matrix.
  RefMatrix(const Shape& shape, DType dtype, Compute compute, const std::byte* data, Buffer owned)
      : Matrix(shape.size() == 3 ? shape[0] : 1, shape[shape.size() - 2], shape.back()),
        dtype_(dtype),
        compute_(compute),
        data_(data),
        owned_(std::move(owned)) {}

  // Element [x, n, k], widened exactly.
  float at(std::int64_t x, std::int64_t n, std::int64_t k) const {
    const auto index = static_cast<std::size_t>((x * rows() + n) * cols() + k);
    if (dtype_ == DType::kF32) {
      float value = 0.0F;
      std::memcpy(&value, data_ + index * sizeof(value), sizeof(value));
      return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, data_ + index * sizeof(bits), sizeof(bits));
    return dtype_ == DType::kBF16 ? to_float(BFloat16{bits}) : half_to_float(bits);
  }

  std::uint64_t bytes() const override {
    return static_cast<std::uint64_t>(rows() * cols()) * dtype_bytes(dtype_);
  }

  // Whether activations are rounded to bf16 before they meet these weights.
  bool rounds_activations() const { return compute_ == Compute::kFast && dtype_ == DType::kBF16; }

 private:
  DType dtype_;
  Compute compute_;
  const std::byte* data_;
  Buffer owned_;
};

}  // namespace kakeya::ref
