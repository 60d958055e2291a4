// Weights as MLX arrays: f32, or codes that MLX multiplies as they are.
#pragma once

#include <mlx/mlx.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "backend/backend.h"

namespace kakeya::mlx {

// MLX's affine form, in which a code q stands for scale * q + bias; codes are a string of bits,
// lowest first, in words of 32 (tensor/affine_format.h).
struct AffineWeights {
  ::mlx::core::array codes;   // [..., N, K * bits / 32]
  ::mlx::core::array scales;  // [..., N, K / group_size], f32
  ::mlx::core::array biases;  // the same
  int group_size = 0;
  int bits = 0;
  // MLX has no groups of 16 columns. They are groups of 32 whose second half counts for nothing,
  // since rows are spread with zeros there; K is that of the spread rows.
  bool is_spread = false;

  std::uint64_t bytes() const { return codes.nbytes() + scales.nbytes() + biases.nbytes(); }
};

class MlxMatrix final : public Matrix {
 public:
  // Values of f32, [N, K] or [X, N, K]. `charged` is what the budget holds for the arrays; its
  // memory is never touched.
  MlxMatrix(const Shape& shape,
            const ::mlx::core::array& values,
            Buffer charged,
            ::mlx::core::Stream s)
      : MlxMatrix(shape) {
    values_ = values;
    transposed_ = ::mlx::core::swapaxes(values, -1, -2, s);
    charged_ = std::move(charged);
  }
  MlxMatrix(const Shape& shape, AffineWeights affine, Buffer charged) : MlxMatrix(shape) {
    affine_ = std::move(affine);
    charged_ = std::move(charged);
  }
  // A table whose rows stay where they are, for embed().
  explicit MlxMatrix(const TensorView& table) : MlxMatrix(table.shape) { table_ = table; }

  // Where rows are read from host memory; null if they are in arrays, which all that follows needs.
  const TensorView* table() const { return table_ ? &*table_ : nullptr; }

  bool is_quantized() const { return affine_.has_value(); }

  // x [T, K] times the transposed matrix: [T, N].
  ::mlx::core::array times(const ::mlx::core::array& x, ::mlx::core::Stream s) const;
  // Rows `rows` [T, B] of x [..., 1, K], counted as they lie, times those of the stacked matrices
  // that `chosen` [T, B] names, each transposed: [T, B, 1, N]. Both are of uint32.
  ::mlx::core::array times_chosen(const ::mlx::core::array& x,
                                  const ::mlx::core::array& rows,
                                  const ::mlx::core::array& chosen,
                                  ::mlx::core::Stream s) const;
  // Rows x [P, 1, K], the first times that of the matrices that chosen [P] names first, and so on:
  // [P, 1, N]. Numbers of `chosen` ascend, so that a GPU reads a matrix once for all its rows.
  ::mlx::core::array times_sorted(const ::mlx::core::array& x,
                                  const ::mlx::core::array& chosen,
                                  ::mlx::core::Stream s) const;
  // Rows `ids` [T] as f32 [T, K].
  ::mlx::core::array rows_of(const ::mlx::core::array& ids, ::mlx::core::Stream s) const;

  std::uint64_t bytes() const override;

 private:
  // Rows as the products take them.
  ::mlx::core::array spread(const ::mlx::core::array& x, ::mlx::core::Stream s) const;

  explicit MlxMatrix(const Shape& shape)
      : Matrix(shape.size() == 3 ? shape[0] : 1, shape[shape.size() - 2], shape.back()) {}

  // One of them.
  std::optional<::mlx::core::array> values_;
  std::optional<::mlx::core::array> transposed_;  // the same numbers, seen once for all passes
  std::optional<AffineWeights> affine_;
  std::optional<TensorView> table_;
  Buffer charged_;
};

// The bytes that a weight takes, without the budget's rounding.
std::uint64_t loaded_bytes(const TensorView& weight, Compute compute);

// A weight of finite numbers as arrays. With Compute::kFast, integers in groups of 16 to 128
// columns stay codes; all else becomes f32. What is charged is loaded_bytes(). May throw what MLX
// throws.
std::unique_ptr<MlxMatrix> load_weights(const TensorView& weight,
                                        Compute compute,
                                        Buffer charged,
                                        ::mlx::core::Stream s);

}  // namespace kakeya::mlx
