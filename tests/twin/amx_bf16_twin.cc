// The unit amx_bf16 a second time, its tile instructions in software.
#include <immintrin.h>

#include "twin/tile_macros.h"

// Everything that leaves the unit gets a name of its own.
#define amx_bf16 amx_bf16_twin
#define amx_bf16_kernels amx_bf16_twin_kernels
#include "backend/cpu/units/amx_bf16.cc"
