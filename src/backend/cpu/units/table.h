// The unit's leaves as a table. Included last by each unit.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline void multiply(const Product& product, const ProductPart& part) {
  switch (product.arithmetic) {
    case Arithmetic::kF32:
      return multiply_vectors<F32Step>(product, part);
    case Arithmetic::kBf16Exact:
      return multiply_vectors<WidenedStep>(product, part);
    case Arithmetic::kBf16Fast:
      return multiply_fast(product, part);
    case Arithmetic::kInteger:
      return multiply_integers(product, part);
  }
}

// Peak loops: the tile of the products with its operands in registers. The empty assembly makes
// every round's sums an input of the next, so that none can be dropped.
inline double f32_peak(Index rounds) {
  constexpr int kChains = most_rows(1);
  Vec sums[kChains];
  for (Vec& sum : sums) sum = zero();
  Vec a = splat(1.0F);
  const Vec b = splat(1e-6F);
  for (Index round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (Vec& sum : sums) sum = multiply_add(a, b, sum);
    keep(a);
  }
  Vec total = zero();
  for (const Vec& sum : sums) total = add(total, sum);
  volatile float sink = reduce_add(total);
  (void)sink;
  return static_cast<double>(rounds) * kChains * 32.0;
}

constexpr Kernels make_kernels(std::string_view name,
                               double fast_gflops,
                               double exact_gflops,
                               double integer_gflops) {
  Kernels kernels;
  kernels.name = name;
  kernels.fast_gflops = fast_gflops;
  kernels.exact_gflops = exact_gflops;
  kernels.integer_gflops = integer_gflops;
  kernels.fast_element_bytes = kFastBytes;
  kernels.panel_group = 4;
  kernels.pack_rows = pack_rows;
  kernels.multiply = multiply;
  kernels.attend = attend_fast;
  kernels.max_queries = max_queries;
  kernels.pack_panels = pack_panels;
  kernels.rms_norm = rms_norm;
  kernels.gated_multiply = gated_multiply;
  kernels.add = add_rows;
  kernels.softcap = softcap;
  kernels.rotate = rotate;
  kernels.to_bf16 = to_bf16;
  kernels.weighted_sum = weighted_sum;
  kernels.f32_peak = f32_peak;
  kernels.bf16_peak = bf16_peak;
  kernels.integer_bound = integer_bound;
  return kernels;
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
