// The rows of a tensor of a checkpoint, in the order in which a converted one holds them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kakeya/status.h"
#include "tensor/tensor_view.h"

namespace kakeya {

// A tensor [..., N, K], or several [X, N_i, K] that make one [X, N_1 + N_2 + ..., K]: each stacked
// matrix has the rows of the first part, then those of the second. Never owns.
class TensorRows {
 public:
  explicit TensorRows(TensorView view);
  // All have three axes; the first and the last are the same.
  explicit TensorRows(std::vector<TensorView> parts);

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

  // Rows begin ... begin + count - 1 of each stacked matrix. There must be one part.
  TensorRows slice(std::int64_t begin, std::int64_t count) const;

 private:
  struct Place {
    const TensorView* part;
    std::int64_t row;  // as it lies in memory
  };
  Place place_of(std::int64_t row) const;

  std::vector<TensorView> parts_;
  Shape shape_;
  DType dtype_;
};

}  // namespace kakeya
