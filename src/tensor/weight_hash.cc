#include "tensor/weight_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/checksum.h"

namespace kakeya {
namespace {

// A tensor seen as stacked matrices. Fewer axes: one matrix, of one row.
struct StackedRows {
  explicit StackedRows(const TensorView& weight) {
    const Shape& shape = weight.shape;
    const std::size_t axes = shape.size();
    if (axes >= 2) rows = shape[axes - 2];
    for (std::size_t i = 0; i + 2 < axes; ++i) matrices *= shape[i];
    stride = weight.stack_stride == 0 ? rows : weight.stack_stride / shape.back();
    groups = (rows + kHashedRows - 1) / kHashedRows;
  }

  std::int64_t matrices = 1;
  std::int64_t rows = 1;
  std::int64_t stride = 1;  // rows, from one matrix to the next
  std::int64_t groups = 1;  // numbers of a matrix
};

std::string describe_coding(const TensorView& weight) {
  if (const auto* format = std::get_if<QuantizedFormat>(&weight.quantization)) {
    return std::string(quantized_format_name(*format));
  }
  if (const auto* groups = std::get_if<AffineGroups>(&weight.quantization)) {
    return fmt::format("affine {} bits of {} {}", groups->format.bits, groups->format.group_size,
                       dtype_name(groups->dtype));
  }
  return std::string(dtype_name(weight.dtype));
}

}  // namespace

std::int64_t num_row_hashes(const TensorView& weight) {
  const StackedRows stacked(weight);
  return stacked.matrices * stacked.groups;
}

std::uint64_t hash_rows(const TensorView& weight, std::int64_t index) {
  const StackedRows stacked(weight);
  const std::int64_t first = index % stacked.groups * kHashedRows;
  const std::int64_t count = std::min(kHashedRows, stacked.rows - first);
  const std::int64_t row = index / stacked.groups * stacked.stride + first;
  const auto of_rows = [&](const std::byte* data, std::int64_t bytes, std::uint64_t seed) {
    return checksum(std::span(data + row * bytes, static_cast<std::size_t>(count * bytes)), seed);
  };
  const std::uint64_t codes = of_rows(weight.data, weight.row_bytes(), 0);
  const auto* groups = std::get_if<AffineGroups>(&weight.quantization);
  if (groups == nullptr) return codes;
  const std::int64_t bytes = weight.shape.back() / groups->format.group_size *
                             static_cast<std::int64_t>(dtype_bytes(groups->dtype));
  return of_rows(groups->biases, bytes, of_rows(groups->scales, bytes, codes));
}

std::uint64_t hash_description(const TensorView& weight) {
  return checksum(
      fmt::format("{} {} {}", weight.name, shape_string(weight.shape), describe_coding(weight)));
}

std::uint64_t combine_row_hashes(const TensorView& weight, std::span<const std::uint64_t> rows) {
  return checksum(std::as_bytes(rows), hash_description(weight));
}

std::uint64_t hash_weight(const TensorView& weight) {
  std::vector<std::uint64_t> rows(static_cast<std::size_t>(num_row_hashes(weight)));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = hash_rows(weight, static_cast<std::int64_t>(i));
  }
  return combine_row_hashes(weight, rows);
}

std::uint64_t hash_weight(const TensorView& weight, ThreadPool& pool) {
  std::vector<std::uint64_t> rows(static_cast<std::size_t>(num_row_hashes(weight)));
  pool.parallel_for(std::ssize(rows), [&](std::int64_t i) {
    rows[static_cast<std::size_t>(i)] = hash_rows(weight, i);
  });
  return combine_row_hashes(weight, rows);
}

}  // namespace kakeya
