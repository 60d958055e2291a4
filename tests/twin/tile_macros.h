// Gives the intrinsics of tiles, which <immintrin.h> must have brought, to software.
#pragma once

#include "twin/tile_instructions.h"

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#undef _tile_dpbsud
#define _tile_loadconfig(memory) ::kakeya::twin::tile_load_config(memory)
#define _tile_release() ::kakeya::twin::tile_release()
#define _tile_zero(tile) ::kakeya::twin::tile_zero(tile)
#define _tile_loadd(tile, from, stride) ::kakeya::twin::tile_load(tile, from, stride)
#define _tile_stored(tile, to, stride) ::kakeya::twin::tile_store(tile, to, stride)
#define _tile_dpbf16ps(sums, a, b) ::kakeya::twin::tile_multiply_bf16(sums, a, b)
#define _tile_dpbssd(sums, a, b) ::kakeya::twin::tile_multiply_signed(sums, a, b)
#define _tile_dpbsud(sums, a, b) ::kakeya::twin::tile_multiply_signed_unsigned(sums, a, b)
