// Single instructions as functions, compiled twice: for the hardware's and for the twins'.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kakeya::twin {

enum class TileProduct { kBf16, kSigned, kSignedUnsigned };

// One product of tiles: sums [rows, columns] of 32 bits += a [rows, groups] times
// b [groups, columns], where a group is 4 bytes of a. Rows of each operand lie 64 bytes apart.
using MultiplyTiles = void (*)(TileProduct product,
                               int rows,
                               int groups,
                               int columns,
                               const std::byte* a,
                               const std::byte* b,
                               std::byte* sums);

// 8 lanes: sums[i] += the products of four bytes, a unsigned; of two words.
using AddProducts = void (*)(const std::byte* a, const std::byte* b, std::int32_t* sums);

namespace software {
void multiply_tiles(TileProduct product,
                    int rows,
                    int groups,
                    int columns,
                    const std::byte* a,
                    const std::byte* b,
                    std::byte* sums);
void add_bytes(const std::byte* a, const std::byte* b, std::int32_t* sums);
void add_words(const std::byte* a, const std::byte* b, std::int32_t* sums);
}  // namespace software

// Only where the machine has them.
namespace hardware {
void multiply_tiles(TileProduct product,
                    int rows,
                    int groups,
                    int columns,
                    const std::byte* a,
                    const std::byte* b,
                    std::byte* sums);
void add_bytes(const std::byte* a, const std::byte* b, std::int32_t* sums);
void add_words(const std::byte* a, const std::byte* b, std::int32_t* sums);
}  // namespace hardware

}  // namespace kakeya::twin
