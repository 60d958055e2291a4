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

// Line `quad` of four columns of a run of codes.
template <int kBits>
inline Ints load_quad(const std::byte* run, int quad) {
  if constexpr (kBits == 8) {
    return load_codes(run + 64 * quad);
  } else {
    const Ints low = quad % 2 == 0 ? load_low_nibbles(run + 32 * quad)
                                   : load_high_nibbles(run + 32 * (quad - 1));
    if constexpr (kBits == 4) return low;
    return with_high_pairs(low, run + 256 + 64 * (quad / 4), 2 * (quad % 4));
  }
}

// A panel as runs of 32 columns, each in kParts parts with scales of their own. kCoded: scales are
// codes times a factor of the unit.
template <int kBitsOfCodes, int kPartsOfRun, bool kCoded>
class PanelRuns {
 public:
  static constexpr int kBits = kBitsOfCodes;
  static constexpr int kParts = kPartsOfRun;

  PanelRuns(const IntegerPanels& format, const std::byte* panel)
      : panel_(panel),
        unit_bytes_(format.unit_bytes()),
        code_bytes_(format.code_bytes()),
        scale_step_(kPanelRows * format.scale_bytes()),
        minimums_(format.scales_bytes()),
        factors_(format.factors_at()),
        minimum_factors_(format.factors_at() + format.factor_bytes()),
        unit_shift_(format.has_factors() ? 3 : 1),
        group_shift_(format.group == kIntegerUnit ? 1 : 0),
        scale_type_(format.scale_type) {}

  struct Run {
    const std::byte* codes;
    const std::byte* scales;  // of its first part
    const std::byte* unit;
  };

  // kPrefetch: also brings in what a later call will want. What follows is inlined by force: g++
  // would call it once a run of columns, which costs more than the run's arithmetic.
  template <bool kPrefetch>
  [[gnu::always_inline]] Run run(Index index) const {
    const std::byte* unit = panel_ + (index >> unit_shift_) * unit_bytes_;
    const Index number = index & ((1 << unit_shift_) - 1);
    const std::byte* codes = unit + number * kRunBytes;
    if constexpr (kPrefetch) {
#pragma GCC unroll 8
      for (Index line = 0; line < kRunBytes; line += 64) {
        prefetch(codes + line + kIntegerPrefetchBytes);
      }
      const Index line = code_bytes_ + number * 64;
      if (line < unit_bytes_) prefetch(unit + line + kIntegerPrefetchBytes);
    }
    // Scales of a group of 64 columns serve two runs.
    return {codes, unit + code_bytes_ + (number >> group_shift_) * kParts * scale_step_, unit};
  }

  [[gnu::always_inline]] Vec scales(const Run& run, int part) const {
    return load(run.scales + part * scale_step_, run.unit + factors_);
  }
  [[gnu::always_inline]] Vec minimums(const Run& run, int part) const {
    return load(run.scales + minimums_ + part * scale_step_, run.unit + minimum_factors_);
  }

 private:
  static constexpr Index kRunBytes = kBits * kPanelRows * kIntegerRun / 8;

  [[gnu::always_inline]] Vec load(const std::byte* scales, const std::byte* factors) const {
    if constexpr (kCoded) return mul(load_int8(scales), load_half(factors));  // exact: 8 bits by 11
    if (scale_type_ == ScaleType::kF16) return load_half(scales);
    if (scale_type_ == ScaleType::kBf16) return load_bf16(scales);
    return KAKEYA_CPU_UNIT::load(reinterpret_cast<const float*>(scales));
  }

  const std::byte* panel_;
  Index unit_bytes_;
  Index code_bytes_;
  Index scale_step_;  // to the scales of the next part
  Index minimums_;    // from the scales
  Index factors_;     // from the unit's beginning
  Index minimum_factors_;
  int unit_shift_;
  int group_shift_;
  ScaleType scale_type_;
};

