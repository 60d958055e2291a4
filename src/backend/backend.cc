#include "backend/backend.h"

#include "base/status.h"

namespace kakeya {

std::optional<IntegerFormat> fast_integers(const TensorView& weight, Compute compute) {
  return compute == Compute::kFast ? integer_format(weight) : std::nullopt;
}

DType loaded_dtype(const TensorView& weight, Compute compute) {
  if (!weight.is_quantized()) return weight.dtype;
  return compute == Compute::kFast ? DType::kBF16 : DType::kF32;
}

Result<std::unique_ptr<Matrix>> Backend::map_matrix(const TensorView& /*weight*/,
                                                    Compute /*compute*/,
                                                    std::span<const std::byte> /*packed*/,
                                                    MemoryBudget& /*budget*/) {
  return error(StatusCode::kUnimplemented, "the backend {} does not pack weights", name());
}

}  // namespace kakeya
