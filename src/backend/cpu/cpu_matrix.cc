#include "backend/cpu/cpu_matrix.h"

#include <algorithm>
#include <cstring>

#include "tensor/integer_blocks.h"

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

float half_or_bf16(ScaleType type, std::uint16_t bits) {
  return type == ScaleType::kBf16 ? to_float(BFloat16{bits}) : half_to_float(bits);
}

float read_scale(const std::byte* scales, ScaleType type, Index lane) {
  if (type == ScaleType::kF32) return read<float>(scales, lane);
  return half_or_bf16(type, read<std::uint16_t>(scales, lane));
}

// `value` is exact in the type.
void write_scale(std::byte* scales, ScaleType type, Index lane, float value) {
  if (type == ScaleType::kF32) {
    std::memcpy(scales + lane * 4, &value, sizeof(value));
    return;
  }
  const std::uint16_t bits =
      type == ScaleType::kBf16 ? to_bfloat16(value).bits : float_to_half(value);
  std::memcpy(scales + lane * 2, &bits, sizeof(bits));
}

IntegerPanels integer_panels(const IntegerFormat& format) {
  return {.bits = format.bits,
          .zero = format.zero,
          .group = static_cast<int>(format.group),
          .has_minimum = format.has_minimum,
          .scale_type = format.scale_type == DType::kF16    ? ScaleType::kF16
                        : format.scale_type == DType::kBF16 ? ScaleType::kBf16
                                                            : ScaleType::kF32};
}

// Where column `k` of 32 has its code: the byte of a lane's run, and the shift within it.
struct CodePlace {
  Index byte;
  int shift;
};
CodePlace place_of_code(int bits, Index lane, Index k) {
  if (bits == 8) return {k / 4 * 64 + lane * 4 + k % 4, 0};
  return {k / 8 * 64 + lane * 4 + k % 4, k % 8 < 4 ? 0 : 4};
}

// Writes 32 columns of one output into a panel; `block` is their number in the row.
void write_block(
    const IntegerPanels& panels, const IntegerBlock& from, Index block, Index lane, std::byte* to) {
  std::byte* const unit = to + block / 2 * panels.unit_bytes();
  std::byte* const codes = unit + block % 2 * panels.code_bytes() / 2;
  // Eight columns at a time: two lines of bytes, or the halves of one.
  for (Index k = 0; k < kIntegerBlock; k += 8) {
    const std::uint8_t* from_codes = from.codes + k;
    std::byte* line = codes + (panels.bits == 8 ? k / 4 : k / 8) * 64 + lane * 4;
    if (panels.bits == 8) {
      std::memcpy(line, from_codes, 4);
      std::memcpy(line + 64, from_codes + 4, 4);
      continue;
    }
    for (Index j = 0; j < 4; ++j) {
      line[j] = static_cast<std::byte>(from_codes[j] | (from_codes[4 + j] << 4));
    }
  }
  const Index row_of_scales = kPanelRows * panels.scale_bytes();
  const Index parts = kIntegerBlock / panels.sum_columns();
  for (Index part = 0; part < parts; ++part) {
    const Index row = panels.group == kIntegerUnit ? 0 : block % 2 * parts + part;
    std::byte* const scales = unit + panels.code_bytes() + row * row_of_scales;
    write_scale(scales, panels.scale_type, lane, from.scales[part]);
    if (!panels.has_minimum) continue;
    write_scale(scales + panels.scales_bytes(), panels.scale_type, lane, from.minimums[part]);
  }
}

}  // namespace

PanelLayout::PanelLayout(const TensorView& weight, Compute compute)
    : matrices(num_stacked(weight.shape)),
      rows(weight.shape[weight.shape.size() - 2]),
      columns(weight.shape.back()) {
  const DType dtype = loaded_dtype(weight, compute);
  if (const auto format = fast_integers(weight, compute)) {
    arithmetic = Arithmetic::kInteger;
    integers = integer_panels(*format);
  } else if (dtype == DType::kBF16) {
    arithmetic = compute == Compute::kFast ? Arithmetic::kBf16Fast : Arithmetic::kBf16Exact;
  }
}

Index PanelLayout::padded_columns() const {
  return round_up(columns, arithmetic == Arithmetic::kInteger ? kIntegerUnit : kColumnUnit);
}

