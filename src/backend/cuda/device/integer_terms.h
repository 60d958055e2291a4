// Products of the integers of weights and rows, made by warps on tensor cores and shared with their
// block: integer_groups.h says how both lie in memory.
#pragma once

#include "backend/cuda/device/integer_groups.h"

namespace kakeya::cuda::device {

inline constexpr int kIntegerWarps = 8;  // of a block
inline constexpr int kIntegerOutputs = 16;
inline constexpr int kIntegerRows = 8;
// Sixteen rows of weights. Behind row `last` stands that one again.
struct IntegerTile {
  const FourWords* data;  // of the first one
  int last;
  int groups;  // of a row
  float zero;
  GroupLayout layout;

  // Makes the tile from row `output` on of one of the stacked matrices, which begins at row
  // `matrix`.
  KAKEYA_DEVICE IntegerTile(const Weight& w, std::int64_t matrix, std::int64_t output)
      : data(static_cast<const FourWords*>(w.data)),
        last(w.rows - output < kIntegerOutputs ? static_cast<int>(w.rows - output) - 1
                                               : kIntegerOutputs - 1),
        groups(static_cast<int>(num_groups(w.cols))),
        zero(static_cast<float>(w.zero)),
        layout(w) {
    data += (matrix + output) * groups * layout.units();
  }

  // The first one or the second, as GroupLayout has it.
  KAKEYA_DEVICE IntegerTile(bool is_first, const IntegerTile& one, const IntegerTile& other)
      : data(is_first ? one.data : other.data),
        last(is_first ? one.last : other.last),
        groups(one.groups),
        zero(is_first ? one.zero : other.zero),
        layout(is_first, one.layout, other.layout) {}

  // Where row `output` of the sixteen begins, in units.
  KAKEYA_DEVICE int unit_of(int output) const {
    return (output < last ? output : last) * groups * layout.units();
  }
};

// The shared terms of some groups: for each part (runs, or halves of them) the integer products of
// kRows rows with sixteen outputs, scales, minimums, and the rows' sums of codes; for each run the
// rows' steps.
template <int kRows>
struct IntegerTerms {
  static constexpr int kRowWords = 20;  // keeps what lanes write at once in different banks
  static constexpr int kPartWords = kRows == 1 ? kIntegerOutputs : kRows * kRowWords;

  int first_word;
  int runs;  // that there is room for
  GroupLayout layout;

  KAKEYA_DEVICE IntegerTerms(int first, const GroupLayout& of, int groups)
      : first_word(first), runs(groups * kGroupRuns), layout(of) {}

  KAKEYA_DEVICE IntegerTerms(bool is_first, const IntegerTerms& one, const IntegerTerms& other)
      : first_word(is_first ? one.first_word : other.first_word),
        runs(is_first ? one.runs : other.runs),
        layout(is_first, one.layout, other.layout) {}

  KAKEYA_DEVICE int parts() const { return runs * layout.scale_units(); }
  KAKEYA_DEVICE int words() const { return (steps_at() - first_word) + runs * kRows; }

  KAKEYA_DEVICE dev::Shared<int> products() const { return dev::Shared<int>(first_word); }
  KAKEYA_DEVICE static int product_at(int part, int row, int output) {
    return part * kPartWords + row * kRowWords + output;
  }
  // Floats by part and output (scales, minimums), by part and row (code_sums), or by run and row
  // (steps).
  KAKEYA_DEVICE dev::Shared<float> scales() const {
    return dev::Shared<float>(first_word + parts() * kPartWords);
  }
  KAKEYA_DEVICE dev::Shared<float> minimums() const {
    return dev::Shared<float>(first_word + parts() * (kPartWords + kIntegerOutputs));
  }
  KAKEYA_DEVICE dev::Shared<float> code_sums() const { return dev::Shared<float>(sums_at()); }
  KAKEYA_DEVICE dev::Shared<float> steps() const { return dev::Shared<float>(steps_at()); }

