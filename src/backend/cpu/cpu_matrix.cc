#include "backend/cpu/cpu_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "tensor/finite.h"
#include "tensor/integer_blocks.h"
#include "tensor/weight_hash.h"

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

ScaleType scale_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return ScaleType::kF16;
    case DType::kBF16:
      return ScaleType::kBf16;
    case DType::kI8:
      return ScaleType::kCode;
    default:
      return ScaleType::kF32;
  }
}

IntegerPanels integer_panels(const IntegerFormat& format) {
  return {.bits = format.levels != nullptr ? 4 : format.bits,
          .zero = format.zero,
          .group = static_cast<int>(format.group),
          .has_minimum = format.has_minimum,
          .scale_type = scale_type(format.scale_type),
          .levels = format.levels != nullptr ? format.levels->data() : nullptr};
}

constexpr std::uint32_t kNibbles = 0x0f0f0f0f;

// Where a run has the bits above the fourth of the codes of four columns.
struct HighBits {
  HighBits(int bits, int quad)
      : line(quad * (bits - 4) / 8),
        shift(quad * (bits - 4) % 8),
        mask(bits == 5 ? 0x01010101 : 0x03030303) {}

  int line;
  int shift;
  std::uint32_t mask;  // of the bits of four codes, once shifted
};

using Line = std::array<std::uint32_t, kPanelRows>;

// Blocks of a panel's rows that are read, and then written, at a time; those of rows that are not
// there stay zero.
struct BlocksOfOutputs {
  static constexpr Index kBlocks = kScaleFactorGroup / kIntegerBlock;

  IntegerBlock blocks[kPanelRows][kBlocks] = {};

  std::span<IntegerBlock> of(Index lane, Index count) {
    return {blocks[lane], static_cast<std::size_t>(count)};
  }
};

// The number of each level in its table, by the code that it is.
using LevelNumbers = std::array<std::uint8_t, 256>;
LevelNumbers number_levels(const std::uint8_t* levels) {
  LevelNumbers numbers{};
  for (std::uint8_t i = 0; levels != nullptr && i < 16; ++i) numbers[levels[i]] = i;
  return numbers;
}

// Puts the numbers of codes in their place.
void number_codes(const LevelNumbers& numbers, std::span<IntegerBlock> blocks) {
  for (IntegerBlock& block : blocks) {
    for (std::uint8_t& code : block.codes) code = numbers[code];
  }
}

// The codes of all outputs in 32 columns. Words are copied for many outputs before the first is
// looked at: reading several at once what was just written singly would wait for each.
void write_codes(int bits, const BlocksOfOutputs& from, Index b, std::byte* run) {
  constexpr int kQuads = 8;
  Line words[kQuads];
  for (std::size_t lane = 0; lane < kPanelRows; ++lane) {
    const std::uint8_t* codes = from.blocks[lane][b].codes;
    for (int quad = 0; quad < kQuads; ++quad) std::memcpy(&words[quad][lane], codes + 4 * quad, 4);
  }
  if (bits == 8) {
    std::memcpy(run, words, sizeof(words));
    return;
  }
  Line lines[6];
  for (int low = 0; low < 4; ++low) {
    for (std::size_t i = 0; i < kPanelRows; ++i) {
      lines[low][i] = (words[2 * low][i] & kNibbles) | (words[2 * low + 1][i] & kNibbles) << 4;
    }
  }
  for (int high = 0; high < bits - 4; ++high) lines[4 + high] = {};
  for (int quad = 0; quad < kQuads && bits > 4; ++quad) {
    const HighBits at(bits, quad);
    Line& line = lines[4 + at.line];
    for (std::size_t i = 0; i < kPanelRows; ++i) {
      line[i] |= (words[quad][i] >> 4 & at.mask) << at.shift;
    }
  }
  std::memcpy(run, lines, bits * sizeof(Line));
}

void read_codes(const IntegerPanels& panels,
                const std::byte* run,
                Index lane,
                std::uint8_t* codes) {
  const int bits = panels.bits;
  const auto word_of = [&](Index line) {
    return read<std::uint32_t>(run, line * kPanelRows + lane);
  };
  for (int quad = 0; quad < 8; ++quad) {
    std::uint32_t word = bits == 8 ? word_of(quad) : word_of(quad / 2) >> (quad % 2 * 4) & kNibbles;
    if (bits == 5 || bits == 6) {
      const HighBits at(bits, quad);
      word |= (word_of(4 + at.line) >> at.shift & at.mask) << 4;
    }
    std::memcpy(codes + 4 * quad, &word, sizeof(word));
  }
  if (panels.levels == nullptr) return;
  for (Index k = 0; k < kIntegerBlock; ++k) codes[k] = panels.levels[codes[k]];
}

