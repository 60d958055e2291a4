#include "base/checksum.h"

#ifdef KAKEYA_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace kakeya {

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t checksum(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::uint64_t checksum_of_pieces(std::span<const std::uint64_t> pieces) {
  return checksum(std::as_bytes(pieces), pieces.size());
}

}  // namespace kakeya
