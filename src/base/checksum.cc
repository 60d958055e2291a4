#include "base/checksum.h"

#include <xxhash.h>

namespace kakeya {
namespace {

using Checksum = std::uint64_t (*)(const void* bytes, std::size_t size, std::uint64_t seed);

std::uint64_t checksum_portable(const void* bytes, std::size_t size, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, size, seed);
}

}  // namespace

#ifdef KAKEYA_CHECKSUM_AVX2
std::uint64_t checksum_avx2(const void* bytes, std::size_t size, std::uint64_t seed);

// Three times as fast. The library's own choice at run time (xxh_x86dispatch.h) takes AVX-512 and
// leaves registers in a state in which code without AVX is slow: packing took a third longer.
namespace {
const Checksum kChecksum = __builtin_cpu_supports("avx2") ? checksum_avx2 : checksum_portable;
}
#else
namespace {
constexpr Checksum kChecksum = checksum_portable;
}
#endif

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return kChecksum(bytes.data(), bytes.size(), seed);
}

std::uint64_t checksum(std::string_view text, std::uint64_t seed) {
  return kChecksum(text.data(), text.size(), seed);
}

std::uint64_t checksum_of_pieces(std::span<const std::uint64_t> pieces) {
  return checksum(std::as_bytes(pieces), pieces.size());
}

}  // namespace kakeya
