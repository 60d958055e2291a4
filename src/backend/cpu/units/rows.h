// Row-wise leaves. A row's tail runs the same code on masked lanes, so an element's bits depend
// neither on its place nor on the row's length. Included after math.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

// out[i] = f(x[i]) with f(vector, first element, count).
template <typename F>
inline void map_row(const float* x, Index width, float* out, F f) {
  Index i = 0;
  for (; i + 16 <= width; i += 16) store(out + i, f(load(x + i), i, Index{16}));
  if (i < width) store_part(out + i, f(load_part(x + i, width - i), i, width - i), width - i);
}

inline Vec load_count(const float* p, Index count) {
  return count == 16 ? load(p) : load_part(p, count);
}
inline void store_count(float* p, Vec x, Index count) {
  if (count == 16) {
    store(p, x);
  } else {
    store_part(p, x, count);
  }
}

inline void rms_norm(const float* x, const float* weight, Index width, float eps, float* out) {
  // 64 fixed lanes: element i is summed in lane i mod 64, whatever the width.
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  Index i = 0;
  for (; i + 64 <= width; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Vec v = load(x + i + 16 * j);
      sums[j] = multiply_add(v, v, sums[j]);
    }
  }
  for (int j = 0; i < width; ++j, i += 16) {
    const Vec v = load_count(x + i, width - i < 16 ? width - i : 16);
    sums[j] = multiply_add(v, v, sums[j]);
  }
  const float sum = reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  const double mean = static_cast<double>(sum) / static_cast<double>(width);
  const Vec scale =
      splat(static_cast<float>(1.0 / __builtin_sqrt(mean + static_cast<double>(eps))));
  map_row(x, width, out, [&](Vec v, Index at, Index count) {
    const Vec scaled = mul(v, scale);
    return weight == nullptr ? scaled : mul(scaled, load_count(weight + at, count));
  });
}

inline void gated_multiply(
    const float* gate, const float* other, Index width, Activation activation, float* out) {
  map_row(gate, width, out, [&](Vec v, Index at, Index count) {
    return mul(activate(activation, v), load_count(other + at, count));
  });
}

inline void add_rows(const float* a, const float* b, Index width, float scale, float* out) {
  const Vec factor = splat(scale);
  map_row(a, width, out, [&](Vec v, Index at, Index count) {
    return mul(add(v, load_count(b + at, count)), factor);
  });
}

inline void softcap(float* x, Index width, float cap) {
  const Vec limit = splat(cap);
  map_row(x, width, x, [&](Vec v, Index, Index) { return mul(limit, tanh(div(v, limit))); });
}

inline void rotate(float* head, const float* cos, const float* sin, Index half) {
  for (Index i = 0; i < half; i += 16) {
    const Index count = half - i < 16 ? half - i : 16;
    const Vec low = load_count(head + i, count);
    const Vec high = load_count(head + half + i, count);
    const Vec c = load_count(cos + i, count);
    const Vec s = load_count(sin + i, count);
    store_count(head + i, sub(mul(low, c), mul(high, s)), count);
    store_count(head + half + i, add(mul(high, c), mul(low, s)), count);
  }
}

inline void to_bf16(const float* x, Index width, std::byte* out) {
  Index i = 0;
  for (; i + 16 <= width; i += 16) store_bf16(out + 2 * i, load(x + i));
  if (i < width) store_bf16_part(out + 2 * i, load_part(x + i, width - i), width - i);
}

inline void weighted_sum(const float* rows,
                         Index stride,
                         const std::int32_t* index,
                         const float* weights,
                         Index count,
                         Index width,
                         float* out) {
  for (Index i = 0; i < width; i += 16) {
    const Index lanes = width - i < 16 ? width - i : 16;
    Vec sum = zero();
    for (Index r = 0; r < count; ++r) {
      sum = multiply_add(splat(weights[r]), load_count(rows + index[r] * stride + i, lanes), sum);
    }
    store_count(out + i, sum, lanes);
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
