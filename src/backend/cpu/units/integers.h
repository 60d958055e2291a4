// Products of rows rounded to int8 with panels of integers. Included after products.h.
//
// Within a run of columns that shares its scales, products are added as integers: exactly, so their
// order does not matter, and every unit, tiles included, gives the same bits. Across runs, an
// output adds, run after run,
//
//   sum = fma(integers, scale * step, sum), and with minimums  sum = fma(minimum, row sum, sum).
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline constexpr Index kIntegerPrefetchBytes = 4096;

// An offset and the products of quads, added up for each lane. quad_sum_avx2.h has another one.
template <int kBits>
class QuadSum {
 public:
  void begin(std::int32_t offset) { sum_ = splat_int(offset); }
  void add(const Ints& codes, const std::byte* x) { sum_ = dot_quads<kBits>(sum_, codes, x); }
  Ints total() const { return sum_; }

 private:
  Ints sum_;
};

// One block of rows rounded to int8.
struct IntegerRows {
  const std::byte* codes;
  const float* steps;
  const std::int32_t* offsets;
  const float* sums;
  Index rows;  // of the block
};

inline IntegerRows integer_rows(const Product& product, Index first) {
  const Index left = product.rows - first;
  const Index rows = left < kRowBlock ? left : kRowBlock;
  const std::byte* at = product.x + first * integer_row_bytes(product.columns, product.integers);
  const IntegerRowPlaces places = integer_row_places(product.columns, product.integers, rows);
  IntegerRows block;
  block.codes = at;
  block.steps = reinterpret_cast<const float*>(at + places.steps);
  block.offsets = reinterpret_cast<const std::int32_t*>(at + places.offsets);
  block.sums = reinterpret_cast<const float*>(at + places.sums);
  block.rows = rows;
  return block;
}

// One run of 32 columns of a row in the packed form; the values are `count` of x, then zeros.
inline void round_run(const float* x,
                      Index count,
                      const IntegerPanels& panels,
                      Index run,
                      Index rows,
                      Index row,
                      std::byte* block,
                      Index columns) {
  Vec values[2];
  for (Index half = 0; half < 2; ++half) {
    const Index left = count - 16 * half;
    values[half] = left >= 16 ? load(x + 16 * half)
                   : left > 0 ? load_part(x + 16 * half, left)
                              : zero();
  }
  const float largest = reduce_max(max(absolute(values[0]), absolute(values[1])));
  // Below, 127 / largest would not be finite.
  const bool tiny = !(largest > 1e-36F);
  const float step = tiny ? 0.0F : largest / 127.0F;
  const Vec inverse = splat(tiny ? 0.0F : 127.0F / largest);
  float sums[2];
  for (Index half = 0; half < 2; ++half) {
    const Vec rounded = round_nearest(mul(values[half], inverse));
    // The order of operands turns NaN into a number.
    const Vec whole = max(min(rounded, splat(127.0F)), splat(-127.0F));
    store_int8(block + (run * rows + row) * kIntegerRun + 16 * half, whole);
    sums[half] = reduce_add(whole);
  }
  const IntegerRowPlaces places = integer_row_places(columns, panels, rows);
  auto* steps = reinterpret_cast<float*>(block + places.steps);
  auto* offsets = reinterpret_cast<std::int32_t*>(block + places.offsets);
  auto* row_sums = reinterpret_cast<float*>(block + places.sums);
  steps[run * rows + row] = step;
  const Index parts = kIntegerRun / panels.sum_columns();
  for (Index part = 0; part < parts; ++part) {
    const float sum = parts == 1 ? sums[0] + sums[1] : sums[part];
    const Index at = (run * parts + part) * rows + row;
    offsets[at] = -panels.zero * static_cast<std::int32_t>(sum);
    row_sums[at] = step * sum;
  }
}

inline void pack_integer_rows(const PackRows& pack, Index first_row, Index last_row) {
  const Index columns = round_up(pack.width, kIntegerUnit);
  const Index row_bytes = integer_row_bytes(columns, pack.integers);
  for (Index row = first_row; row < last_row; ++row) {
    const Index from = pack.gather == nullptr ? row : pack.gather[row];
    const Index first = row / kRowBlock * kRowBlock;
    const Index rows = pack.rows - first < kRowBlock ? pack.rows - first : kRowBlock;
    std::byte* block = pack.packed + first * row_bytes;
    for (Index run = 0; run < columns / kIntegerRun; ++run) {
      round_run(pack.x + from * pack.stride + run * kIntegerRun, pack.width - run * kIntegerRun,
                pack.integers, run, rows, row - first, block, columns);
    }
  }
}

