// Products of packed rows with weight panels on vector registers. Included after pack.h.
//
// One output element is one lane of one accumulator that adds k = 0, 1, 2, ... in that order over
// the whole row, whatever tile of rows and panels it sits in. That is all promise P1 needs here.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline constexpr Index kPrefetchBytes = 4096;

// Stores output columns [16 * panel, ...) of a row, as the product wants them.
inline void finish(const Product& product, Index row, Index panel, Vec sum) {
  const Index column = panel * kPanelRows;
  if (product.packed_out == nullptr) {
    const Index valid = product.outputs - column;
    store_count(product.out + row * product.out_stride + column, sum, valid < 16 ? valid : 16);
    return;
  }
  const Index columns = round_up(product.outputs, kColumnUnit);
  const auto at = [&](Index c) {
    return packed_at(product.packed_out, product.packed_arithmetic, product.rows, columns, row, c);
  };
  store_packed(at(column), product.packed_arithmetic, sum);
  // The last panel also clears the padding after it.
  if (column + kPanelRows >= product.outputs && column + kPanelRows < columns) {
    store_packed(at(column + kPanelRows), product.packed_arithmetic, zero());
  }
}

// f32 panels and rows.
struct F32Step {
  static constexpr Index kRowBytes = 4;  // of one column

  // sums[r][p] += row r times panel p over all columns.
  template <int kRows, int kPanels>
  static inline void accumulate(const std::byte* x,
                                Index row_bytes,
                                Index columns,
                                const std::byte* const (&panels)[kPanels],
                                Vec (&sums)[kRows][kPanels]) {
    for (Index k = 0; k < columns; ++k) {
      Vec w[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        prefetch(panels[p] + k * 64 + kPrefetchBytes);
        w[p] = load(reinterpret_cast<const float*>(panels[p] + k * 64));
      }
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const Vec xs = splat(*reinterpret_cast<const float*>(x + r * row_bytes + 4 * k));
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) sums[r][p] = multiply_add(xs, w[p], sums[r][p]);
      }
    }
  }
};

// bf16 panels, widened exactly in registers, and f32 rows (rounded before or not).
struct WidenedStep {
  static constexpr Index kRowBytes = 4;

  template <int kRows, int kPanels>
  static inline void accumulate(const std::byte* x,
                                Index row_bytes,
                                Index columns,
                                const std::byte* const (&panels)[kPanels],
                                Vec (&sums)[kRows][kPanels]) {
    for (Index pair = 0; pair < columns / 2; ++pair) {
      const std::byte* xs = x + 8 * pair;
      Vec w[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        prefetch(panels[p] + pair * 64 + kPrefetchBytes);
        w[p] = load_even(panels[p] + pair * 64);
      }
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const Vec even = splat(*reinterpret_cast<const float*>(xs + r * row_bytes));
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) sums[r][p] = multiply_add(even, w[p], sums[r][p]);
      }
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) w[p] = load_odd(panels[p] + pair * 64);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const Vec odd = splat(*reinterpret_cast<const float*>(xs + r * row_bytes + 4));
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) sums[r][p] = multiply_add(odd, w[p], sums[r][p]);
      }
    }
  }
};

// Rows [row, row + kRows) times kOutputs panels, each of one matrix or of gate and up.
template <typename Step, int kRows, int kOutputs, bool kGated>
inline void multiply_tile(const Product& product, Index row, Index panel) {
  constexpr int kPanels = kGated ? 2 * kOutputs : kOutputs;
  const std::byte* panels[kPanels];
  for (int p = 0; p < kOutputs; ++p) {
    panels[p] = product.panels + (panel + p) * product.panel_bytes;
    if constexpr (kGated) {
      panels[kOutputs + p] = product.up_panels + (panel + p) * product.panel_bytes;
    }
  }
  Vec sums[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) sums[r][p] = zero();
  }
  const Index row_bytes = product.columns * Step::kRowBytes;
  Step::template accumulate<kRows, kPanels>(product.x + row * row_bytes, row_bytes, product.columns,
                                            panels, sums);
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kOutputs; ++p) {
      Vec value = sums[r][p];
      if constexpr (kGated) value = mul(activate(product.activation, value), sums[r][kOutputs + p]);
      finish(product, row + r, panel + p, value);
    }
  }
}

// multiply_tile with `height` <= kRows rows.
template <typename Step, int kRows, int kOutputs, bool kGated>
inline void multiply_height(const Product& product, Index row, Index height, Index panel) {
  if (height == kRows) {
    multiply_tile<Step, kRows, kOutputs, kGated>(product, row, panel);
  } else if constexpr (kRows > 1) {
    multiply_height<Step, kRows - 1, kOutputs, kGated>(product, row, height, panel);
  }
}

template <typename Step, int kOutputs, bool kGated>
void multiply_rows(const Product& product, const ProductPart& part, Index panel) {
  // Tiles of equal height: 16 rows are two tiles of 8, not one of 12 and one of 4.
  constexpr int kMost = most_rows(kGated ? 2 * kOutputs : kOutputs);
  const Index tiles = (part.last_row - part.first_row + kMost - 1) / kMost;
  Index row = part.first_row;
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index height = (part.last_row - row + tiles - tile - 1) / (tiles - tile);
    multiply_height<Step, kMost, kOutputs, kGated>(product, row, height, panel);
    row += height;
  }
}

template <typename Step, bool kGated, int kPanels>
void multiply_panels(const Product& product, const ProductPart& part) {
  constexpr int kOutputs = kGated ? kPanels / 2 : kPanels;
  Index panel = part.first_panel;
  for (; panel + kOutputs <= part.last_panel; panel += kOutputs) {
    multiply_rows<Step, kOutputs, kGated>(product, part, panel);
  }
  if constexpr (kOutputs > 1) {
    for (; panel < part.last_panel; ++panel) multiply_rows<Step, 1, kGated>(product, part, panel);
  }
}

// Few rows take wide tiles: more panels keep more loads under way and more sums independent.
template <typename Step, bool kGated>
void multiply_shaped(const Product& product, const ProductPart& part) {
  constexpr int kFewest = kGated ? 2 : 1;
  constexpr int kMany = kManyRowsPanels < kFewest ? kFewest : kManyRowsPanels;
  const Index rows = part.last_row - part.first_row;
  if (rows <= most_rows(4)) {
    multiply_panels<Step, kGated, 4>(product, part);
  } else if (rows <= most_rows(2)) {
    multiply_panels<Step, kGated, 2>(product, part);
  } else {
    multiply_panels<Step, kGated, kMany>(product, part);
  }
}

template <typename Step>
void multiply_vectors(const Product& product, const ProductPart& part) {
  if (product.up_panels != nullptr) {
    multiply_shaped<Step, true>(product, part);
  } else {
    multiply_shaped<Step, false>(product, part);
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
