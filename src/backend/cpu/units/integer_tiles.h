// Products of rows rounded to int8 with panels of integers on AMX tiles: C [rows, 16 outputs] int32
// = A [rows, columns] int8 times B [columns, 16 outputs], for the columns that share scales.
// Included after integers.h and tiles.h.
//
// Integers are exact, and everything else is done as integers.h says: the bits are those of the
// vector code, which is faster for few rows.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

// The number of rows from which on tiles are faster: a tile takes the same time for 4 rows as for
// 16.
inline constexpr Index kFewestTileRows = 9;
inline constexpr Index kTileColumns =
    512;  // of a piece of a panel, unpacked in the first-level cache
inline constexpr Index kTileRowBlocks = 8;  // rows that meet such a piece: sums of 8 KiB

// A piece of a panel, unpacked: codes without their zero, as B tiles, one for each sum of integers.
struct alignas(64) UnpackedPanel {
  std::byte codes[kTileColumns * kPanelRows];
  float scales[kTileColumns / 16][kPanelRows];
  float minimums[kTileColumns / 16][kPanelRows];
};

template <typename Kind>
inline void unpack_runs(const IntegerPanels& format,
                        const std::byte* unit,
                        Index columns,
                        UnpackedPanel& out) {
  constexpr int kParts = Kind::kParts;
  const PanelRuns<Kind> runs(format);
  const __m512i zeros = _mm512_set1_epi8(static_cast<char>(format.zero));
  for (Index first = 0; first < columns / kIntegerRun; first += Kind::kRuns) {
    const Vec factor = runs.factor(unit);
    const Vec minimum_factor = runs.minimum_factor(unit);
    for (Index run = 0; run < Kind::kRuns; ++run) {
      runs.prefetch_run(unit, run);
#pragma GCC unroll 8
      for (int quad = 0; quad < 8; ++quad) {
        _mm512_store_si512(out.codes + ((first + run) * 8 + quad) * 64,
                           _mm512_sub_epi8(runs.codes(unit, run, quad), zeros));
      }
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        const Index sum = (first + run) * kParts + part;
        store(out.scales[sum], runs.scales(unit, factor, run, part));
        if constexpr (Kind::kHasMinimum) {
          store(out.minimums[sum], runs.minimums(unit, minimum_factor, run, part));
        }
      }
    }
    unit += format.unit_bytes();
  }
}

inline void unpack_panel(const IntegerPanels& format,
                         const std::byte* panel,
                         Index columns,
                         UnpackedPanel& out) {
  with_kind(format, [&]<typename Kind>() { unpack_runs<Kind>(format, panel, columns, out); });
}

// Tiles 0 and 1 are C, 4 and 5 are A, 6 and 7 are B.
inline void configure_integers(Index rows, Index sum_columns) {
  alignas(64) TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = static_cast<std::uint8_t>(rows);
  }
  config.row_bytes[4] = config.row_bytes[5] = static_cast<std::uint16_t>(sum_columns);
  config.rows[6] = config.rows[7] = static_cast<std::uint8_t>(sum_columns / 4);
  finish_writes(&config);
  _tile_loadconfig(&config);
}

// Results of a tile of kRows rows.
template <int kRows>
struct alignas(64) IntegerSums {
  std::int32_t value[kRows][kPanelRows];
};

// Tile kTile of two. The intrinsics want literal numbers.
template <int kTile, bool kSigned>
inline void integer_tile(const std::byte* rows, const std::byte* codes, void* sums) {
  if constexpr (kTile == 0) {
    _tile_loadd(4, rows, kIntegerRun);
    _tile_loadd(6, codes, 64);
    _tile_zero(0);
    if constexpr (kSigned) _tile_dpbssd(0, 4, 6);
    if constexpr (!kSigned) _tile_dpbsud(0, 4, 6);
    _tile_stored(0, sums, 64);
  } else {
    _tile_loadd(5, rows, kIntegerRun);
    _tile_loadd(7, codes, 64);
    _tile_zero(1);
    if constexpr (kSigned) _tile_dpbssd(1, 5, 7);
    if constexpr (!kSigned) _tile_dpbsud(1, 5, 7);
    _tile_stored(1, sums, 64);
  }
}

// The sums of integers of kRows rows of one block with an unpacked piece that begins at
// `first_column`, added to `out`. Tiles run kAhead sums before the vectors that read their results,
// which would wait for the stores otherwise. All results under way are within 4 KiB: a load also
// waits for a store under way that is a multiple of that away.
template <int kRows, bool kSigned, int kParts>
class TileRuns {
 public:
  TileRuns(const IntegerRows& x,
           const IntegerPanels& format,
           const UnpackedPanel& panel,
           Index first_column,
           Index columns)
      : codes_(x.codes + first_column * kRows),
        steps_(x.steps + first_column / kIntegerRun * kRows),
        row_sums_(x.sums + first_column / kColumns * kRows),
        panel_(panel),
        count_(columns / kColumns),
        has_minimum_(format.has_minimum) {}

