// The tables of the instruction-set units that this build has, one translation unit each.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu {

const Kernels& portable_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx2_vnni_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512_vnni_kernels();
const Kernels& avx512_bf16_kernels();
const Kernels& amx_bf16_kernels();
#endif

}  // namespace kakeya::cpu
