#include "tensor/tensor_view.h"

#include <fmt/ranges.h>

#include <cstring>

#include "base/status.h"

namespace kakeya {

std::string shape_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::int64_t num_elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::size_t TensorView::bytes() const {
  return static_cast<std::size_t>(num_elements(shape)) * dtype_bytes(dtype);
}

Result<std::vector<float>> to_f32(const TensorView& tensor) {
  const auto count = static_cast<std::size_t>(num_elements(tensor.shape));
  std::vector<float> values(count);
  if (tensor.dtype == DType::kF32) {
    if (count > 0) std::memcpy(values.data(), tensor.data, count * sizeof(float));
    return values;
  }
  if (tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    return invalid_argument("tensor {} must be F32, F16 or BF16 but is {}", tensor.name,
                            dtype_name(tensor.dtype));
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, tensor.data + i * sizeof(bits), sizeof(bits));
    values[i] = tensor.dtype == DType::kBF16 ? to_float(BFloat16{bits}) : half_to_float(bits);
  }
  return values;
}

}  // namespace kakeya
