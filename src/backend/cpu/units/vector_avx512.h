// Sixteen floats in one AVX-512 register. Included by units compiled with AVX-512 F, BW, DQ and VL,
// after KAKEYA_CPU_UNIT names the unit's namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "tensor/code_view.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

using Vec = __m512;

// Rows of accumulators beside `panels` panels that the 32 registers hold, with the operands.
constexpr int most_rows(int panels) {
  return panels == 4 ? 6 : 12;
}
// Panels of a tile when there are more rows than one tile takes.
inline constexpr int kManyRowsPanels = 2;
// Rows and panels of a tile of integers, and rows beside half as many panels.
inline constexpr int kIntegerRows = 4;
inline constexpr int kIntegerPanels = 4;
inline constexpr int kTallIntegerRows = 8;

inline __mmask16 lane_mask(std::int64_t count) {
  return static_cast<__mmask16>((1U << count) - 1U);
}

inline Vec zero() {
  return _mm512_setzero_ps();
}
inline Vec splat(float x) {
  return _mm512_set1_ps(x);
}
inline Vec load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void store(float* p, Vec x) {
  _mm512_storeu_ps(p, x);
}
// The first `count` < 16 lanes; the others are 0.
inline Vec load_part(const float* p, std::int64_t count) {
  return _mm512_maskz_loadu_ps(lane_mask(count), p);
}
inline void store_part(float* p, Vec x, std::int64_t count) {
  _mm512_mask_storeu_ps(p, lane_mask(count), x);
}

// Reads the codes of a group, as numbers.
struct Unpacker {
  __m512i shuffle;
  __m512i shift;
  __m512i mask;

  explicit Unpacker(const CodeGroup& group)
      : shuffle(_mm512_load_si512(group.shuffle)),
        shift(_mm512_load_si512(group.shift)),
        mask(_mm512_load_si512(group.mask)) {}

  Vec operator()(const std::byte* window) const {
    const __m512i bytes =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(window)));
    const __m512i pairs = _mm512_shuffle_epi8(bytes, shuffle);
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srlv_epi32(pairs, shift), mask));
  }
};

inline Vec add(Vec a, Vec b) {
  return _mm512_add_ps(a, b);
}
inline Vec sub(Vec a, Vec b) {
  return _mm512_sub_ps(a, b);
}
inline Vec mul(Vec a, Vec b) {
  return _mm512_mul_ps(a, b);
}
inline Vec div(Vec a, Vec b) {
  return _mm512_div_ps(a, b);
}
inline Vec multiply_add(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Vec negative_multiply_add(Vec a, Vec b, Vec c) {
  return _mm512_fnmadd_ps(a, b, c);
}
// The second operand if either is NaN.
inline Vec min(Vec a, Vec b) {
  return _mm512_min_ps(a, b);
}
inline Vec max(Vec a, Vec b) {
  return _mm512_max_ps(a, b);
}
inline Vec absolute(Vec a) {
  return _mm512_abs_ps(a);
}
inline Vec with_sign_of(Vec magnitude, Vec sign) {
  return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0F)));
}
inline Vec select_less(Vec a, Vec b, Vec if_less, Vec otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, if_less);
}
inline Vec round_nearest(Vec a) {
  return _mm512_roundscale_ps(a, 8);
}
// a * 2^n for whole n in [-126, 127].
inline Vec scale_by_power(Vec a, Vec n) {
  return _mm512_scalef_ps(a, n);
}
inline Vec lane_numbers() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// The two bf16 of each 32-bit lane, widened: even columns are the low halves.
inline Vec load_even(const std::byte* pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(pairs), 16));
}
inline Vec load_odd(const std::byte* pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_loadu_si512(pairs), _mm512_set1_epi32(-65536)));
}

inline Vec widen_bf16(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
inline Vec load_bf16(const std::byte* p) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec load_bf16_part(const std::byte* p, std::int64_t count) {
  return widen_bf16(_mm256_maskz_loadu_epi16(lane_mask(count), p));
}
// Rounds to nearest even, NaN stays NaN.
inline __m256i round_bf16(Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i lowest = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(lowest, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40)));
}
inline void store_bf16(std::byte* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round_bf16(x));
}
inline void store_bf16_part(std::byte* p, Vec x, std::int64_t count) {
  _mm256_mask_storeu_epi16(p, lane_mask(count), round_bf16(x));
}

