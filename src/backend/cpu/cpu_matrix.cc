#include "backend/cpu/cpu_matrix.h"

#include <algorithm>
#include <cstring>

namespace kakeya::cpu {
namespace {

Index num_stacked(const Shape& shape) {
  return shape.size() == 3 ? shape[0] : 1;
}

template <typename T>
T read(const std::byte* from, Index index) {
  T value{};
  std::memcpy(&value, from + index * static_cast<Index>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

CpuMatrix::CpuMatrix(const Shape& shape, bool bf16, Compute compute, Buffer panels)
    : Matrix(num_stacked(shape), shape[shape.size() - 2], shape.back()),
      bf16_(bf16),
      compute_(compute),
      owned_(std::move(panels)),
      data_(owned_.data()) {}

CpuMatrix::CpuMatrix(const TensorView& table)
    : Matrix(num_stacked(table.shape), table.shape[table.shape.size() - 2], table.shape.back()),
      table_(table),
      compute_(Compute::kF32) {}

std::uint64_t CpuMatrix::packed_bytes(const Shape& shape, DType dtype) {
  const auto rows = static_cast<std::uint64_t>(round_up(shape[shape.size() - 2], kPanelRows));
  const auto columns = static_cast<std::uint64_t>(round_up(shape.back(), kColumnUnit));
  const std::uint64_t element = dtype == DType::kBF16 ? 2 : 4;
  return static_cast<std::uint64_t>(num_stacked(shape)) * rows * columns * element;
}

// A run of columns at a time: panels hold them one after another, and a run of a panel's rows fits
// the stack.
void CpuMatrix::load_decoded(const TensorView& weight, const Kernels& kernels, ThreadPool& pool) {
  const Index stack_rows = weight.stack_stride == 0 ? rows() : weight.stack_stride / cols();
  pool.parallel_for(num_matrices() * num_panels(), [&](Index item) {
    const Index first = item % num_panels() * kPanelRows;
    const Index count = std::min(kPanelRows, rows() - first);
    const Index row = item / num_panels() * stack_rows + first;
    std::byte* const panel = owned_.data() + item * panel_bytes();
    float values[kPanelRows * kQuantizedRun];
    BFloat16 rounded[kPanelRows * kQuantizedRun];
    for (Index begin = 0; begin < cols(); begin += kQuantizedRun) {
      const Index columns = std::min(kQuantizedRun, cols() - begin);
      for (Index r = 0; r < count; ++r) {
        copy_to_f32(weight, row + r, begin, columns, values + r * columns);
      }
      if (bf16_) std::transform(values, values + count * columns, rounded, to_bfloat16);
      kernels.pack_panels({.source = reinterpret_cast<const std::byte*>(
                               bf16_ ? static_cast<const void*>(rounded) : values),
                           .panels = panel + begin * kPanelRows * (bf16_ ? 2 : 4),
                           .rows = count,
                           .columns = columns,
                           .bf16 = bf16_},
                          0, 1);
    }
  });
}

void CpuMatrix::load(const TensorView& weight, const Kernels& kernels, ThreadPool& pool) {
  if (weight.is_quantized() || weight.dtype == DType::kF16) {
    return load_decoded(weight, kernels, pool);
  }
  const Index stride = weight.stack_stride == 0 ? rows() * cols() : weight.stack_stride;
  const Index source_bytes = stride * static_cast<Index>(dtype_bytes(weight.dtype));
  std::byte* const target = owned_.data();
  pool.parallel_for(num_matrices() * num_panels(), [&](Index item) {
    const Index matrix = item / num_panels();
    const Index panel = item % num_panels();
    const std::byte* source = weight.data + matrix * source_bytes;
    std::byte* packed = target + matrix * num_panels() * panel_bytes();
    kernels.pack_panels({.source = source,
                         .panels = packed,
                         .rows = rows(),
                         .columns = cols(),
                         .bf16 = weight.dtype == DType::kBF16},
                        panel, panel + 1);
  });
}

Arithmetic CpuMatrix::arithmetic() const {
  if (!bf16_) return Arithmetic::kF32;
  return compute_ == Compute::kFast ? Arithmetic::kBf16Fast : Arithmetic::kBf16Exact;
}

void CpuMatrix::gather(Index row, float scale, float* out) const {
  if (table_.data != nullptr) {
    for (Index begin = 0; begin < cols(); begin += kQuantizedRun) {
      copy_to_f32(table_, row, begin, std::min(kQuantizedRun, cols() - begin), out + begin);
    }
    for (Index d = 0; d < cols(); ++d) out[d] *= scale;
    return;
  }
  const std::byte* panel = data_ + row / kPanelRows * panel_bytes();
  const Index lane = row % kPanelRows;
  for (Index d = 0; d < cols(); ++d) {
    const float value = bf16_ ? to_float(read<BFloat16>(panel + (d / 2) * 64 + lane * 4, d % 2))
                              : read<float>(panel + d * 64, lane);
    out[d] = scale * value;
  }
}

}  // namespace kakeya::cpu
