// Fast products on AMX tiles: C [16 rows, 16 outputs] f32 += A [16, 32] bf16 times B [32, 16] bf16.
// Included after products.h.
//
// Used for every number of rows, one included, so that a row meets the same arithmetic in any
// company. An element adds steps of 32 columns in ascending order; tiles of fewer rows only leave
// rows out.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

struct TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// The intrinsics of g++ 12 do not tell the compiler all that they read: this makes it write what
// `memory` points to before it goes on.
inline void finish_writes(const void* memory) {
  asm volatile("" : : "r"(memory) : "memory");
}

// Tiles 0..3 are C, 4 and 5 are A, 6 and 7 are B. With one block of rows, 0..3 are four panels of
// it; with two, 0 and 1 belong to the first block, 2 and 3 to the second.
inline void configure(Index first_rows, Index second_rows) {
  alignas(64) TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = 16;
  }
  const auto first = static_cast<std::uint8_t>(first_rows);
  const auto second = static_cast<std::uint8_t>(second_rows == 0 ? first_rows : second_rows);
  config.rows[0] = config.rows[1] = config.rows[4] = first;
  config.rows[2] = config.rows[3] = config.rows[5] = second;
  finish_writes(&config);
  _tile_loadconfig(&config);
}

// Results of up to four tiles, [4][16][16].
struct alignas(64) TileSums {
  float value[4][16][16];
};

inline void store_sums(TileSums& sums) {
  _tile_stored(0, sums.value[0], 64);
  _tile_stored(1, sums.value[1], 64);
  _tile_stored(2, sums.value[2], 64);
  _tile_stored(3, sums.value[3], 64);
}

inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

inline void prefetch_tile(const std::byte* tile) {
#pragma GCC unroll 16
  for (int line = 0; line < 16; ++line) prefetch(tile + kPrefetchBytes + 64 * line);
}

