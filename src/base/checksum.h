// Checksums of bytes: XXH3 of 64 bits, which finds damage and tells things apart, but is no proof
// against somebody who wants to deceive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kakeya {

// XXH3_64bits_withSeed, computed with the widest vectors that the machine has.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t checksum(std::string_view text, std::uint64_t seed = 0);

// Long memory is cut into pieces of so many bytes, whose checksums threads can compute apart.
inline constexpr std::size_t kChecksumPiece = std::size_t{1} << 20;

// The checksum of memory whose pieces, the last of them shorter or not, have these checksums.
std::uint64_t checksum_of_pieces(std::span<const std::uint64_t> pieces);

}  // namespace kakeya
