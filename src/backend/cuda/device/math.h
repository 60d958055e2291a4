// Functions that the device has only approximately, or not with the host's bits: in double, by
// polynomials, so that a result rounded to f32 is nearly always the nearest number.
#pragma once

#include "backend/cuda/device/dev.h"

namespace kakeya::cuda::device {

KAKEYA_DEVICE double exp(double x) {
  if (x != x) return x;
  if (x < -700.0) return 0.0;
  if (x > 700.0) return dev::double_of(0x7ff0000000000000U);
  const double n = dev::round_even(x * 0x1.71547652b82fep+0);
  double r = dev::fma(-n, 0x1.62e42fefa39efp-1, x);
  r = dev::fma(-n, 0x1.abc9e3b39803fp-56, r);
  // Taylor's series: |r| is at most 0.35.
  double sum = 1.0 / 6227020800.0;
  sum = dev::fma(sum, r, 1.0 / 479001600.0);
  sum = dev::fma(sum, r, 1.0 / 39916800.0);
  sum = dev::fma(sum, r, 1.0 / 3628800.0);
  sum = dev::fma(sum, r, 1.0 / 362880.0);
  sum = dev::fma(sum, r, 1.0 / 40320.0);
  sum = dev::fma(sum, r, 1.0 / 5040.0);
  sum = dev::fma(sum, r, 1.0 / 720.0);
  sum = dev::fma(sum, r, 1.0 / 120.0);
  sum = dev::fma(sum, r, 1.0 / 24.0);
  sum = dev::fma(sum, r, 1.0 / 6.0);
  sum = dev::fma(sum, r, 0.5);
  sum = dev::fma(sum, r, 1.0);
  sum = dev::fma(sum, r, 1.0);
  const auto exponent = static_cast<std::int64_t>(n) + 1023;
  return sum * dev::double_of(static_cast<std::uint64_t>(exponent) << 52);
}

KAKEYA_DEVICE double tanh(double x) {
  if (x > 20.0) return 1.0;
  if (x < -20.0) return -1.0;
  // Where the difference below would lose digits.
  if (x < 1e-4 && x > -1e-4) return x - x * x * x / 3.0;
  const double e = device::exp(2.0 * x);
  return (e - 1.0) / (e + 1.0);
}

struct Turn {
  float cos;
  float sin;
};

// Cosine and sine, for angles up to 2^24 or so.
KAKEYA_DEVICE Turn turn_by(float angle) {
  const double x = angle;
  const double n = dev::round_even(x * 0x1.45f306dc9c883p-1);
  double r = dev::fma(-n, 0x1.921fb54442d18p+0, x);
  r = dev::fma(-n, 0x1.1a62633145c07p-54, r);
  const double s = r * r;
  double sine = -1.0 / 1307674368000.0;
  sine = dev::fma(sine, s, 1.0 / 6227020800.0);
  sine = dev::fma(sine, s, -1.0 / 39916800.0);
  sine = dev::fma(sine, s, 1.0 / 362880.0);
  sine = dev::fma(sine, s, -1.0 / 5040.0);
  sine = dev::fma(sine, s, 1.0 / 120.0);
  sine = dev::fma(sine, s, -1.0 / 6.0);
  sine = dev::fma(sine * s, r, r);
  double cosine = 1.0 / 20922789888000.0;
  cosine = dev::fma(cosine, s, -1.0 / 87178291200.0);
  cosine = dev::fma(cosine, s, 1.0 / 479001600.0);
  cosine = dev::fma(cosine, s, -1.0 / 3628800.0);
  cosine = dev::fma(cosine, s, 1.0 / 40320.0);
  cosine = dev::fma(cosine, s, -1.0 / 720.0);
  cosine = dev::fma(cosine, s, 1.0 / 24.0);
  cosine = dev::fma(cosine, s, -0.5);
  cosine = dev::fma(cosine, s, 1.0);
  const auto quarter = static_cast<std::int64_t>(n) & 3;
  const double c = quarter % 2 == 0 ? cosine : sine;
  const double q = quarter % 2 == 0 ? sine : cosine;
  return {static_cast<float>(quarter == 1 || quarter == 2 ? -c : c),
          static_cast<float>(quarter >= 2 ? -q : q)};
}

// GELU with the tanh approximation, or SiLU. Both have one power and one quotient, and so one piece
// of code: tanh(inner) is as above.
KAKEYA_DEVICE double activate(bool silu, double x) {
  const double inner = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
  const bool is_small = !silu && inner < 1e-4 && inner > -1e-4;
  const double e = device::exp(silu ? -x : 2.0 * inner);
  const double over = silu ? x : is_small ? inner * inner * inner : e - 1.0;
  const double quotient = over / (is_small ? 3.0 : 1.0 + e);
  if (silu) return quotient;
  double turned = is_small ? inner - quotient : quotient;
  if (inner > 20.0) turned = 1.0;
  if (inner < -20.0) turned = -1.0;
  return 0.5 * x * (1.0 + turned);
}

KAKEYA_DEVICE float bf16_to_float(std::uint16_t bits) {
  return dev::float_of(static_cast<std::uint32_t>(bits) << 16);
}

// Ties to even; NaN stays NaN.
KAKEYA_DEVICE std::uint16_t float_to_bf16(float x) {
  const std::uint32_t bits = dev::bits_of(x);
  if (x != x) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

KAKEYA_DEVICE float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t rest = half & 0x7fffU;
  // The exponent of subnormal ones is made by a product, which is exact.
  const float magnitude = rest >= 0x7c00U ? dev::float_of(0x7f800000U | (rest & 0x3ffU) << 13)
                                          : dev::float_of(rest << 13) * 0x1p112F;
  return dev::float_of(sign | dev::bits_of(magnitude));
}

KAKEYA_DEVICE float magnitude(float x) {
  return dev::float_of(dev::bits_of(x) & 0x7fffffffU);
}

}  // namespace kakeya::cuda::device
