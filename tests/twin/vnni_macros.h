// Gives the intrinsics of VNNI in 256 bits (the VEX forms), which <immintrin.h> must have brought,
// to AVX2. Results are the same: sums wrap around.
#pragma once

namespace kakeya::twin {

// vpdpbusd: each lane of `sums` plus four products of an unsigned byte of `a` and a signed of `b`.
static inline __m256i add_byte_products(__m256i sums, __m256i a, __m256i b) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  return _mm256_add_epi32(sums, _mm256_add_epi32(even, odd));
}

// vpdpwssd: each lane of `sums` plus two products of signed words.
static inline __m256i add_word_products(__m256i sums, __m256i a, __m256i b) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
}

}  // namespace kakeya::twin

#undef _mm256_dpbusd_avx_epi32
#undef _mm256_dpwssd_avx_epi32
#define _mm256_dpbusd_avx_epi32(sums, a, b) ::kakeya::twin::add_byte_products(sums, a, b)
#define _mm256_dpwssd_avx_epi32(sums, a, b) ::kakeya::twin::add_word_products(sums, a, b)
// The unit asks whether the compiler knows VNNI.
#define __AVXVNNI__ 1  // NOLINT(bugprone-reserved-identifier)
