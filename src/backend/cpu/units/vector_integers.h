// Products of integers in units without tiles. Included after integers.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline void multiply_integers(const Product& product, const ProductPart& part) {
  multiply_integer_vectors(product, part);
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
