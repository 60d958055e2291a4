// Bringing activations and weights into the layout of the products. Included after rows.h.
//
// Packed rows are row-major [rows, columns]; units with tiles (kTiledRows) keep fast rows in blocks
// of 16 (the last one shorter, r rows): [columns / 32][r][32] bf16, each step one tile.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline constexpr Index kFastBytes = kBf16Rows ? 2 : 4;

inline Index element_bytes(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kBf16Fast ? kFastBytes : 4;
}

// Where columns [column, column + 16) of a packed row are; column is a multiple of 16.
inline std::byte* packed_at(
    std::byte* packed, Arithmetic arithmetic, Index rows, Index columns, Index row, Index column) {
  if (kTiledRows && arithmetic == Arithmetic::kBf16Fast) {
    const Index first = row / kRowBlock * kRowBlock;
    const Index in_block = rows - first < kRowBlock ? rows - first : kRowBlock;
    return packed + first * columns * 2 + (column / kColumnUnit) * in_block * 64 +
           (row - first) * 64 + (column % kColumnUnit) * 2;
  }
  return packed + (row * columns + column) * element_bytes(arithmetic);
}

inline void store_packed(std::byte* to, Arithmetic arithmetic, Vec x) {
  if (arithmetic != Arithmetic::kBf16Fast) {
    store(reinterpret_cast<float*>(to), x);
  } else if (kBf16Rows) {
    store_bf16(to, x);
  } else {
    // Rounded, but kept widened: this unit multiplies in f32.
    alignas(64) std::byte rounded[32];
    store_bf16(rounded, x);
    store(reinterpret_cast<float*>(to), load_bf16(rounded));
  }
}

inline void pack_integer_rows(const PackRows& pack, Index first_row, Index last_row);

inline void pack_rows(const PackRows& pack, Index first_row, Index last_row) {
  if (pack.arithmetic == Arithmetic::kInteger) {
    return pack_integer_rows(pack, first_row, last_row);
  }
  const Index columns = round_up(pack.width, kColumnUnit);
  for (Index row = first_row; row < last_row; ++row) {
    const Index from = pack.gather == nullptr ? row : pack.gather[row];
    const float* x = pack.x + from * pack.stride;
    for (Index k = 0; k < columns; k += 16) {
      const Index count = pack.width - k;
      const Vec v = count >= 16 ? load(x + k) : count > 0 ? load_part(x + k, count) : zero();
      store_packed(packed_at(pack.packed, pack.arithmetic, pack.rows, columns, row, k),
                   pack.arithmetic, v);
    }
  }
}

// One panel: 16 lanes by `columns` elements of 32 bits, a pair of bf16 or an f32; rows and columns
// beyond the matrix are 0.
inline void pack_panel(
    const std::byte* source, Index row_bytes, Index rows, Index words, std::byte* panel) {
  for (Index word = 0; word < words; word += 16) {
    const Index begin = word * 4;
    if (rows == kPanelRows && begin + 64 <= row_bytes) {
      transpose_32(source + begin, row_bytes, panel + word * 64);
      continue;
    }
    alignas(64) std::byte block[16 * 64] = {};
    const Index valid = row_bytes - begin < 64 ? row_bytes - begin : 64;
    for (Index row = 0; row < rows && valid > 0; ++row) {
      const std::byte* from = source + row * row_bytes + begin;
      for (Index i = 0; i < valid; ++i) block[row * 64 + i] = from[i];
    }
    transpose_32(block, 64, panel + word * 64);
  }
}

inline void pack_panels(const PackPanels& pack, Index first_panel, Index last_panel) {
  const Index columns = round_up(pack.columns, kColumnUnit);
  const Index row_bytes = pack.columns * (pack.bf16 ? 2 : 4);
  const Index words = pack.bf16 ? columns / 2 : columns;
  for (Index panel = first_panel; panel < last_panel; ++panel) {
    const Index row = panel * kPanelRows;
    const Index rows = pack.rows - row < kPanelRows ? pack.rows - row : kPanelRows;
    pack_panel(pack.source + row * row_bytes, row_bytes, rows, words,
               pack.panels + panel * words * 64);
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
