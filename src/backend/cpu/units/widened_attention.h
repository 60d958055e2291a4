// Fast attention of units without tiles: as in f32 mode. Included after restored.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline Index max_queries(const Attention& /*attention*/) {
  return kMaxQueries;
}

inline void attend_fast(const Attention& attention, const AttentionPart& part) {
  attend_in_vectors(attention, part);
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