 private:
  KAKEYA_DEVICE int sums_at() const {
    return first_word + parts() * (kPartWords + kIntegerOutputs * (layout.has_minimum ? 2 : 1));
  }
  KAKEYA_DEVICE int steps_at() const { return sums_at() + parts() * kRows; }
};

// The operands of a warp: a tile of outputs and up to kRows rows. Lane l has codes of outputs l / 4
// and 8 behind it, scales of output l % 16, and for row l / 4 the numbers of run l % 4.
template <int kRows>
struct IntegerWarp {
  const ProductRows& in;
  dev::Global<const FourWords> units;
  int groups;
  int codes_at[2];
  int scales_at;
  std::int64_t row_group;  // the first one of the row
  bool has_row;

  KAKEYA_DEVICE IntegerWarp(const ProductRows& rows,
                            const TileRows& tile_rows,
                            const IntegerTile& tile)
      : in(rows),
        units(tile.data),
        groups(tile.groups),
        codes_at{tile.unit_of(dev::lane() / 4) + own_unit(tile.layout),
                 tile.unit_of(dev::lane() / 4 + 8) + own_unit(tile.layout)},
        scales_at(tile.unit_of(dev::lane() % kIntegerOutputs) + tile.layout.code_units()),
        row_group(tile_rows.row(dev::lane() / 4) * tile.groups),
        has_row(dev::lane() / 4 < kRows && dev::lane() / 4 < tile_rows.count) {}

 private:
  KAKEYA_DEVICE static int own_unit(const GroupLayout& layout) {
    return dev::lane() % 4 * (layout.code_units() / 4);
  }
};

// A lane's part of a group, loaded before it is used.
template <int kRows, bool kFourBits>
struct LaneGroup {
  FourWords codes[2][kFourBits ? 1 : 2];
  FourWords scales;
  float step;
  float low;  // sums of codes
  float high;

  KAKEYA_DEVICE void load(const IntegerWarp<kRows>& w, const GroupLayout& layout, int group) {
    const int at = group * layout.units();
    KAKEYA_UNROLL
    for (int o = 0; o < 2; ++o) {
      KAKEYA_UNROLL
      for (int i = 0; i < (kFourBits ? 1 : 2); ++i) {
        codes[o][i] = w.units.load(w.codes_at[o] + at + i);
      }
    }
    const int unit = dev::lane() / kIntegerOutputs;
    const bool has_unit = layout.code_units() + unit < layout.units();
    scales = has_unit ? w.units.load(w.scales_at + at + unit) : FourWords{};
    step = low = high = 0.0F;
    if (!w.has_row) return;
    const dev::Global<const float> sums(w.in.code_sums);
    const std::int64_t first_run = (w.row_group + group) * kGroupRuns;
    const int run = dev::lane() % 4;
    step = dev::Global<const float>(w.in.steps).load(first_run + run);
    low = sums.load(2 * first_run + run);
    high = sums.load(2 * first_run + run + kGroupRuns);
  }

  // Columns of run `r` as tensor cores want them.
  KAKEYA_DEVICE void codes_of(int r, std::uint32_t (&a)[4]) const {
    KAKEYA_UNROLL
    for (int o = 0; o < 2; ++o) {
      if constexpr (kFourBits) {
        a[o] = codes[o][0].at[r] & 0x0f0f0f0fU;
        a[o + 2] = codes[o][0].at[r] >> 4 & 0x0f0f0f0fU;
      } else {
        a[o] = codes[o][0].at[r];
        a[o + 2] = codes[o][1].at[r];
      }
    }
  }

  // Shares the terms as group number `slot`.
  KAKEYA_DEVICE void share(const IntegerWarp<kRows>& w,
                           int group,
                           int slot,
                           const IntegerTerms<kRows>& terms) const {
    share_scales(scales, dev::lane() / kIntegerOutputs, slot, terms);
    const int last = dev::lane() / kIntegerOutputs + 2;  // of scales and minimums of halves
    if (terms.layout.code_units() + last < terms.layout.units()) {
      const int at = w.scales_at + group * terms.layout.units() + last;
      share_scales(w.units.load(at), last, slot, terms);
    }
    if (w.has_row) share_row(slot, terms);
    share_products(w, group, slot, terms);
  }

