// Weights as MLX arrays of f32.
#pragma once

#include <mlx/mlx.h>

#include <optional>
#include <utility>

#include "backend/backend.h"

namespace kakeya::mlx {

class MlxMatrix final : public Matrix {
 public:
  // `charged` is what the budget holds for the array; its memory is never touched.
  MlxMatrix(const Shape& shape, ::mlx::core::array values, Buffer charged) : MlxMatrix(shape) {
    values_ = std::move(values);
    charged_ = std::move(charged);
  }
  // A table whose rows stay where they are, for embed().
  explicit MlxMatrix(const TensorView& table) : MlxMatrix(table.shape) { table_ = table; }

  // [N, K] or [X, N, K]
  const ::mlx::core::array& values() const { return *values_; }
  // Where rows are read from host memory; null if they are in values().
  const TensorView* table() const { return table_ ? &*table_ : nullptr; }

  std::uint64_t bytes() const override {
    return static_cast<std::uint64_t>(rows() * (table_ ? table_->row_bytes() : cols() * 4));
  }

 private:
  explicit MlxMatrix(const Shape& shape)
      : Matrix(shape.size() == 3 ? shape[0] : 1, shape[shape.size() - 2], shape.back()) {}

  std::optional<::mlx::core::array> values_;
  std::optional<TensorView> table_;
  Buffer charged_;
};

}  // namespace kakeya::mlx
