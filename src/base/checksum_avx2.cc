// Compiled for AVX2, so it shares nothing with other files but the one function.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

namespace kakeya {

std::uint64_t checksum_avx2(const void* bytes, std::size_t size, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, size, seed);
}

}  // namespace kakeya