// Panels whose layout the compiler knows but for `group` and the sizes that follow from it.
template <int kBitsOfCodes, int kPartsOfRun, ScaleType kTypeOfScales, bool kMinimum, bool kLooksUp>
struct PanelKind {
  static constexpr int kBits = kBitsOfCodes;
  static constexpr bool kHasLevels = kLooksUp;
  using Sum = QuadSum<kHasLevels ? 8 : kBits>;
  static constexpr int kParts = kPartsOfRun;  // of a run of 32 columns, each with scales
  static constexpr ScaleType kScaleType = kTypeOfScales;
  static constexpr bool kHasMinimum = kMinimum;
  static constexpr bool kCoded = kScaleType == ScaleType::kCode;
  static constexpr Index kRuns = (kCoded ? 4 : 1) * kIntegerUnit / kIntegerRun;  // of a unit
  static constexpr Index kRunBytes = kBits * kPanelRows * kIntegerRun / 8;
  static constexpr Index kCodeBytes = kRuns * kRunBytes;
  static constexpr Index kScaleStep = kPanelRows * (kScaleType == ScaleType::kF32 ? 4
                                                    : kCoded                      ? 1
                                                                                  : 2);
};

// Reads the runs of panels of one kind, a unit after another.
template <typename Kind>
class PanelRuns {
 public:
  explicit PanelRuns(const IntegerPanels& format)
      : unit_bytes_(format.unit_bytes()),
        minimums_(format.scales_bytes()),
        factors_(format.factors_at()),
        group_shift_(format.group == kIntegerUnit ? 1 : 0) {
    if constexpr (Kind::kHasLevels) levels_ = load_levels(format.levels);
  }

  // Codes `quad` of four columns of a run.
  [[gnu::always_inline]] Ints codes(const std::byte* unit, Index run, int quad) const {
    const std::byte* from = unit + run * Kind::kRunBytes;
    if constexpr (Kind::kBits == 8) {
      return load_codes(from + 64 * quad);
    } else {
      const Ints low = quad % 2 == 0 ? load_low_nibbles(from + 32 * quad)
                                     : load_high_nibbles(from + 32 * (quad - 1));
      if constexpr (Kind::kHasLevels) {
        return look_up(levels_, low);
      } else if constexpr (Kind::kBits == 4) {
        return low;
      } else {
        constexpr int kHigh = Kind::kBits - 4;
        return with_high_bits<kHigh>(low, from + 256 + quad * kHigh / 8 * 64, quad * kHigh % 8);
      }
    }
  }

  // Factors of a unit's scales, and of its minimums; zero if it has none.
  [[gnu::always_inline]] Vec factor(const std::byte* unit) const {
    return Kind::kCoded ? load_half(unit + factors_) : zero();
  }
  [[gnu::always_inline]] Vec minimum_factor(const std::byte* unit) const {
    return Kind::kCoded && Kind::kHasMinimum ? load_half(unit + factors_ + 2 * kPanelRows) : zero();
  }

  // Brings in what a later call will want.
  [[gnu::always_inline]] void prefetch_run(const std::byte* unit, Index run) const {
    const std::byte* codes = unit + run * Kind::kRunBytes + kIntegerPrefetchBytes;
#pragma GCC unroll 8
    for (Index line = 0; line < Kind::kRunBytes; line += 64) prefetch(codes + line);
    const Index line = Kind::kCodeBytes + run * 64;
    if (line < unit_bytes_) prefetch(unit + line + kIntegerPrefetchBytes);
  }

  // Scales of a group of 64 columns serve two runs.
  [[gnu::always_inline]] Vec scales(const std::byte* unit, Vec factor, Index run, int part) const {
    return load(unit + scales_at(run, part), factor);
  }
  [[gnu::always_inline]] Vec minimums(const std::byte* unit,
                                      Vec factor,
                                      Index run,
                                      int part) const {
    return load(unit + minimums_ + scales_at(run, part), factor);
  }

