// Unit: AVX-512 F, BW, DQ and VL with VNNI.
#define KAKEYA_CPU_UNIT avx512_vnni

namespace kakeya::cpu::KAKEYA_CPU_UNIT {
// True if packed rows of fast products are bf16 (else widened f32), and in blocks of whole tiles.
inline constexpr bool kBf16Rows = false;
inline constexpr bool kTiledRows = false;
}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT

// Each header builds on the ones before it.
// clang-format off
#include "backend/cpu/units/vector_avx512.h"
#include "backend/cpu/units/math.h"
#include "backend/cpu/units/rows.h"
#include "backend/cpu/units/attention.h"
#include "backend/cpu/units/restored.h"
#include "backend/cpu/units/coded.h"
#include "backend/cpu/units/rows_ahead.h"
#include "backend/cpu/units/integer_attention.h"
#include "backend/cpu/units/pack.h"
#include "backend/cpu/units/products.h"
#include "backend/cpu/units/widened_products.h"
#include "backend/cpu/units/integers.h"
#include "backend/cpu/units/vector_integers.h"
#include "backend/cpu/units/table.h"
// clang-format on
#include "backend/cpu/units/units.h"

namespace kakeya::cpu {

const Kernels& avx512_vnni_kernels() {
  static constexpr Kernels kKernels = avx512_vnni::make_kernels("cpu/avx512_vnni", 80, 80, 250);
  return kKernels;
}

}  // namespace kakeya::cpu