 private:
  // Shares one unit of the scales or minimums of the lane's output.
  KAKEYA_DEVICE static void share_scales(const FourWords& unit_words,
                                         int unit,
                                         int slot,
                                         const IntegerTerms<kRows>& terms) {
    const GroupLayout& layout = terms.layout;
    if (layout.code_units() + unit >= layout.units()) return;
    const int part = slot * layout.parts() + unit % layout.scale_units() * kUnitWords;
    const int at = part * kIntegerOutputs + dev::lane() % kIntegerOutputs;
    const dev::Shared<float> to = unit < layout.scale_units() ? terms.scales() : terms.minimums();
    KAKEYA_UNROLL
    for (int k = 0; k < kUnitWords; ++k) {
      to.store(at + k * kIntegerOutputs, dev::float_of(unit_words.at[k]));
    }
  }

  KAKEYA_DEVICE void share_row(int slot, const IntegerTerms<kRows>& terms) const {
    const int run = slot * kGroupRuns + dev::lane() % 4;
    const int tile_row = dev::lane() / 4;
    terms.steps().store(run * kRows + tile_row, step);
    const dev::Shared<float> sums = terms.code_sums();
    if (terms.layout.halves) {
      sums.store(2 * run * kRows + tile_row, low);
      sums.store((2 * run + 1) * kRows + tile_row, high);
    } else {
      sums.store(run * kRows + tile_row, low + high);
    }
  }

  KAKEYA_DEVICE void share_products(const IntegerWarp<kRows>& w,
                                    int group,
                                    int slot,
                                    const IntegerTerms<kRows>& terms) const {
    const dev::Global<const FourWords> rows(reinterpret_cast<const FourWords*>(w.in.codes));
    FourWords own[2] = {};
    if (w.has_row) {
      const std::int64_t at = (w.row_group + group) * kRowCodeUnits + dev::lane() % 4 * 2;
      KAKEYA_UNROLL
      for (int h = 0; h < 2; ++h) own[h] = rows.load(at + h);
    }
    std::uint32_t a[kGroupRuns][4];
    KAKEYA_UNROLL
    for (int r = 0; r < kGroupRuns; ++r) codes_of(r, a[r]);
    // All columns, or the first 16 of each run and then the others.
    const int halves = terms.layout.scale_units();
    KAKEYA_NO_UNROLL
    for (int h = 0; h < halves; ++h) {
      std::uint32_t b[kGroupRuns][2];
      int sums[kGroupRuns][4] = {};
      KAKEYA_UNROLL
      for (int r = 0; r < kGroupRuns; ++r) {
        b[r][0] = h == 0 ? own[0].at[r] : 0;
        b[r][1] = h == 1 || halves == 1 ? own[1].at[r] : 0;
      }
      dev::integer_mma(sums, a, b);
      KAKEYA_UNROLL
      for (int r = 0; r < kGroupRuns; ++r) {
        KAKEYA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int tile_row = dev::lane() % 4 * 2 + i % 2;
          if (tile_row >= kRows) continue;
          const int part = (slot * kGroupRuns + r) * halves + h;
          terms.products().store(terms.product_at(part, tile_row, dev::lane() / 4 + i / 2 * 8),
                                 sums[r][i]);
        }
      }
    }
  }
};

// Groups that a warp shares: every `apart`th of [begin, end), from number `slot` of them on.
struct GroupRange {
  int begin;
  int end;
  int slot;
  int apart;
};

template <int kRows, bool kFourBits>
KAKEYA_DEVICE void share_groups(const IntegerWarp<kRows>& w,
                                const GroupRange& range,
                                const IntegerTerms<kRows>& terms) {
  constexpr int kAhead = kFourBits ? 2 : 1;
  KAKEYA_NO_UNROLL
  for (int slot = range.slot; range.begin + slot < range.end; slot += kAhead * range.apart) {
    LaneGroup<kRows, kFourBits> ahead[kAhead];
    KAKEYA_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const int group = range.begin + slot + k * range.apart;
      ahead[k].load(w, terms.layout, group < range.end ? group : range.end - 1);
    }
    KAKEYA_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const int group = range.begin + slot + k * range.apart;
      if (group < range.end) ahead[k].share(w, group, group - range.begin, terms);
    }
  }
}

template <int kRows>
KAKEYA_DEVICE void share_groups(const IntegerWarp<kRows>& w,
                                const GroupRange& range,
                                const IntegerTerms<kRows>& terms) {
  if (terms.layout.four_bits) {
    share_groups<kRows, true>(w, range, terms);
  } else {
    share_groups<kRows, false>(w, range, terms);
  }
}

}  // namespace kakeya::cuda::device