 private:
  [[gnu::always_inline]] Index scales_at(Index run, int part) const {
    return Kind::kCodeBytes + ((run >> group_shift_) * Kind::kParts + part) * Kind::kScaleStep;
  }
  [[gnu::always_inline]] static Vec load(const std::byte* scales, Vec factor) {
    if constexpr (Kind::kCoded) return mul(load_int8(scales), factor);  // exact: 8 bits by 11
    if constexpr (Kind::kScaleType == ScaleType::kF16) return load_half(scales);
    if constexpr (Kind::kScaleType == ScaleType::kBf16) return load_bf16(scales);
    return KAKEYA_CPU_UNIT::load(reinterpret_cast<const float*>(scales));
  }

  Index unit_bytes_;
  Index minimums_;  // from the scales
  Index factors_;   // from the unit's beginning
  int group_shift_;
  Ints levels_;
};

// Rows of one block, from row `first` on, and panels, of which a tile computes the products.
template <int kPanels>
struct IntegerTile {
  IntegerRows x;
  Index first;
  Index columns;
  const std::byte* panels[kPanels];
  bool prefetches;  // the panels, which no tile has read before
};

// The sums of integers of rows and panels over one part of a run. `codes` and `offsets` are those
// of the tile's first row. Inlined by force, as what follows: sums stay in registers.
template <typename Kind, int kRows, int kPanels>
[[gnu::always_inline]] inline void sum_part(const PanelRuns<Kind>& runs,
                                            const std::byte* const (&panels)[kPanels],
                                            Index run,
                                            int part,
                                            const std::byte* codes,
                                            const std::int32_t* offsets,
                                            typename Kind::Sum (&integers)[kRows][kPanels]) {
  constexpr int kQuads = 8 / Kind::kParts;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) integers[r][p].begin(offsets[r]);
  }
#pragma GCC unroll 8
  for (int quad = part * kQuads; quad < (part + 1) * kQuads; ++quad) {
    Ints w[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      w[p] = runs.codes(panels[p], run, quad);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        integers[r][p].add(w[p], codes + r * kIntegerRun + quad * 4);
      }
    }
  }
}

// totals[r][p] += row first + r of the block times panel p.
template <typename Kind, int kRows, int kPanels>
void add_integer_tile(const IntegerPanels& format,
                      IntegerTile<kPanels> tile,
                      Vec (&totals)[kRows][kPanels]) {
  const PanelRuns<Kind> runs(format);
  const Index stride = tile.x.rows;
  const std::byte* codes = tile.x.codes + tile.first * kIntegerRun;
  const float* steps = tile.x.steps + tile.first;
  const std::int32_t* offsets = tile.x.offsets + tile.first;
  const float* row_sums = tile.x.sums + tile.first;
  for (Index column = 0; column < tile.columns; column += Kind::kRuns * kIntegerRun) {
    Vec factors[kPanels];
    Vec minimum_factors[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      factors[p] = runs.factor(tile.panels[p]);
      minimum_factors[p] = runs.minimum_factor(tile.panels[p]);
    }
    for (Index run = 0; run < Kind::kRuns; ++run) {
      if (tile.prefetches) {
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) runs.prefetch_run(tile.panels[p], run);
      }
#pragma GCC unroll 2
      for (int part = 0; part < Kind::kParts; ++part) {
        typename Kind::Sum integers[kRows][kPanels];
        sum_part(runs, tile.panels, run, part, codes, offsets, integers);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          const Vec scale = runs.scales(tile.panels[p], factors[p], run, part);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            totals[r][p] = fused_multiply_add(to_float(integers[r][p].total()),
                                              mul(scale, splat(steps[r])), totals[r][p]);
          }
          if constexpr (Kind::kHasMinimum) {
            const Vec minimum = runs.minimums(tile.panels[p], minimum_factors[p], run, part);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
              totals[r][p] = fused_multiply_add(minimum, splat(row_sums[r]), totals[r][p]);
            }
          }
        }
        offsets += stride;
        row_sums += stride;
      }
      codes += stride * kIntegerRun;
      steps += stride;
    }
    for (const std::byte*& panel : tile.panels) panel += format.unit_bytes();
  }
}

