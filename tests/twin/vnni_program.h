// The bodies of add_bytes() and add_words(), in the namespace KAKEYA_TWIN_KIND, with the intrinsics
// as they are where it is included.
#include "twin/instruction_programs.h"

namespace kakeya::twin::KAKEYA_TWIN_KIND {

void add_bytes(const std::byte* a, const std::byte* b, std::int32_t* sums) {
  const auto load = [](const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  };
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums),
                      _mm256_dpbusd_avx_epi32(load(sums), load(a), load(b)));
}

void add_words(const std::byte* a, const std::byte* b, std::int32_t* sums) {
  const auto load = [](const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  };
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums),
                      _mm256_dpwssd_avx_epi32(load(sums), load(a), load(b)));
}

}  // namespace kakeya::twin::KAKEYA_TWIN_KIND