Index PanelLayout::panel_bytes() const {
  if (arithmetic == Arithmetic::kInteger) {
    return padded_columns() / kIntegerUnit * integers.unit_bytes();
  }
  return padded_columns() * kPanelRows * (arithmetic == Arithmetic::kF32 ? 4 : 2);
}

CpuMatrix::CpuMatrix(const PanelLayout& layout, Buffer panels)
    : Matrix(layout.matrices, layout.rows, layout.columns),
      layout_(layout),
      owned_(std::move(panels)),
      data_(owned_.data()) {}

CpuMatrix::CpuMatrix(const TensorView& table)
    : Matrix(num_stacked(table.shape), table.shape[table.shape.size() - 2], table.shape.back()),
      layout_(table, Compute::kF32),
      table_(table) {}

std::uint64_t CpuMatrix::packed_bytes(const PanelLayout& layout) {
  return static_cast<std::uint64_t>(layout.matrices * layout.num_panels() * layout.panel_bytes());
}

bool CpuMatrix::same_arithmetic(const CpuMatrix& other) const {
  return arithmetic() == other.arithmetic() &&
         (arithmetic() != Arithmetic::kInteger || integers() == other.integers());
}

// A run of columns at a time: panels hold them one after another, and a run of a panel's rows fits
// the stack.
void CpuMatrix::load_decoded(const TensorView& weight, const Kernels& kernels, ThreadPool& pool) {
  const Index stack_rows = weight.stack_stride == 0 ? rows() : weight.stack_stride / cols();
  const bool bf16 = arithmetic() != Arithmetic::kF32;
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
      if (bf16) std::transform(values, values + count * columns, rounded, to_bfloat16);
      kernels.pack_panels({.source = reinterpret_cast<const std::byte*>(
                               bf16 ? static_cast<const void*>(rounded) : values),
                           .panels = panel + begin * kPanelRows * (bf16 ? 2 : 4),
                           .rows = count,
                           .columns = columns,
                           .bf16 = bf16},
                          0, 1);
    }
  });
}

void CpuMatrix::load_integers(const TensorView& weight, ThreadPool& pool) {
  const Index stack_rows = weight.stack_stride == 0 ? rows() : weight.stack_stride / cols();
  pool.parallel_for(num_matrices() * num_panels(), [&](Index item) {
    const Index first = item % num_panels() * kPanelRows;
    const Index count = std::min(kPanelRows, rows() - first);
    const Index row = item / num_panels() * stack_rows + first;
    std::byte* const panel = owned_.data() + item * panel_bytes();
    std::memset(panel, 0, static_cast<std::size_t>(panel_bytes()));
    IntegerBlock block;
    for (Index lane = 0; lane < count; ++lane) {
      for (Index b = 0; b < cols() / kIntegerBlock; ++b) {
        read_integer_block(weight, row + lane, b, block);
        write_block(integers(), block, b, lane, panel);
      }
    }
  });
}

void CpuMatrix::load(const TensorView& weight, const Kernels& kernels, ThreadPool& pool) {
  if (arithmetic() == Arithmetic::kInteger) return load_integers(weight, pool);
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

float CpuMatrix::integer_element(const std::byte* panel, Index lane, Index column) const {
  const IntegerPanels& format = integers();
  const std::byte* unit = panel + column / kIntegerUnit * format.unit_bytes();
  const CodePlace place = place_of_code(format.bits, lane, column % kIntegerBlock);
  const Index half = column % kIntegerUnit / kIntegerBlock;
  const auto byte = static_cast<int>(unit[half * format.code_bytes() / 2 + place.byte]);
  const int code = format.bits == 8 ? byte : (byte >> place.shift) & 15;
  const std::byte* scales =
      unit + format.code_bytes() +
      column % kIntegerUnit / format.group * kPanelRows * format.scale_bytes();
  const float value =
      read_scale(scales, format.scale_type, lane) * static_cast<float>(code - format.zero);
  if (!format.has_minimum) return value;
  return value + read_scale(scales + format.scales_bytes(), format.scale_type, lane);
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
  const bool bf16 = arithmetic() != Arithmetic::kF32;
  for (Index d = 0; d < cols(); ++d) {
    if (arithmetic() == Arithmetic::kInteger) {
      out[d] = scale * integer_element(panel, lane, d);
      continue;
    }
    const float value = bf16 ? to_float(read<BFloat16>(panel + (d / 2) * 64 + lane * 4, d % 2))
                             : read<float>(panel + d * 64, lane);
    out[d] = scale * value;
  }
}

}  // namespace kakeya::cpu
