// Weights whose codes are integers, and rows rounded to eight bits for them, as the device holds
// them.
//
// 128 columns are a group: four runs of 32. The last group of a row may end before its runs do; the
// rest of it is zeros. In units of 16 bytes a group of weights has
//
//   codes     of 8 bits: unit 2 q has, for each run, columns 4 q ... + 3, unit 2 q + 1 columns
//             16 + 4 q ... + 3, for q = 0 ... 3
//             of 4 bits: unit q has both, the second ones in the higher halves of the bytes
//   scales    of each run, or of each 16 columns: four a unit
//   minimums  likewise, where there are any
//
// so that lane l, which tensor cores want these columns from (q = l % 4), loads four runs at once.
// A group of a row has codes of 8 bits in the same order; steps, one a run; and sums of its codes:
// of the first 16 columns of each run, then of the others.
#pragma once

#include "backend/cuda/device/products.h"

namespace kakeya::cuda::device {

inline constexpr int kGroupColumns = 128;
inline constexpr int kGroupRuns = 4;
inline constexpr int kUnitWords = 4;
inline constexpr int kRowCodeUnits = 8;  // of a group

KAKEYA_DEVICE std::int64_t num_groups(std::int64_t columns) {
  return (columns + kGroupColumns - 1) / kGroupColumns;
}

// Where things are in a group of weights.
struct GroupLayout {
  bool four_bits;
  bool halves;
  bool has_minimum;

  KAKEYA_DEVICE explicit GroupLayout(const Weight& w)
      : four_bits(w.four_bits), halves(w.halves), has_minimum(w.has_minimum) {}

  // The first one or the second, whose members stay in registers.
  KAKEYA_DEVICE GroupLayout(bool is_first, const GroupLayout& first, const GroupLayout& second)
      : four_bits(is_first ? first.four_bits : second.four_bits),
        halves(is_first ? first.halves : second.halves),
        has_minimum(is_first ? first.has_minimum : second.has_minimum) {}

  KAKEYA_DEVICE int code_units() const { return four_bits ? 4 : 8; }
  // The units of scales, and as many of minimums.
  KAKEYA_DEVICE int scale_units() const { return halves ? 2 : 1; }
  KAKEYA_DEVICE int units() const { return code_units() + scale_units() * (has_minimum ? 2 : 1); }
  // Parts have a scale of their own.
  KAKEYA_DEVICE int parts() const { return kGroupRuns * scale_units(); }
};

// Element of one of the stacked rows: what is decoded from its format.
KAKEYA_DEVICE float integer_weight(const Weight& w, std::int64_t row, std::int64_t column) {
  const GroupLayout layout(w);
  const dev::Global<const std::uint32_t> words(static_cast<const std::uint32_t*>(w.data));
  const std::int64_t group = row * num_groups(w.cols) + column / kGroupColumns;
  const std::int64_t first = group * layout.units() * kUnitWords;
  const std::int64_t run = column / 32 % kGroupRuns;
  const std::int64_t half = column / 16 % 2;
  const std::int64_t four = column / 4 % 4;
  const std::int64_t unit = layout.four_bits ? four : 2 * four + half;
  const std::int64_t shift = 8 * (column % 4) + (layout.four_bits ? 4 * half : 0);
  const auto code = static_cast<int>(words.load(first + unit * kUnitWords + run) >> shift &
                                     (layout.four_bits ? 15U : 255U));
  const std::int64_t scale =
      first + layout.code_units() * kUnitWords + (layout.halves ? 2 * run + half : run);
  const float scaled = dev::float_of(words.load(scale)) * static_cast<float>(code - w.zero);
  const std::int64_t minimum = scale + layout.scale_units() * kUnitWords;
  return scaled + (layout.has_minimum ? dev::float_of(words.load(minimum)) : 0.0F);
}

// By a warp: run number `run` of a row, of which lane l has column l.
KAKEYA_DEVICE void round_run(const RoundParams& p, std::int64_t row, std::int64_t run, float x) {
  const float size = magnitude(x);
  const float largest = dev::warp_max(size > 0.0F ? size : 0.0F);  // NaN counts as 0 here
  const bool tiny = !(largest > 1e-36F);
  const float code = dev::round_even(x * (tiny ? 0.0F : 127.0F / largest));
  // NaN becomes 127.
  const float bounded = code < 127.0F ? (code > -127.0F ? code : -127.0F) : 127.0F;
  const std::int64_t group = row * num_groups(p.width) + run / kGroupRuns;
  const int half = dev::lane() / 16;
  const int unit = dev::lane() / 4 % 4 * 2 + half;
  const auto in_group = static_cast<int>(run % kGroupRuns);
  dev::Global<std::int8_t>(p.codes).store(
      (group * kRowCodeUnits + unit) * 16 + in_group * 4 + dev::lane() % 4,
      static_cast<std::int8_t>(bounded));
  float sums[2] = {half == 0 ? bounded : 0.0F, half == 1 ? bounded : 0.0F};
  dev::warp_sums(sums);
  if (dev::lane() != 0) return;
  dev::Global<float>(p.steps).store(group * kGroupRuns + in_group, tiny ? 0.0F : largest / 127.0F);
  const dev::Global<float> code_sums(p.code_sums);
  KAKEYA_UNROLL
  for (int h = 0; h < 2; ++h) {
    code_sums.store((2 * group + h) * kGroupRuns + in_group, sums[h]);
  }
}

// Rows as products with integers see them. Grid: runs of 32 columns / kProductWarps, rows.
KAKEYA_DEVICE void round_rows(const RoundParams& p) {
  const std::int64_t run = product_warp();
  if (run >= p.width / 32) return;
  const dev::Global<const float> x(p.x);
  round_run(p, dev::block_y(), run, x.load(dev::block_y() * p.width + run * 32 + dev::lane()));
}

}  // namespace kakeya::cuda::device