// 32 columns of a panel: their unit, and their number in it.
struct BlockPlace {
  Index unit;  // bytes from the panel's beginning
  Index run;
};
BlockPlace place_of_block(const IntegerPanels& panels, Index block) {
  const Index runs = panels.unit_columns() / kIntegerBlock;
  return {block / runs * panels.unit_bytes(), block % runs};
}

// Where a unit has the scales of a column, for all outputs.
Index scales_at(const IntegerPanels& panels, Index column) {
  return panels.code_bytes() + column / panels.group * kPanelRows * panels.scale_bytes();
}

// number(block) of each output's block `b`.
template <typename Number>
void write_numbers(
    ScaleType type, const BlocksOfOutputs& from, Index b, std::byte* to, Number&& number) {
  for (Index lane = 0; lane < kPanelRows; ++lane) {
    write_scale(to, type, lane, number(from.blocks[lane][b]));
  }
}

// Writes block number `block` of all rows of the panel `to`: number `b` of those that were read.
void write_blocks(
    const IntegerPanels& panels, const BlocksOfOutputs& from, Index b, Index block, std::byte* to) {
  const BlockPlace place = place_of_block(panels, block);
  std::byte* const unit = to + place.unit;
  write_codes(panels.bits, from, b, unit + place.run * panels.run_bytes());
  for (Index part = 0; part < kIntegerBlock / panels.sum_columns(); ++part) {
    const Index column = place.run * kIntegerBlock + part * panels.sum_columns();
    std::byte* const scales = unit + scales_at(panels, column);
    std::byte* const minimums = scales + panels.scales_bytes();
    if (panels.has_factors()) {
      for (Index lane = 0; lane < kPanelRows; ++lane) {
        scales[lane] = static_cast<std::byte>(from.blocks[lane][b].scale_codes[part]);
        if (!panels.has_minimum) continue;
        minimums[lane] = static_cast<std::byte>(from.blocks[lane][b].minimum_codes[part]);
      }
      continue;
    }
    write_numbers(panels.scale_type, from, b, scales,
                  [part](const IntegerBlock& of) { return of.scales[part]; });
    if (!panels.has_minimum) continue;
    write_numbers(panels.scale_type, from, b, minimums,
                  [part](const IntegerBlock& of) { return of.minimums[part]; });
  }
  // Once a unit.
  if (!panels.has_factors() || place.run != 0) return;
  std::byte* const factors = unit + panels.factors_at();
  write_numbers(ScaleType::kF16, from, b, factors,
                [](const IntegerBlock& of) { return of.scale_factor; });
  if (!panels.has_minimum) return;
  write_numbers(ScaleType::kF16, from, b, factors + panels.factor_bytes(),
                [](const IntegerBlock& of) { return of.minimum_factor; });
}

// The scale, or the minimum, of one output; `minimums` is 1 for the latter and else 0.
float read_scale(
    const IntegerPanels& panels, const std::byte* unit, Index column, Index lane, int minimums) {
  const std::byte* scales = unit + scales_at(panels, column) + minimums * panels.scales_bytes();
  if (!panels.has_factors()) return read_scale(scales, panels.scale_type, lane);
  const std::byte* factors = unit + panels.factors_at() + minimums * panels.factor_bytes();
  return static_cast<float>(read<std::int8_t>(scales, lane)) *
         read_scale(factors, ScaleType::kF16, lane);
}

