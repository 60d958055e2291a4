// Rounding of runs (integer_strips.h) by a warp, four at a time: eight lanes have one, each of them
// four columns of it. The codes and the numbers are those of round_run(): integers add up to the
// same in any order.
#pragma once

#include "backend/cuda/device/integer_strips.h"

namespace kakeya::cuda::device {

inline constexpr int kGroupColumns = 4 * dev::kWarp;

// A lane's part of kCount groups of four runs each, which it rounds side by side.
template <int kCount>
struct RunGroups {
  std::uint32_t codes[kCount];  // of its columns
  float sums[kCount];           // of its run, as all that follow
  float lows[kCount];           // of the first 16 columns; in the first four lanes
  float steps[kCount];

  KAKEYA_DEVICE explicit RunGroups(const FourFloats (&x)[kCount]) {
    float largest[kCount];
    find_largest(x, largest);
    KAKEYA_UNROLL
    for (int k = 0; k < kCount; ++k) {
      const RunScale scale(largest[k]);
      float own[4];
      KAKEYA_UNROLL
      for (int i = 0; i < 4; ++i) own[i] = scale.code(x[k].at[i]);
      codes[k] = word_of(own);
      sums[k] = (own[0] + own[1]) + (own[2] + own[3]);
      steps[k] = scale.step;
    }
    add_lanes(sums, 1);
    add_lanes(sums, 2);
    // As with zeros of the other columns.
    KAKEYA_UNROLL
    for (int k = 0; k < kCount; ++k) lows[k] = sums[k] + 0.0F;
    add_lanes(sums, 4);
  }

 private:
  KAKEYA_DEVICE static float larger_of(float a, float b) { return b > a ? b : a; }

  KAKEYA_DEVICE static void find_largest(const FourFloats (&x)[kCount], float (&largest)[kCount]) {
    KAKEYA_UNROLL
    for (int k = 0; k < kCount; ++k) {
      float sizes[4];
      KAKEYA_UNROLL
      for (int i = 0; i < 4; ++i) sizes[i] = run_magnitude(x[k].at[i]);
      largest[k] = larger_of(larger_of(sizes[0], sizes[1]), larger_of(sizes[2], sizes[3]));
    }
    KAKEYA_UNROLL
    for (int apart = 1; apart < 8; apart *= 2) {
      float others[kCount];
      KAKEYA_UNROLL
      for (int k = 0; k < kCount; ++k) others[k] = largest[k];
      dev::warp_swap(others, apart);
      KAKEYA_UNROLL
      for (int k = 0; k < kCount; ++k) largest[k] = larger_of(largest[k], others[k]);
    }
  }

  KAKEYA_DEVICE static std::uint32_t word_of(const float (&own)[4]) {
    std::uint32_t word = 0;
    KAKEYA_UNROLL
    for (int i = 0; i < 4; ++i) {
      word |= (static_cast<std::uint32_t>(static_cast<int>(own[i])) & 255U) << (8 * i);
    }
    return word;
  }

  KAKEYA_DEVICE static void add_lanes(float (&all)[kCount], int apart) {
    float others[kCount];
    KAKEYA_UNROLL
    for (int k = 0; k < kCount; ++k) others[k] = all[k];
    dev::warp_swap(others, apart);
    KAKEYA_UNROLL
    for (int k = 0; k < kCount; ++k) all[k] = all[k] + others[k];
  }
};

// Codes and numbers of rounded rows in the device's memory, where ProductRows has them.
struct RoundedRows {
  std::int8_t* codes;
  float* numbers;
  float* low_sums;

  // Stores the lane's part of a run of group number `k`; `first`: the step at which its row begins.
  template <int kCount>
  KAKEYA_DEVICE void store(std::int64_t first,
                           int run,
                           const RunGroups<kCount>& rounded,
                           int k) const {
    const std::int64_t step = first + run / 2;
    const int in_step = run % 2;
    const int half = dev::lane() / 4 % 2;
    dev::Global<std::uint32_t>(reinterpret_cast<std::uint32_t*>(codes))
        .store(step * (kStepColumns / 4) + dev::lane() % 4 * kUnitWords + in_step * 2 + half,
               rounded.codes[k]);
    if (dev::lane() % 8 != 0) return;
    dev::Global<TwoFloats>(reinterpret_cast<TwoFloats*>(numbers))
        .store(step * (kStepNumbers / 2) + in_step, {{rounded.sums[k], rounded.steps[k]}});
    dev::Global<float>(low_sums).store(step * kStepLowSums + in_step, rounded.lows[k]);
  }
};

// Rows as products with integers see them. Grid: groups of a row / kProductWarps, rows.
KAKEYA_DEVICE void round_rows(const RoundParams& p) {
  const std::int64_t column = product_warp() * kGroupColumns + dev::lane() * 4;
  if (product_warp() * kGroupColumns >= p.width) return;
  const bool is_there = column < p.width;
  const std::int64_t first = dev::block_y() * p.width + (is_there ? column : 0);
  FourFloats x[1];
  if (reinterpret_cast<std::uintptr_t>(p.x) % alignof(FourFloats) == 0) {
    x[0] = dev::Global<const FourFloats>(reinterpret_cast<const FourFloats*>(p.x)).load(first / 4);
  } else {
    KAKEYA_UNROLL
    for (int i = 0; i < 4; ++i) x[0].at[i] = dev::Global<const float>(p.x).load(first + i);
  }
  if (!is_there) x[0] = {};
  const RunGroups<1> rounded(x);
  const std::int64_t steps = num_steps(p.width);
  const auto run = static_cast<int>(column / 32);
  if (run >= 2 * steps) return;
  RoundedRows{p.codes, p.numbers, p.low_sums}.store(dev::block_y() * steps, run, rounded, 0);
}

}  // namespace kakeya::cuda::device
