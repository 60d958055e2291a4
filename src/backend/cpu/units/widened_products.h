// Fast products of units without bf16 instructions: rows that were rounded to bf16 are kept widened
// and multiplied in f32. Included after products.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline void multiply_fast(const Product& product, const ProductPart& part) {
  multiply_vectors<WidenedStep>(product, part);
}

inline double f32_peak(Index rounds);
inline double bf16_peak(Index rounds) {
  return f32_peak(rounds);
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
