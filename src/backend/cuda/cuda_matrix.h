// Weights in a device's memory: row after row, those of integers strip after strip.
#pragma once

#include <optional>
#include <utility>

#include "backend/backend.h"
#include "backend/cuda/device/params.h"
#include "backend/cuda/driver.h"

namespace kakeya::cuda {

class CudaMatrix final : public Matrix {
 public:
  // `weight.data` is in `owned`.
  CudaMatrix(const Shape& shape, const device::Weight& weight, Buffer owned)
      : Matrix(shape.size() == 3 ? shape[0] : 1, weight.rows, weight.cols),
        weight_(weight),
        owned_(std::move(owned)) {}
  // A table whose rows stay in host memory, for embed().
  explicit CudaMatrix(const TensorView& table)
      : Matrix(1, table.shape[table.shape.size() - 2], table.shape.back()), table_(table) {}

  const device::Weight& weight() const { return weight_; }
  bool has_integers() const { return weight_.type == device::WeightType::kIntegers; }
  // Null where the rows are on the device.
  const TensorView* table() const { return table_ ? &*table_ : nullptr; }

  std::uint64_t bytes() const override;

 private:
  device::Weight weight_ = {};
  Buffer owned_;
  std::optional<TensorView> table_;
};

// Packs a weight on `threads` of the host, piece by piece, while the piece before is copied into
// the device's memory; charged to `budget`, held as fast_integers() or loaded_dtype() say. Nobody
// else may use the driver's staging() meanwhile. Errors: those of Backend::load_matrix();
// kUnimplemented for a row that does not fit there; those of the driver.
Result<std::unique_ptr<Matrix>> load_matrix(
    const TensorView& weight, Compute compute, Driver& driver, MemoryBudget& budget, int threads);
// The bytes that loading charges.
std::uint64_t matrix_bytes(const TensorView& weight, Compute compute);

}  // namespace kakeya::cuda