// Calls f.template operator()<Kind>() with the kind of the format, which is one of those that
// integer_format() (tensor/integer_blocks.h) gives.
template <typename F>
inline void with_kind(const IntegerPanels& format, F f) {
  const auto call = [&]<int kBits, ScaleType kType, bool kMinimum, int kParts = 1,
                        bool kLevels = false>() {
    f.template operator()<PanelKind<kBits, kParts, kType, kMinimum, kLevels>>();
  };
  const auto with_minimum = [&]<ScaleType kType>() {
    if (format.bits == 4) return call.template operator()<4, kType, true>();
    if (format.bits == 5) return call.template operator()<5, kType, true>();
    if (format.bits == 6) return call.template operator()<6, kType, true>();
    call.template operator()<8, kType, true>();
  };
  using enum ScaleType;
  if (format.levels != nullptr) {
    return format.scale_type == kCode  ? call.template operator()<4, kCode, false, 1, true>()
           : format.scale_type == kF16 ? call.template operator()<4, kF16, false, 1, true>()
                                       : call.template operator()<4, kBf16, false, 1, true>();
  }
  if (format.scale_type == kCode) {
    const bool halves = format.group < kIntegerRun;
    if (format.bits == 6) return call.template operator()<6, kCode, false, 2>();
    if (format.bits == 5) return call.template operator()<5, kCode, true>();
    if (!format.has_minimum) return call.template operator()<4, kCode, false, 2>();
    return halves ? call.template operator()<4, kCode, true, 2>()
                  : call.template operator()<4, kCode, true>();
  }
  if (format.scale_type == kF32) return with_minimum.template operator()<kF32>();
  if (format.scale_type == kBf16) return with_minimum.template operator()<kBf16>();
  if (format.has_minimum) return with_minimum.template operator()<kF16>();
  return format.bits == 4   ? call.template operator()<4, kF16, false>()
         : format.bits == 5 ? call.template operator()<5, kF16, false>()
                            : call.template operator()<8, kF16, false>();
}

// The multiplications and steps of a run of columns of five rows and two panels, or of three rows,
// with codes that are there: the bound of add_integer_tile(). The assembly says that memory may
// have changed, so that no round is done once for all.
template <typename Kind>
double run_integer_bound(Index rounds) {
  constexpr int kChains = kTallIntegerRows > 0 ? 10 : 3;
  constexpr int kWide = kTallIntegerRows > 0 ? 2 : 1;
  alignas(64) const std::byte codes[2][64] = {};
  alignas(64) const std::byte x[kIntegerRun + 4 * kChains] = {};
  Vec totals[kChains];
  for (Vec& total : totals) total = zero();
  Vec step = zero();
  const Vec scale = splat(1.0F);
  for (Index part = 0; part < rounds * Kind::kParts; ++part) {
    asm volatile("" : : "r"(codes), "r"(x) : "memory");
    keep(step);
    const Ints w[2] = {load_codes(codes[0]), load_codes(codes[1])};
    typename Kind::Sum integers[kChains];
#pragma GCC unroll 10
    for (auto& sum : integers) sum.begin(0);
#pragma GCC unroll 8
    for (int quad = 0; quad < 8 / Kind::kParts; ++quad) {
#pragma GCC unroll 10
      for (int c = 0; c < kChains; ++c) {
        integers[c].add(w[c % kWide], x + 4 * (quad + c / kWide));
      }
    }
#pragma GCC unroll 10
    for (int c = 0; c < kChains; ++c) {
      totals[c] = fused_multiply_add(to_float(integers[c].total()), mul(scale, step), totals[c]);
      if constexpr (Kind::kHasMinimum) totals[c] = fused_multiply_add(scale, step, totals[c]);
    }
  }
  Vec total = zero();
  for (const Vec& sum : totals) total = add(total, sum);
  volatile float sink = reduce_add(total);
  (void)sink;
  return static_cast<double>(rounds * kChains * kIntegerRun * kPanelRows);
}

inline double integer_bound(const IntegerPanels& panels, Index rounds) {
  double done = 0.0;
  with_kind(panels, [&]<typename Kind>() { done = run_integer_bound<Kind>(rounds); });
  return done;
}

