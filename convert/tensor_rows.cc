#include "convert/tensor_rows.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "formats/safetensors.h"

namespace kakeya {

namespace {

// Rows of one stacked matrix as they are seen; of a tensor with fewer axes all of them.
std::int64_t matrix_rows(const Shape& shape) {
  return shape.size() < 2 ? 1 : shape[shape.size() - 2];
}

}  // namespace

TensorRows::TensorRows(TensorView view) : shape_(view.shape), dtype_(view.dtype) {
  parts_.push_back(std::move(view));
}

TensorRows::TensorRows(std::vector<TensorView> parts)
    : parts_(std::move(parts)), shape_(parts_.front().shape), dtype_(parts_.front().dtype) {
  KAKEYA_CHECK(shape_.size() == 3);
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    KAKEYA_CHECK(parts_[i].shape.size() == 3 && parts_[i].shape[0] == shape_[0] &&
                 parts_[i].shape[2] == shape_[2]);
    shape_[1] += parts_[i].shape[1];
  }
}

std::int64_t TensorRows::rows() const {
  return columns() == 0 ? 0 : num_elements(shape_) / columns();
}

bool TensorRows::is_quantized() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const TensorView& part) { return part.is_quantized(); });
}

std::uint64_t TensorRows::stored_bytes() const {
  std::uint64_t bytes = 0;
  for (const TensorView& part : parts_) {
    bytes += part.bytes();
    if (const auto* groups = std::get_if<AffineGroups>(&part.quantization)) {
      const std::int64_t count = num_elements(part.shape) / groups->format.group_size;
      bytes += 2 * static_cast<std::uint64_t>(count) * dtype_bytes(groups->dtype);
    }
  }
  return bytes;
}

TensorRows::Place TensorRows::place_of(std::int64_t row) const {
  const std::int64_t all = matrix_rows(shape_);
  const std::int64_t matrix = row / all;
  std::int64_t within = row % all;
  const TensorView* part = parts_.data();
  while (within >= matrix_rows(part->shape)) within -= matrix_rows((part++)->shape);
  const std::int64_t stride =
      part->stack_stride == 0 ? matrix_rows(part->shape) : part->stack_stride / columns();
  return {part, matrix * stride + within};
}

void TensorRows::read(std::int64_t row, float* out) const {
  const Place place = place_of(row);
  copy_to_f32(*place.part, place.row, 0, columns(), out);
}

void TensorRows::narrow(DType dtype) {
  const auto holds = [&](float x) {
    const float held =
        dtype == DType::kF16 ? half_to_float(float_to_half(x)) : to_float(to_bfloat16(x));
    return held == x;
  };
  if (dtype != DType::kF16 && dtype != DType::kBF16) return;
  std::vector<float> row(static_cast<std::size_t>(columns()));
  for (std::int64_t i = 0; i < rows(); ++i) {
    read(i, row.data());
    if (!std::all_of(row.begin(), row.end(), holds)) return;
  }
  dtype_ = dtype;
}

Status TensorRows::check_finite() const {
  for (const TensorView& part : parts_) {
    if (auto status = kakeya::check_finite(part); !status) return status;
  }
  return {};
}

TensorRows TensorRows::slice(std::int64_t begin, std::int64_t count) const {
  KAKEYA_CHECK(parts_.size() == 1 && shape_.size() >= 2);
  TensorView part = parts_.front();
  if (part.stack_stride == 0) part.stack_stride = matrix_rows(part.shape) * columns();
  skip_rows(part, begin);
  part.shape[part.shape.size() - 2] = count;
  TensorRows result(std::move(part));
  result.dtype_ = dtype_;
  return result;
}

}  // namespace kakeya
