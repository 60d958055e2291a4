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

}  // namespace kakeya::cuda::device
