// The unit avx2_vnni a second time, its VNNI instructions made of others.
#include <immintrin.h>

#include "twin/vnni_macros.h"

// Everything that leaves the unit gets a name of its own.
#define avx2_vnni avx2_vnni_twin
#define avx2_vnni_kernels avx2_vnni_twin_kernels
#include "backend/cpu/units/avx2_vnni.cc"
