#include "convert/tensor_rows.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "formats/safetensors.h"
#include "formats/stored_order.h"

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

TensorRows TensorRows::of_matrices(const std::vector<std::span<const TensorView>>& parts) {
  KAKEYA_CHECK(!parts.empty() && !parts.front().empty());
  const TensorView& first = parts.front().front();
  TensorRows rows(first);
  rows.parts_.clear();
  rows.single_matrices_ = true;
  rows.shape_ = {std::ssize(parts.front()), 0, first.shape[1]};
  for (const auto& part : parts) rows.shape_[1] += part.front().shape[0];
  for (std::size_t matrix = 0; matrix < parts.front().size(); ++matrix) {
    for (const auto& part : parts) rows.parts_.push_back(part[matrix]);
  }
  return rows;
}

void TensorRows::shift(float added) {
  added_ += added;
  dtype_ = added_ == 0.0F ? parts_.front().dtype : DType::kF32;
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
  // A slice has its share.
  std::int64_t all = 0;
  for (const TensorView& part : parts_) all += num_elements(part.shape);
  const std::int64_t seen = num_elements(shape_);
  if (seen == all || all == 0) return bytes;
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * static_cast<double>(seen) /
                                    static_cast<double>(all));
}

// The row of which the numbers are those of `row`, counted over all stacked matrices.
std::int64_t TensorRows::stored_index(std::int64_t row) const {
  for (const Reordering& each : order_) {
    row = each.back ? unpaired_row(row, each.head_rows) : paired_row(row, each.head_rows);
  }
  return row;
}

TensorRows::Place TensorRows::place_of(std::int64_t row) const {
  const std::int64_t all = matrix_rows(shape_);
  const std::int64_t matrix = row / all;
  std::int64_t within = begin_ + row % all;
  const std::size_t parts =
      single_matrices_ ? parts_.size() / static_cast<std::size_t>(shape_[0]) : parts_.size();
  const TensorView* part =
      parts_.data() + (single_matrices_ ? static_cast<std::size_t>(matrix) * parts : 0);
  while (within >= matrix_rows(part->shape)) within -= matrix_rows((part++)->shape);
  if (single_matrices_) return {part, within};
  return {part, matrix * matrix_rows(part->shape) + within};
}

// A bias is one row, whose elements are the rows of heads.
void TensorRows::read(std::int64_t row, float* out) const {
  const bool elements = shape_.size() == 1;
  const Place place = place_of(elements ? row : stored_index(row));
  copy_to_f32(*place.part, place.row, 0, columns(), out);
  if (elements && !order_.empty()) {
    const std::vector<float> stored(out, out + columns());
    for (std::int64_t i = 0; i < columns(); ++i) {
      out[i] = stored[static_cast<std::size_t>(stored_index(i))];
    }
  }
  if (added_ == 0.0F) return;
  for (std::int64_t i = 0; i < columns(); ++i) out[i] += added_;
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
  KAKEYA_CHECK(shape_.size() >= 2 && order_.empty());
  TensorRows result = *this;
  result.begin_ += begin;
  result.shape_[shape_.size() - 2] = count;
  return result;
}

}  // namespace kakeya