// One block of `rows` rows times kPanels panels.
template <int kPanels>
inline void one_block(const std::byte* a,
                      Index rows,
                      Index steps,
                      const std::byte* const (&panels)[4],
                      TileSums& sums) {
  zero_sums();
  for (Index step = 0; step < steps; ++step) {
    const Index at = step * 1024;
    _tile_loadd(4, a + step * rows * 64, 64);
    prefetch_tile(panels[0] + at);
    _tile_loadd(6, panels[0] + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kPanels > 1) {
      prefetch_tile(panels[1] + at);
      _tile_loadd(7, panels[1] + at, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kPanels > 2) {
      prefetch_tile(panels[2] + at);
      _tile_loadd(6, panels[2] + at, 64);
      _tile_dpbf16ps(2, 4, 6);
      prefetch_tile(panels[3] + at);
      _tile_loadd(7, panels[3] + at, 64);
      _tile_dpbf16ps(3, 4, 7);
    }
  }
  store_sums(sums);
}

// Panels to bring into the second-level cache while others are multiplied: line after line from
// `at`, `step_bytes` in each step.
struct NextPanels {
  const std::byte* at[2] = {};
  Index step_bytes = 0;
};

inline void prefetch_next(const NextPanels& next, Index step) {
  for (Index line = 0; line < next.step_bytes; line += 64) {
    const Index at = step * next.step_bytes + line;
    _mm_prefetch(reinterpret_cast<const char*>(next.at[0] + at), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(next.at[1] + at), _MM_HINT_T1);
  }
}

// A full block of 16 rows and a second of `rows` rows times kPanels panels, which are streamed from
// memory or, when earlier rows were multiplied with them, found in the second-level cache.
template <int kPanels, bool kStreamed>
inline void two_blocks(const std::byte* a,
                       const std::byte* second,
                       Index rows,
                       Index steps,
                       const std::byte* const (&panels)[4],
                       const NextPanels& next,
                       TileSums& sums) {
  zero_sums();
  for (Index step = 0; step < steps; ++step) {
    const Index at = step * 1024;
    prefetch_next(next, step);
    _tile_loadd(4, a + at, 64);
    _tile_loadd(5, second + step * rows * 64, 64);
    if constexpr (kStreamed) prefetch_tile(panels[0] + at);
    _tile_loadd(6, panels[0] + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kPanels > 1) {
      if constexpr (kStreamed) prefetch_tile(panels[1] + at);
      _tile_loadd(7, panels[1] + at, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  store_sums(sums);
}

// Finishes rows of one block; tile `first` holds output (or gate) panel 0, `up` the up panel.
inline void finish_block(const Product& product,
                         const TileSums& sums,
                         Index row,
                         Index rows,
                         Index panel,
                         int tile,
                         int up_tile) {
  for (Index r = 0; r < rows; ++r) {
    Vec value = load(sums.value[tile][r]);
    if (product.up_panels != nullptr) {
      value = mul(activate(product.activation, value), load(sums.value[up_tile][r]));
    }
    finish(product, row + r, panel, value);
  }
}

// Four panels of one matrix, or two of gate and the same two of up.
template <int kPanels>
inline void multiply_one_block(const Product& product, Index row, Index rows, Index panel) {
  const bool gated = product.up_panels != nullptr;
  const std::byte* panels[4];
  for (Index p = 0; p < 4; ++p) {
    const Index matrix_panel = gated ? panel + p % (kPanels > 1 ? kPanels / 2 : 1) : panel + p;
    const bool up = gated && p >= kPanels / 2;
    panels[p] = (up ? product.up_panels : product.panels) + matrix_panel * product.panel_bytes;
  }
  TileSums sums;
  one_block<kPanels>(product.x + row * product.columns * 2, rows, product.columns / kColumnUnit,
                     panels, sums);
  const int outputs = gated ? kPanels / 2 : kPanels;
  for (int p = 0; p < outputs; ++p) {
    finish_block(product, sums, row, rows, panel + p, p, outputs + p);
  }
}

// Where a pair of row blocks is in the product, for what is prefetched meanwhile.
struct RowPair {
  Index row = 0;
  Index first = 0;   // rows of the first block
  Index second = 0;  // of the second block, maybe none
  bool streams = false;
  NextPanels next;
};

template <int kPanels>
inline void multiply_two_blocks(const Product& product, const RowPair& pair, Index panel) {
  const bool gated = product.up_panels != nullptr;
  const std::byte* panels[4] = {};
  panels[0] = product.panels + panel * product.panel_bytes;
  panels[1] = gated ? product.up_panels + panel * product.panel_bytes
                    : product.panels + (panel + 1) * product.panel_bytes;
  TileSums sums;
  const std::byte* a = product.x + pair.row * product.columns * 2;
  const std::byte* second = a + kRowBlock * product.columns * 2;
  const Index steps = product.columns / kColumnUnit;
  if (pair.streams) {
    two_blocks<kPanels, true>(a, second, pair.second, steps, panels, pair.next, sums);
  } else {
    two_blocks<kPanels, false>(a, second, pair.second, steps, panels, pair.next, sums);
  }
  // NOLINTNEXTLINE(bugprone-branch-clone): both are 1 in the instantiation for one panel.
  const int outputs = gated ? 1 : kPanels;
  for (int p = 0; p < outputs; ++p) {
    finish_block(product, sums, pair.row, kRowBlock, panel + p, p, 1);
    finish_block(product, sums, pair.row + kRowBlock, pair.second, panel + p, 2 + p, 3);
  }
}

// Up to 16 rows: as many panels at once as there are C tiles.
inline void multiply_few_rows(const Product& product, const ProductPart& part) {
  const Index rows = part.last_row - part.first_row;
  const bool gated = product.up_panels != nullptr;
  const Index group = gated ? 2 : 4;
  configure(rows, rows);
  Index panel = part.first_panel;
  for (; panel + group <= part.last_panel; panel += group) {
    multiply_one_block<4>(product, part.first_row, rows, panel);
  }
  for (; panel < part.last_panel; ++panel) {
    if (gated) {
      multiply_one_block<2>(product, part.first_row, rows, panel);
    } else {
      multiply_one_block<1>(product, part.first_row, rows, panel);
    }
  }
}

// Panels [panel, panel + outputs) for one block of rows, or two.
inline void multiply_pair(const Product& product, const RowPair& pair, Index panel, Index outputs) {
  const bool gated = product.up_panels != nullptr;
  if (pair.second == 0) {
    if (gated) return multiply_one_block<2>(product, pair.row, pair.first, panel);
    for (Index p = panel; p < panel + outputs; ++p) {
      multiply_one_block<1>(product, pair.row, pair.first, p);
    }
  } else if (outputs == 2 || gated) {
    multiply_two_blocks<2>(product, pair, panel);
  } else {
    multiply_two_blocks<1>(product, pair, panel);
  }
}

// The share of the panels after `panel` that pair number `index` of `pairs` prefetches: together
// they bring them in while the current ones are multiplied.
inline NextPanels share_of_next(
    const Product& product, const ProductPart& part, Index panel, Index index, Index pairs) {
  const bool gated = product.up_panels != nullptr;
  const Index following = panel + (gated ? 1 : 2);
  NextPanels next;
  if (pairs < 2 || following + (gated ? 1 : 2) > part.last_panel) return next;
  const Index step_bytes = round_up(1024 / pairs, 64);
  if (index * step_bytes >= 1024) return next;  // the pairs before took everything
  const Index begin = index * step_bytes * (product.columns / kColumnUnit);
  next.at[0] = product.panels + following * product.panel_bytes + begin;
  next.at[1] = gated ? product.up_panels + following * product.panel_bytes + begin
                     : next.at[0] + product.panel_bytes;
  next.step_bytes = step_bytes;
  return next;
}

inline void multiply_many_rows(const Product& product, const ProductPart& part) {
  const Index group = product.up_panels != nullptr ? 1 : 2;
  const Index pairs = (part.last_row - part.first_row + 2 * kRowBlock - 1) / (2 * kRowBlock);
  Index configured_first = 0;
  Index configured_second = 0;
  for (Index panel = part.first_panel; panel < part.last_panel; panel += group) {
    const Index outputs = part.last_panel - panel < group ? 1 : group;
    for (Index index = 0; index < pairs; ++index) {
      RowPair pair;
      pair.row = part.first_row + index * 2 * kRowBlock;
      const Index left = part.last_row - pair.row;
      pair.first = left < kRowBlock ? left : kRowBlock;
      const Index rest = left - pair.first;
      pair.second = rest < kRowBlock ? rest : kRowBlock;
      pair.streams = index == 0 && (pairs == 1 || panel == part.first_panel);
      pair.next = share_of_next(product, part, panel, index, pairs);
      if (pair.first != configured_first || pair.second != configured_second) {
        configure(pair.first, pair.second);
        configured_first = pair.first;
        configured_second = pair.second;
      }
      multiply_pair(product, pair, panel, outputs);
    }
  }
}

inline void multiply_tiles(const Product& product, const ProductPart& part) {
  if (part.last_row - part.first_row <= kRowBlock) {
    multiply_few_rows(product, part);
  } else {
    multiply_many_rows(product, part);
  }
  _tile_release();
}

inline void multiply_fast(const Product& product, const ProductPart& part) {
  multiply_tiles(product, part);
}

inline double bf16_peak(Index rounds) {
  alignas(64) std::byte ones[1024] = {};
  finish_writes(ones);
  configure(kRowBlock, kRowBlock);
  zero_sums();
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (Index round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(rounds) * 4 * 16 * 16 * 32 * 2;
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
