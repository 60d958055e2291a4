// Unit: AVX-512, with AMX tiles for products in bf16 and int8 and attention in bf16.
#define KAKEYA_CPU_UNIT amx_bf16

namespace kakeya::cpu::KAKEYA_CPU_UNIT {
// True if packed rows of fast products are bf16 (else widened f32), and in blocks of whole tiles.
inline constexpr bool kBf16Rows = true;
inline constexpr bool kTiledRows = true;
}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT

// Each header builds on the ones before it.
// clang-format off
#include "backend/cpu/units/vector_avx512.h"
#include "backend/cpu/units/math.h"
#include "backend/cpu/units/rows.h"
#include "backend/cpu/units/attention.h"
#include "backend/cpu/units/restored.h"
#include "backend/cpu/units/coded.h"
#include "backend/cpu/units/pack.h"
#include "backend/cpu/units/products.h"
#include "backend/cpu/units/integers.h"
#include "backend/cpu/units/tiles.h"
#include "backend/cpu/units/integer_tiles.h"
#include "backend/cpu/units/rows_ahead.h"
#include "backend/cpu/units/tile_rows.h"
#include "backend/cpu/units/tile_attention.h"
#include "backend/cpu/units/table.h"
// clang-format on
#include "backend/cpu/units/units.h"

namespace kakeya::cpu {

const Kernels& amx_bf16_kernels() {
  static constexpr Kernels kKernels = amx_bf16::make_kernels("cpu/amx_bf16", 1500, 80, 500);
  return kKernels;
}

}  // namespace kakeya::cpu
