// e^x for probabilities, many at a time.
#pragma once

#include <bit>
#include <cstdint>

namespace kakeya {

// e^x, x from -80 to 0, within 1e-6 of it, in operations that the compiler turns into vectors: a
// row has as many logits as a vocabulary has tokens. e^x = 2^n * 2^f, |f| <= 1/2, the second factor
// by its Taylor polynomial.
inline float exponential(float x) {
  constexpr float kBitsPerNat = 1.44269504F;
  constexpr float kRounding = 12'582'912.0F;  // 1.5 * 2^23: the sum with it is a whole number
  const float bits = x * kBitsPerNat;
  const float shifted = bits + kRounding;
  const float f = bits - (shifted - kRounding);
  float power = 1.5403530e-4F;
  power = power * f + 1.3333558e-3F;
  power = power * f + 9.6181291e-3F;
  power = power * f + 5.5504109e-2F;
  power = power * f + 2.4022651e-1F;
  power = power * f + 6.9314718e-1F;
  power = power * f + 1.0F;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(power) + exponent);
}

}  // namespace kakeya
