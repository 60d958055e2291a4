// Unit: AVX2, FMA, F16C and VNNI in 256 bits.
#define KAKEYA_CPU_UNIT avx2_vnni

namespace kakeya::cpu::KAKEYA_CPU_UNIT {
// True if packed rows of fast products are bf16 (else widened f32), and in blocks of whole tiles.
inline constexpr bool kBf16Rows = false;
inline constexpr bool kTiledRows = false;
}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT

// Each header builds on the ones before it.
// clang-format off
#include "backend/cpu/units/vector_avx2.h"
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

const Kernels& avx2_vnni_kernels() {
  static constexpr Kernels kKernels = avx2_vnni::make_kernels("cpu/avx2_vnni", 30, 30, 80);
  return kKernels;
}

}  // namespace kakeya::cpu