// The numbers of a block: what write_block() wrote.
void read_block(
    const IntegerPanels& panels, const std::byte* from, Index block, Index lane, float* out) {
  const BlockPlace place = place_of_block(panels, block);
  const std::byte* unit = from + place.unit;
  std::uint8_t codes[kIntegerBlock];
  read_codes(panels, unit + place.run * panels.run_bytes(), lane, codes);
  for (Index begin = 0; begin < kIntegerBlock; begin += panels.sum_columns()) {
    const Index column = place.run * kIntegerBlock + begin;
    const float scale = read_scale(panels, unit, column, lane, 0);
    const float minimum = panels.has_minimum ? read_scale(panels, unit, column, lane, 1) : 0.0F;
    for (Index k = begin; k < begin + panels.sum_columns(); ++k) {
      out[k] = scale * static_cast<float>(codes[k] - panels.zero);
      if (panels.has_minimum) out[k] += minimum;
    }
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
  return round_up(columns,
                  arithmetic == Arithmetic::kInteger ? integers.unit_columns() : kColumnUnit);
}

Index PanelLayout::panel_bytes() const {
  if (arithmetic == Arithmetic::kInteger) {
    return padded_columns() / integers.unit_columns() * integers.unit_bytes();
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
void CpuMatrix::pack_decoded(const TensorView& weight,
                             Index row,
                             Index count,
                             const Kernels& kernels,
                             std::byte* panel) const {
  const bool bf16 = arithmetic() != Arithmetic::kF32;
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
}

void CpuMatrix::pack_integers(const TensorView& weight,
                              Index row,
                              Index count,
                              std::byte* panel) const {
  const Index num_blocks = cols() / kIntegerBlock;
  std::memset(panel, 0, static_cast<std::size_t>(panel_bytes()));
  const LevelNumbers numbers = number_levels(integers().levels);
  BlocksOfOutputs blocks;
  for (Index begin = 0; begin < num_blocks; begin += BlocksOfOutputs::kBlocks) {
    const Index size = std::min(BlocksOfOutputs::kBlocks, num_blocks - begin);
    for (Index lane = 0; lane < count; ++lane) {
      const std::span<IntegerBlock> of_lane = blocks.of(lane, size);
      read_integer_blocks(weight, row + lane, begin, of_lane);
      if (integers().levels != nullptr) number_codes(numbers, of_lane);
    }
    for (Index b = 0; b < size; ++b) write_blocks(integers(), blocks, b, begin + b, panel);
  }
}

void CpuMatrix::pack(const TensorView& weight,
                     Index row,
                     Index count,
                     const Kernels& kernels,
                     std::byte* panel) const {
  if (arithmetic() == Arithmetic::kInteger) return pack_integers(weight, row, count, panel);
  if (weight.is_quantized() || weight.dtype == DType::kF16) {
    return pack_decoded(weight, row, count, kernels, panel);
  }
  kernels.pack_panels({.source = weight.data + row * weight.row_bytes(),
                       .panels = panel,
                       .rows = count,
                       .columns = cols(),
                       .bf16 = weight.dtype == DType::kBF16},
                      0, 1);
}

// Rows are searched just before they are packed: what comes from memory or a disk comes once.
Status CpuMatrix::load(const TensorView& weight, const Kernels& kernels, ThreadPool& pool) {
  const Index stack_rows = weight.stack_stride == 0 ? rows() : weight.stack_stride / cols();
  // A panel's rows are hashed by the thread that packs them, while they are in its cache.
  static_assert(kPanelRows == kHashedRows);
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(num_matrices() * num_panels()));
  std::atomic<bool> finite = true;
  pool.parallel_for(num_matrices() * num_panels(), [&](Index item) {
    const Index first = item % num_panels() * kPanelRows;
    const Index count = std::min(kPanelRows, rows() - first);
    const Index row = item / num_panels() * stack_rows + first;
    if (find_non_finite(weight, row, count)) {
      finite = false;
    } else {
      pack(weight, row, count, kernels, owned_.data() + item * panel_bytes());
      hashes[static_cast<std::size_t>(item)] = hash_rows(weight, item);
    }
  });
  if (!finite) return data_loss("not all numbers are finite");
  weight_hash_ = combine_row_hashes(weight, hashes);
  return {};
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
  if (arithmetic() == Arithmetic::kInteger) {
    for (Index b = 0; b < cols() / kIntegerBlock; ++b) {
      read_block(integers(), panel, b, lane, out + b * kIntegerBlock);
    }
    for (Index d = 0; d < cols(); ++d) out[d] *= scale;
    return;
  }
  const bool bf16 = arithmetic() != Arithmetic::kF32;
  for (Index d = 0; d < cols(); ++d) {
    const float value = bf16 ? to_float(read<BFloat16>(panel + (d / 2) * 64 + lane * 4, d % 2))
                             : read<float>(panel + d * 64, lane);
    out[d] = scale * value;
  }
}

}  // namespace kakeya::cpu
