// Fast products with vdpbf16ps, which adds the products of a pair of bf16 to an f32 lane. Included
// after products.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline __m512i splat_pair(const std::byte* p) {
  int pair = 0;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

inline Vec dot_pairs(Vec sum, __m512i x, __m512i w) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
}

// bf16 panels and rows.
struct DotStep {
  static constexpr Index kRowBytes = 2;

  template <int kRows, int kPanels>
  static inline void accumulate(const std::byte* x,
                                Index row_bytes,
                                Index columns,
                                const std::byte* const (&panels)[kPanels],
                                Vec (&sums)[kRows][kPanels]) {
    for (Index pair = 0; pair < columns / 2; ++pair) {
      __m512i w[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        prefetch(panels[p] + pair * 64 + kPrefetchBytes);
        w[p] = _mm512_loadu_si512(panels[p] + pair * 64);
      }
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const __m512i xs = splat_pair(x + r * row_bytes + 4 * pair);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) sums[r][p] = dot_pairs(sums[r][p], xs, w[p]);
      }
    }
  }
};

inline void multiply_fast(const Product& product, const ProductPart& part) {
  multiply_vectors<DotStep>(product, part);
}

inline double bf16_peak(Index rounds) {
  constexpr int kChains = 16;
  Vec sums[kChains];
  for (Vec& sum : sums) sum = zero();
  Vec x = splat(1.0F);
  for (Index round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (Vec& sum : sums) {
      sum = dot_pairs(sum, _mm512_castps_si512(x), _mm512_castps_si512(x));
    }
    keep(x);
  }
  Vec total = zero();
  for (const Vec& sum : sums) total = add(total, sum);
  volatile float sink = reduce_add(total);
  (void)sink;
  return static_cast<double>(rounds) * kChains * 64.0;
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
