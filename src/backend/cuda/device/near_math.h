// Functions that need not be the nearest number: in f32 and by fma alone, so that a card and the
// emulator give the same bits, and a card needs no doubles.
#pragma once

#include "backend/cuda/device/math.h"

namespace kakeya::cuda::device {

// Added to a number of at most 2^22 it leaves the nearest integer, in its lowest bits.
inline constexpr float kIntegerBits = 0x1.8p23F;

// e^x for x of at most 0, within 2 units in the last place; 0 below -87.
KAKEYA_DEVICE float near_exp(float x) {
  if (x < -87.0F) return 0.0F;
  const float shifted = dev::fma(x, 0x1.715476p+0F, kIntegerBits);
  const float n = shifted - kIntegerBits;
  float r = dev::fma(-n, 0x1.62e43p-1F, x);
  r = dev::fma(-n, -0x1.05c61p-29F, r);
  // Taylor's series: |r| is at most 0.35.
  float sum = 1.0F / 5040.0F;
  sum = dev::fma(sum, r, 1.0F / 720.0F);
  sum = dev::fma(sum, r, 1.0F / 120.0F);
  sum = dev::fma(sum, r, 1.0F / 24.0F);
  sum = dev::fma(sum, r, 1.0F / 6.0F);
  sum = dev::fma(sum, r, 0.5F);
  sum = dev::fma(sum, r, 1.0F);
  sum = dev::fma(sum, r, 1.0F);
  return sum * dev::float_of((dev::bits_of(shifted) + 127U) << 23);
}

// Cosine and sine within 2e-7, for angles up to 2^20 or so.
KAKEYA_DEVICE Turn near_turn_by(float angle) {
  const float shifted = dev::fma(angle, 0x1.45f306p-1F, kIntegerBits);
  const float n = shifted - kIntegerBits;
  // Exact: both are multiples of what the difference is a small multiple of.
  float r = dev::fma(-n, 0x1.921fb6p+0F, angle);
  r = dev::fma(-n, -0x1.777a5cp-25F, r);
  const float s = r * r;
  float sine = 1.0F / 362880.0F;
  sine = dev::fma(sine, s, -1.0F / 5040.0F);
  sine = dev::fma(sine, s, 1.0F / 120.0F);
  sine = dev::fma(sine, s, -1.0F / 6.0F);
  sine = dev::fma(sine * s, r, r);
  float cosine = -1.0F / 3628800.0F;
  cosine = dev::fma(cosine, s, 1.0F / 40320.0F);
  cosine = dev::fma(cosine, s, -1.0F / 720.0F);
  cosine = dev::fma(cosine, s, 1.0F / 24.0F);
  cosine = dev::fma(cosine, s, -0.5F);
  cosine = dev::fma(cosine, s, 1.0F);
  const std::uint32_t quarter = dev::bits_of(shifted) & 3U;
  const float c = quarter % 2 == 0 ? cosine : sine;
  const float q = quarter % 2 == 0 ? sine : cosine;
  return {quarter == 1 || quarter == 2 ? -c : c, quarter >= 2 ? -q : q};
}

}  // namespace kakeya::cuda::device
