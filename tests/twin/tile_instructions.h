// The tile instructions of AMX in software: tiles of the calling thread, with the hardware's
// results and its rules. What the processor would answer with an exception ends the program here
// with a line that says why.
#pragma once

#include <cstddef>

namespace kakeya::twin {

// ldtilecfg: `memory` has 64 bytes. Tiles 0 to 7, palette 1, no restarted instruction.
void tile_load_config(const void* memory);
// tilerelease
void tile_release();
// tilezero
void tile_zero(int tile);
// tileloadd, tileloaddt1: the tile's rows, `stride` bytes apart.
void tile_load(int tile, const void* from, std::ptrdiff_t stride);
// tilestored
void tile_store(int tile, void* to, std::ptrdiff_t stride);

// tdpbf16ps: sums [m, n] f32 += a [m, 2 k] bf16 times b [k, n] pairs of bf16. As Intel's manual of
// instructions has it: for each sum the first elements of all pairs are added to 0 in ascending
// order with fused multiply-adds, the second ones to another 0; both are added to each other, and
// that to the sum. Denormal numbers count as 0 and become 0; every step rounds to nearest even; the
// state of the processor is neither read nor changed.
void tile_multiply_bf16(int sums, int a, int b);
// tdpbssd: sums [m, n] int32 += a [m, 4 k] int8 times b [k, n] quads of int8, without saturation.
void tile_multiply_signed(int sums, int a, int b);
// tdpbsud: the same, b unsigned.
void tile_multiply_signed_unsigned(int sums, int a, int b);

}  // namespace kakeya::twin