// sums[r] += row first + r of a block times a panel.
template <typename Runs, int kRows>
inline void add_integer_runs(const IntegerRows& x,
                             Index first,
                             Index columns,
                             bool has_minimum,
                             const Runs& runs,
                             Vec (&sums)[kRows]) {
  constexpr int kBits = Runs::kBits;
  constexpr int kParts = Runs::kParts;
  constexpr int kQuads = 8 / kParts;
  // Copies, which stay in registers: a store in the loop would be waited for in the next round.
  Vec totals[kRows];
  for (int r = 0; r < kRows; ++r) totals[r] = sums[r];
  for (Index run = 0; run < columns / kIntegerRun; ++run) {
    // One row takes lines as fast as they come, and what fetches them by itself needs no help.
    const auto at = runs.template run<(kRows > 1)>(run);
    const std::byte* row_codes = x.codes + (run * x.rows + first) * kIntegerRun;
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      const Index sum = run * kParts + part;
      QuadSum<kBits> integers[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) integers[r].begin(x.offsets[sum * x.rows + first + r]);
#pragma GCC unroll 8
      for (int quad = part * kQuads; quad < (part + 1) * kQuads; ++quad) {
        const Ints w = load_quad<kBits>(at.codes, quad);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          integers[r].add(w, row_codes + r * kIntegerRun + quad * 4);
        }
      }
      const Vec scale = runs.scales(at, part);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec step = splat(x.steps[run * x.rows + first + r]);
        totals[r] = fused_multiply_add(to_float(integers[r].total()), mul(scale, step), totals[r]);
      }
      if (!has_minimum) continue;
      const Vec minimum = runs.minimums(at, part);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec sum_of_row = splat(x.sums[sum * x.rows + first + r]);
        totals[r] = fused_multiply_add(minimum, sum_of_row, totals[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) sums[r] = totals[r];
}

// Calls f(runs) with the PanelRuns of the panel.
template <typename F>
inline void with_runs(const IntegerPanels& format, const std::byte* panel, F f) {
  const auto with_parts = [&]<int kParts, bool kCoded>() {
    if (format.bits == 4) return f(PanelRuns<4, kParts, kCoded>(format, panel));
    if (format.bits == 6) return f(PanelRuns<6, kParts, kCoded>(format, panel));
    f(PanelRuns<8, kParts, kCoded>(format, panel));
  };
  const bool coded = format.scale_type == ScaleType::kCode;
  if (format.group < kIntegerRun) {
    return coded ? with_parts.template operator()<2, true>()
                 : with_parts.template operator()<2, false>();
  }
  return coded ? with_parts.template operator()<1, true>()
               : with_parts.template operator()<1, false>();
}

template <int kRows>
inline void add_integers(const Product& product,
                         const IntegerRows& x,
                         Index first,
                         const std::byte* panel,
                         Vec (&sums)[kRows]) {
  const IntegerPanels& format = product.integers;
  const Index columns = product.columns;
  for (Vec& sum : sums) sum = zero();
  with_runs(format, panel, [&](const auto& runs) {
    add_integer_runs(x, first, columns, format.has_minimum, runs, sums);
  });
}

// Rows [row, row + kRows), of one block, times a panel, or the same panel of gate and up.
template <int kRows>
inline void multiply_integer_tile(const Product& product, Index row, Index panel) {
  const Index block = row / kRowBlock * kRowBlock;
  const IntegerRows x = integer_rows(product, block);
  const Index at = panel * product.panel_bytes;
  Vec values[kRows];
  add_integers(product, x, row - block, product.panels + at, values);
  if (product.up_panels != nullptr) {
    Vec ups[kRows];
    add_integers(product, x, row - block, product.up_panels + at, ups);
    for (int r = 0; r < kRows; ++r) {
      values[r] = mul(activate(product.activation, values[r]), ups[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) finish(product, row + r, panel, values[r]);
}

// Multiplies `height` <= kRows rows.
template <int kRows>
inline void multiply_integer_height(const Product& product, Index row, Index height, Index panel) {
  if (height == kRows) {
    multiply_integer_tile<kRows>(product, row, panel);
  } else if constexpr (kRows > 1) {
    multiply_integer_height<kRows - 1>(product, row, height, panel);
  }
}

inline void multiply_integer_vectors(const Product& product, const ProductPart& part) {
  for (Index panel = part.first_panel; panel < part.last_panel; ++panel) {
    for (Index block = part.first_row; block < part.last_row; block += kRowBlock) {
      const Index left = part.last_row - block;
      const Index rows = left < kRowBlock ? left : kRowBlock;
      // Tiles of equal height, as in other products.
      const Index tiles = (rows + kIntegerRows - 1) / kIntegerRows;
      Index row = block;
      for (Index tile = 0; tile < tiles; ++tile) {
        const Index height = (block + rows - row + tiles - tile - 1) / (tiles - tile);
        multiply_integer_height<kIntegerRows>(product, row, height, panel);
        row += height;
      }
    }
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