inline float reduce_max(Vec x) {
  return _mm512_reduce_max_ps(x);
}
inline float reduce_add(Vec x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Lane i of the result is the sum of the lanes of v[i]; the order of adding is the same for all i.
inline Vec reduce_sixteen(const Vec (&v)[16]) {
  // The halves, then the quarters, then the lanes of quarters; the slots are permuted so that the
  // sums come out in order.
  constexpr int kSlot[16] = {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15};
  Vec s[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const Vec a = v[kSlot[i]];
    const Vec b = v[kSlot[i + 8]];
    s[i] = add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  Vec u[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    u[i] =
        add(_mm512_shuffle_f32x4(s[i], s[i + 4], 0x88), _mm512_shuffle_f32x4(s[i], s[i + 4], 0xdd));
  }
  const Vec w0 = add(_mm512_unpacklo_ps(u[0], u[2]), _mm512_unpackhi_ps(u[0], u[2]));
  const Vec w1 = add(_mm512_unpacklo_ps(u[1], u[3]), _mm512_unpackhi_ps(u[1], u[3]));
  return add(_mm512_unpacklo_ps(w0, w1), _mm512_unpackhi_ps(w0, w1));
}

// Transposes 16 x 16 elements of 32 bits: rows at `from` (stride bytes apart) to 16 lines of 64
// bytes at `to`.
inline void transpose_32(const std::byte* from, std::int64_t stride, std::byte* to) {
  __m512i r[16];
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(from + i * stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    const __m512i d = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    _mm512_storeu_si512(to + i * 64, _mm512_shuffle_i32x4(a, b, 0x88));
    _mm512_storeu_si512(to + (i + 4) * 64, _mm512_shuffle_i32x4(c, d, 0x88));
    _mm512_storeu_si512(to + (i + 8) * 64, _mm512_shuffle_i32x4(a, b, 0xdd));
    _mm512_storeu_si512(to + (i + 12) * 64, _mm512_shuffle_i32x4(c, d, 0xdd));
  }
}

// Sixteen int32, or four bytes for each.
using Ints = __m512i;

inline Ints splat_int(std::int32_t x) {
  return _mm512_set1_epi32(x);
}
inline Vec to_float(Ints x) {
  return _mm512_cvtepi32_ps(x);
}
inline Ints load_codes(const std::byte* p) {
  return _mm512_loadu_si512(p);
}
inline Ints load_low_nibbles(const std::byte* p) {
  return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(15));
}
inline Ints load_high_nibbles(const std::byte* p) {
  return _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(p), 4), _mm512_set1_epi8(15));
}
// The codes with kHigh more bits above their four: those at `shift` of the bytes at `p`.
template <int kHigh>
inline Ints with_high_bits(Ints low, const std::byte* p, int shift) {
  const __m512i bytes = _mm512_loadu_si512(p);
  const __m512i high = shift > 4 ? _mm512_srli_epi16(bytes, static_cast<unsigned>(shift - 4))
                                 : _mm512_slli_epi16(bytes, static_cast<unsigned>(4 - shift));
  constexpr int kOrOfAnd = 0xf8;  // first or (second and third)
  return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(((1 << kHigh) - 1) << 4), kOrOfAnd);
}
// A table of 16 bytes, and the bytes that codes below 16 stand for.
inline Ints load_levels(const std::uint8_t* table) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}
inline Ints look_up(const Ints& levels, const Ints& codes) {
  return _mm512_shuffle_epi8(levels, codes);
}
// sum + the products of four unsigned codes with the four int8 at `x`, for each lane. Codes are
// below 2^kBits.
template <int kBits>
inline Ints dot_quads(Ints sum, Ints codes, const std::byte* x) {
  std::int32_t quad = 0;
  __builtin_memcpy(&quad, x, sizeof(quad));
  const __m512i xs = _mm512_set1_epi32(quad);
#if defined(__AVX512VNNI__)
  return _mm512_dpbusd_epi32(sum, codes, xs);
#else
  if constexpr (kBits < 8) {  // two products are below 2^15
    const __m512i pairs = _mm512_maddubs_epi16(codes, xs);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  } else {
    const __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(255));
    const __m512i odd = _mm512_srli_epi16(codes, 8);
    const __m512i even_x = _mm512_srai_epi16(_mm512_slli_epi16(xs, 8), 8);
    const __m512i odd_x = _mm512_srai_epi16(xs, 8);
    return _mm512_add_epi32(
        sum, _mm512_add_epi32(_mm512_madd_epi16(even, even_x), _mm512_madd_epi16(odd, odd_x)));
  }
#endif
}
// The numbers of `a` and `b`, rounded to whole ones, as 32 int16: a0-3 b0-3 a4-7 b4-7 ...
inline Ints round_to_words(Vec a, Vec b) {
  return _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
}
// Words of two rows in turn, those that were `a` of each in order, then those that were `b`.
inline Ints interleave_first(Ints x, Ints y) {
  return _mm512_unpacklo_epi16(x, y);
}
inline Ints interleave_second(Ints x, Ints y) {
  return _mm512_unpackhi_epi16(x, y);
}
// Two words at `p` in each lane.
inline Ints splat_words(const std::byte* p) {
  std::int32_t pair = 0;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return _mm512_set1_epi32(pair);
}
#if defined(__AVX512VNNI__)
// sum + the products of two words, for each lane.
inline Ints dot_words(Ints sum, Ints a, Ints b) {
  return _mm512_dpwssd_epi32(sum, a, b);
}
#endif
inline void store_ints(std::byte* p, Ints x) {
  _mm512_storeu_si512(p, x);
}
// Whole numbers in [-128, 127].
inline void store_int8(std::byte* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}
inline Vec load_int8(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
inline Vec load_half(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// a * b + c, rounded once.
inline Vec fused_multiply_add(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}

// Inlined by force: g++ takes a function that only prefetches for one without effects, and drops
// calls of it that it sees before it has inlined them.
[[gnu::always_inline]] inline void prefetch(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}
// Prefetches into the second-level cache.
[[gnu::always_inline]] inline void prefetch_far(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}
// Makes the compiler believe that x changes here.
inline void keep(Vec& x) {
  asm volatile("" : "+v"(x));
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
