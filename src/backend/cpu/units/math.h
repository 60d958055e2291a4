// Exponential, tanh and the activations on vectors, each lane alike. Included after a vector
// header.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

// e^x within 2 ulp for -87 <= x <= 88.37; 0 below (also for -inf), e^88.37 above; NaN stays NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series, whose remainder r^8 / 8! is below
// 6e-9.
inline Vec exp(Vec x) {
  const Vec limited = min(splat(88.37F), x);
  const Vec n = round_nearest(mul(max(splat(-126.0F), limited), splat(1.44269504F)));
  // ln 2 in two parts, the first with few enough bits for n * part to be exact.
  Vec r = negative_multiply_add(n, splat(0.693359375F), limited);
  r = negative_multiply_add(n, splat(-2.12194440e-4F), r);
  Vec p = splat(1.0F / 5040.0F);
  p = multiply_add(p, r, splat(1.0F / 720.0F));
  p = multiply_add(p, r, splat(1.0F / 120.0F));
  p = multiply_add(p, r, splat(1.0F / 24.0F));
  p = multiply_add(p, r, splat(1.0F / 6.0F));
  p = multiply_add(p, r, splat(0.5F));
  p = multiply_add(p, r, splat(1.0F));
  p = multiply_add(p, r, splat(1.0F));
  return select_less(x, splat(-87.0F), zero(), scale_by_power(p, n));
}

// Within 3 ulp. Below 0.6 the fifth convergent of Lambert's continued fraction (relative error
// below 1e-9), else (e^2a - 1) / (e^2a + 1); beyond 10 the result is 1 in f32.
inline Vec tanh(Vec x) {
  const Vec a = min(splat(10.0F), absolute(x));
  const Vec s = mul(a, a);
  const Vec small_over = mul(a, multiply_add(s, add(s, splat(105.0F)), splat(945.0F)));
  const Vec small_under =
      multiply_add(s, multiply_add(s, splat(15.0F), splat(420.0F)), splat(945.0F));
  const Vec e = exp(add(a, a));
  const Vec limit = splat(0.6F);
  const Vec over = select_less(a, limit, small_over, sub(e, splat(1.0F)));
  const Vec under = select_less(a, limit, small_under, add(e, splat(1.0F)));
  return with_sign_of(div(over, under), x);
}

// x / (1 + e^-y): for y = 2 sqrt(2/pi) (x + 0.044715 x^3) this is x (1 + tanh(y / 2)) / 2, GELU
// without its cancellation at negative x; for y = x it is SiLU.
inline Vec activate(Activation activation, Vec x) {
  Vec y = x;
  if (activation == Activation::kGeluTanh) {
    const Vec cubic = mul(mul(x, x), splat(0.044715F));
    y = mul(multiply_add(cubic, x, x), splat(1.59576912F));
  }
  return div(x, add(splat(1.0F), exp(sub(zero(), y))));
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
