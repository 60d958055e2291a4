#include "tensor/tensor_view.h"

#include <fmt/ranges.h>

#include <cstring>

#include "base/status.h"

namespace kakeya {
namespace {

// The bytes of the scales, or of the biases, of `columns` elements.
std::int64_t group_bytes(const AffineGroups& groups, std::int64_t columns) {
  return columns / groups.format.group_size * static_cast<std::int64_t>(dtype_bytes(groups.dtype));
}

}  // namespace

std::string shape_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::int64_t num_elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::int64_t TensorView::row_bytes() const {
  const std::int64_t columns = shape.empty() ? 1 : shape.back();
  if (const auto* format = std::get_if<QuantizedFormat>(&quantization)) {
    return quantized_row_bytes(*format, columns);
  }
  if (const auto* groups = std::get_if<AffineGroups>(&quantization)) {
    return affine_code_bytes(groups->format, columns);
  }
  return columns * static_cast<std::int64_t>(dtype_bytes(dtype));
}

std::size_t TensorView::bytes() const {
  const std::int64_t columns = shape.empty() ? 1 : shape.back();
  return columns == 0 ? 0 : static_cast<std::size_t>(num_elements(shape) / columns * row_bytes());
}

void skip_rows(TensorView& view, std::int64_t rows) {
  if (view.data == nullptr) return;
  view.data += rows * view.row_bytes();
  if (auto* groups = std::get_if<AffineGroups>(&view.quantization)) {
    const std::int64_t bytes = group_bytes(*groups, view.shape.back());
    groups->scales += rows * bytes;
    groups->biases += rows * bytes;
  }
}

void copy_to_f32(
    const TensorView& view, std::int64_t row, std::int64_t begin, std::int64_t count, float* out) {
  const std::byte* const data = view.data + row * view.row_bytes();
  if (const auto* format = std::get_if<QuantizedFormat>(&view.quantization)) {
    dequantize_row(*format, data + quantized_row_bytes(*format, begin), count, out);
  } else if (const auto* groups = std::get_if<AffineGroups>(&view.quantization)) {
    const std::int64_t first =
        row * group_bytes(*groups, view.shape.back()) + group_bytes(*groups, begin);
    dequantize_affine_row(groups->format,
                          {.codes = data + affine_code_bytes(groups->format, begin),
                           .scales = groups->scales + first,
                           .biases = groups->biases + first,
                           .dtype = groups->dtype},
                          count, out);
  } else if (view.dtype == DType::kF32) {
    std::memcpy(out, data + begin * 4, static_cast<std::size_t>(count) * sizeof(float));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, data + (begin + i) * 2, sizeof(bits));
      out[i] = view.dtype == DType::kBF16 ? to_float(BFloat16{bits}) : half_to_float(bits);
    }
  }
}

Result<std::vector<float>> to_f32(const TensorView& tensor) {
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    return invalid_argument("tensor {} must be F32, F16 or BF16 but is {}", tensor.name,
                            dtype_name(tensor.dtype));
  }
  const std::int64_t count = num_elements(tensor.shape);
  std::vector<float> values(static_cast<std::size_t>(count));
  const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  for (std::int64_t row = 0; row * columns < count; ++row) {
    copy_to_f32(tensor, row, 0, columns, values.data() + row * columns);
  }
  return values;
}

}  // namespace kakeya