template <int kRows, int kPanels>
using AddIntegerTile = void (*)(const IntegerPanels&,
                                IntegerTile<kPanels>,
                                Vec (&)[kRows][kPanels]);

template <int kRows, int kPanels>
inline AddIntegerTile<kRows, kPanels> tile_of(const IntegerPanels& format) {
  AddIntegerTile<kRows, kPanels> tile = nullptr;
  with_kind(format, [&]<typename Kind>() { tile = add_integer_tile<Kind, kRows, kPanels>; });
  return tile;
}

// Rows [row, row + kRows), of one block, times the panels [panel, panel + count), no more than a
// tile has, or the same panels of gate and up. `prefetches`: no tile has read them before.
template <int kRows, int kPanels>
void multiply_integer_tile(
    const Product& product, Index row, Index panel, Index count, bool prefetches) {
  const Index block = row / kRowBlock * kRowBlock;
  IntegerTile<kPanels> tile;
  tile.x = integer_rows(product, block);
  tile.first = row - block;
  tile.columns = product.columns;
  tile.prefetches = prefetches;
  const AddIntegerTile<kRows, kPanels> add = tile_of<kRows, kPanels>(product.integers);
  const auto sum_up = [&](const std::byte* panels, Vec(&totals)[kRows][kPanels]) {
    for (int p = 0; p < kPanels; ++p) {
      // Beyond the last panel the tile computes that one again.
      tile.panels[p] = panels + (panel + (p < count ? p : count - 1)) * product.panel_bytes;
      for (int r = 0; r < kRows; ++r) totals[r][p] = zero();
    }
    add(product.integers, tile, totals);
  };
  Vec values[kRows][kPanels];
  sum_up(product.panels, values);
  if (product.up_panels != nullptr) {
    Vec ups[kRows][kPanels];
    sum_up(product.up_panels, ups);
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) {
        values[r][p] = mul(activate(product.activation, values[r][p]), ups[r][p]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < count; ++p) finish(product, row + r, panel + p, values[r][p]);
  }
}

// Multiplies `height` <= kRows rows.
template <int kRows>
inline void multiply_integer_height(
    const Product& product, Index row, Index height, Index panel, Index count, bool prefetches) {
  if (height == kRows) {
    multiply_integer_tile<kRows, kIntegerPanels>(product, row, panel, count, prefetches);
  } else if constexpr (kRows > 1) {
    multiply_integer_height<kRows - 1>(product, row, height, panel, count, prefetches);
  }
}

// Rows [first, last), of one block, times the panels [panel, panel + count), no more than a tile
// has. Many rows take tall tiles, whose panels are unpacked less often.
inline void multiply_integer_block(
    const Product& product, Index first, Index last, Index panel, Index count, bool prefetches) {
  Index row = first;
  if constexpr (kTallIntegerRows > 0) {
    constexpr Index kNarrow = kIntegerPanels / 2;
    for (; row + kTallIntegerRows <= last; row += kTallIntegerRows) {
      for (Index p = 0; p < count; p += kNarrow) {
        multiply_integer_tile<kTallIntegerRows, kNarrow>(product, row, panel + p,
                                                         count - p < kNarrow ? count - p : kNarrow,
                                                         prefetches && row == first);
      }
    }
  }
  // Tiles of equal height, as in other products.
  const Index tiles = (last - row + kIntegerRows - 1) / kIntegerRows;
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index height = (last - row + tiles - tile - 1) / (tiles - tile);
    multiply_integer_height<kIntegerRows>(product, row, height, panel, count,
                                          prefetches && row == first);
    row += height;
  }
}

inline void multiply_integer_vectors(const Product& product, const ProductPart& part) {
  for (Index panel = part.first_panel; panel < part.last_panel; panel += kIntegerPanels) {
    const Index left = part.last_panel - panel;
    const Index count = left < kIntegerPanels ? left : kIntegerPanels;
    for (Index first = part.first_row; first < part.last_row; first += kRowBlock) {
      const Index last = part.last_row - first < kRowBlock ? part.last_row : first + kRowBlock;
      multiply_integer_block(product, first, last, panel, count, first == part.first_row);
    }
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
