// The rows of a tensor of a checkpoint, in the order in which a converted one holds them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kakeya/status.h"
#include "tensor/tensor_view.h"

namespace kakeya {

// A tensor [..., N, K], or several [X, N_i, K] that make one [X, N_1 + N_2 + ..., K]: each stacked
// matrix has the rows of the first part, then those of the second. A part may be there as its X
// matrices [N_i, K]. Never owns.
class TensorRows {
 public:
  explicit TensorRows(TensorView view);
  // All have three axes; the first and the last are the same.
  explicit TensorRows(std::vector<TensorView> parts);
  // The matrices of each part, as many of each.
  static TensorRows of_matrices(const std::vector<std::span<const TensorView>>& parts);

  // Reads the rows of heads of so many in order (formats/stored_order.h), or the other way round.
  void reorder(std::int64_t head_rows) { order_.push_back({head_rows, false}); }
  void reorder_back(std::int64_t head_rows) { order_.push_back({head_rows, true}); }
  // Adds to each number, which is F32 then; what is taken away again was never added.
  void shift(float added);

  const Shape& shape() const { return shape_; }
  std::int64_t columns() const { return shape_.empty() ? 1 : shape_.back(); }
  std::int64_t rows() const;
  std::span<const TensorView> parts() const { return parts_; }

  // The type of the numbers; of quantised tensors F32.
  DType dtype() const { return dtype_; }
  // Takes F32 numbers for those of F16 or BF16, if that holds all of them exactly.
  void narrow(DType dtype);
  bool is_quantized() const;
  // Bytes as they are stored, scales and biases included.
  std::uint64_t stored_bytes() const;

  // The values of a row, columns() of them.
  void read(std::int64_t row, float* out) const;

  // Errors: kDataLoss naming the tensor and the first element that is NaN or infinite.
  Status check_finite() const;

  // Rows begin ... begin + count - 1 of each stacked matrix.
  TensorRows slice(std::int64_t begin, std::int64_t count) const;

 private:
  struct Place {
    const TensorView* part;
    std::int64_t row;  // as it lies in memory
  };
  struct Reordering {
    std::int64_t head_rows;
    bool back;
  };
  Place place_of(std::int64_t row) const;
  std::int64_t stored_index(std::int64_t row) const;

  std::vector<TensorView> parts_;  // those of the first matrix, then those of the second, if single
  bool single_matrices_ = false;
  std::int64_t begin_ = 0;  // of the rows of each matrix that are seen
  std::vector<Reordering> order_;
  float added_ = 0.0F;
  Shape shape_;
  DType dtype_;
};

}  // namespace kakeya