  void add_to(float (*out)[kPanelRows]) {
    Vec sums[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sums[r] = load(out[r]);
    for (Index s = 0; s < kAhead; ++s) multiply<0>(s);
    for (Index s = 0; s < count_; s += 2) {  // whole units have an even number of sums
      multiply<0>(s + kAhead);
      add(s, sums);
      multiply<1>(s + kAhead + 1);
      add(s + 1, sums);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) store(out[r], sums[r]);
  }

 private:
  static constexpr Index kColumns = kIntegerRun / kParts;
  static constexpr Index kSlots = kRows > 8 ? 4 : kRows > 4 ? 8 : 16;
  static constexpr Index kAhead = kSlots - 1;

  template <int kTile>
  void multiply(Index s) {
    if (s >= count_) return;
    integer_tile<kTile, kSigned>(codes_ + s / kParts * kRows * kIntegerRun + s % kParts * kColumns,
                                 panel_.codes + s * kColumns * kPanelRows,
                                 results_[s % kSlots].value);
  }
  void add(Index s, Vec (&sums)[kRows]) {
    const IntegerSums<kRows>& integers = results_[s % kSlots];
    const float* steps = steps_ + s / kParts * kRows;
    const Vec scale = load(panel_.scales[s]);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec whole = to_float(_mm512_load_si512(integers.value[r]));
      sums[r] = fused_multiply_add(whole, mul(scale, splat(steps[r])), sums[r]);
    }
    if (!has_minimum_) return;
    const float* row_sums = row_sums_ + s * kRows;
    const Vec minimum = load(panel_.minimums[s]);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      sums[r] = fused_multiply_add(minimum, splat(row_sums[r]), sums[r]);
    }
  }

  const std::byte* codes_;
  const float* steps_;
  const float* row_sums_;
  const UnpackedPanel& panel_;
  Index count_;
  bool has_minimum_;
  IntegerSums<kRows> results_[kSlots];
};

// For x.rows == kRows or fewer.
template <int kRows, bool kSigned, int kParts>
inline void add_tile_rows(const IntegerRows& x,
                          const IntegerPanels& format,
                          const UnpackedPanel& panel,
                          Index first_column,
                          Index columns,
                          float (*out)[kPanelRows]) {
  if (x.rows == kRows) {
    TileRuns<kRows, kSigned, kParts>(x, format, panel, first_column, columns).add_to(out);
  } else if constexpr (kRows > 1) {
    add_tile_rows<kRows - 1, kSigned, kParts>(x, format, panel, first_column, columns, out);
  }
}

// Results of up to kTileRowBlocks blocks of rows and a panel.
using TileResults = float[kTileRowBlocks * kRowBlock][kPanelRows];

// Rows [first_row, last_row) times one panel.
template <bool kSigned, int kParts>
inline void multiply_panel_on_tiles(const Product& product,
                                    Index first_row,
                                    Index last_row,
                                    const std::byte* panel,
                                    TileResults& results) {
  const IntegerPanels& format = product.integers;
  UnpackedPanel piece;
  for (auto& row : results) store(row, zero());
  Index configured = 0;
  for (Index column = 0; column < product.columns; column += kTileColumns) {
    const Index left = product.columns - column;
    const Index columns = left < kTileColumns ? left : kTileColumns;
    unpack_panel(format, panel + column / format.unit_columns() * format.unit_bytes(), columns,
                 piece);
    finish_writes(&piece);
    for (Index row = first_row; row < last_row; row += kRowBlock) {
      const IntegerRows x = integer_rows(product, row);
      if (x.rows != configured) {
        configured = x.rows;
        configure_integers(configured, format.sum_columns());
      }
      add_tile_rows<static_cast<int>(kRowBlock), kSigned, kParts>(x, format, piece, column, columns,
                                                                  results + (row - first_row));
    }
  }
}

inline void multiply_panel_on_tiles(const Product& product,
                                    Index first_row,
                                    Index last_row,
                                    const std::byte* panel,
                                    TileResults& results) {
  const bool halves = product.integers.group < kIntegerRun;
  // Codes below 128 may be taken for signed ones.
  if (product.integers.zero > 0 || product.integers.bits < 8) {
    if (halves)
      return multiply_panel_on_tiles<true, 2>(product, first_row, last_row, panel, results);
    return multiply_panel_on_tiles<true, 1>(product, first_row, last_row, panel, results);
  }
  if (halves)
    return multiply_panel_on_tiles<false, 2>(product, first_row, last_row, panel, results);
  multiply_panel_on_tiles<false, 1>(product, first_row, last_row, panel, results);
}

inline void multiply_integer_tiles(const Product& product, const ProductPart& part) {
  alignas(64) TileResults gate;
  alignas(64) TileResults up;
  constexpr Index kRows = kTileRowBlocks * kRowBlock;
  for (Index panel = part.first_panel; panel < part.last_panel; ++panel) {
    const Index at = panel * product.panel_bytes;
    for (Index first = part.first_row; first < part.last_row; first += kRows) {
      const Index last = part.last_row - first < kRows ? part.last_row : first + kRows;
      multiply_panel_on_tiles(product, first, last, product.panels + at, gate);
      if (product.up_panels != nullptr) {
        multiply_panel_on_tiles(product, first, last, product.up_panels + at, up);
      }
      for (Index row = first; row < last; ++row) {
        Vec value = load(gate[row - first]);
        if (product.up_panels != nullptr) {
          value = mul(activate(product.activation, value), load(up[row - first]));
        }
        finish(product, row, panel, value);
      }
    }
  }
  _tile_release();
}

inline void multiply_integers(const Product& product, const ProductPart& part) {
  if (part.last_row - part.first_row < kFewestTileRows) {
    multiply_integer_vectors(product, part);
  } else {
    multiply_integer_tiles(product, part);
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
