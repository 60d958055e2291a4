// Sixteen floats in two AVX2 registers. Included by the unit compiled with AVX2, FMA and F16C,
// after KAKEYA_CPU_UNIT names the unit's namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "tensor/code_view.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

struct Vec {
  __m256 low;
  __m256 high;
};

// Rows of accumulators beside `panels` panels that the 16 registers hold, with the operands.
constexpr int most_rows(int panels) {
  return panels == 4 ? 1 : panels == 2 ? 3 : 6;
}
// Panels of a tile when there are more rows than one tile takes.
inline constexpr int kManyRowsPanels = 1;
// Rows and panels of a tile of integers; there are no taller ones.
inline constexpr int kIntegerRows = 3;
inline constexpr int kIntegerPanels = 1;
inline constexpr int kTallIntegerRows = 0;

inline __m256i lane_mask(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline Vec zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline Vec splat(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
inline Vec load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
// The first `count` < 16 lanes; the others are 0.
inline Vec load_part(const float* p, std::int64_t count) {
  return {_mm256_maskload_ps(p, lane_mask(count)), _mm256_maskload_ps(p + 8, lane_mask(count - 8))};
}
inline void store_part(float* p, Vec x, std::int64_t count) {
  _mm256_maskstore_ps(p, lane_mask(count), x.low);
  _mm256_maskstore_ps(p + 8, lane_mask(count - 8), x.high);
}

// Reads the codes of a group, as numbers.
struct Unpacker {
  __m256i shuffle[2];
  __m256i shift[2];
  __m256i mask[2];

  explicit Unpacker(const CodeGroup& group) {
    const auto part = [](const void* table, int half) {
      return _mm256_load_si256(static_cast<const __m256i*>(table) + half);
    };
    for (int half = 0; half < 2; ++half) {
      shuffle[half] = part(group.shuffle, half);
      shift[half] = part(group.shift, half);
      mask[half] = part(group.mask, half);
    }
  }

  Vec operator()(const std::byte* window) const {
    const __m256i bytes =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(window)));
    const auto read = [&](int half) {
      const __m256i pairs = _mm256_shuffle_epi8(bytes, shuffle[half]);
      return _mm256_cvtepi32_ps(
          _mm256_and_si256(_mm256_srlv_epi32(pairs, shift[half]), mask[half]));
    };
    return {read(0), read(1)};
  }
};

inline Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Vec div(Vec a, Vec b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Vec multiply_add(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec negative_multiply_add(Vec a, Vec b, Vec c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
// The second operand if either is NaN.
inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Vec absolute(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline Vec with_sign_of(Vec magnitude, Vec sign) {
  const __m256 mask = _mm256_set1_ps(-0.0F);
  return {_mm256_or_ps(magnitude.low, _mm256_and_ps(sign.low, mask)),
          _mm256_or_ps(magnitude.high, _mm256_and_ps(sign.high, mask))};
}
inline Vec select_less(Vec a, Vec b, Vec if_less, Vec otherwise) {
  return {
      _mm256_blendv_ps(otherwise.low, if_less.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
      _mm256_blendv_ps(otherwise.high, if_less.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline Vec round_nearest(Vec a) {
  return {_mm256_round_ps(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline __m256 power_of_two(__m256 n) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
// a * 2^n for whole n in [-126, 127].
inline Vec scale_by_power(Vec a, Vec n) {
  return {_mm256_mul_ps(a.low, power_of_two(n.low)), _mm256_mul_ps(a.high, power_of_two(n.high))};
}
inline Vec lane_numbers() {
  return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)};
}

inline __m256i load_bits(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
// The two bf16 of each 32-bit lane, widened: even columns are the low halves.
inline Vec load_even(const std::byte* pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(load_bits(pairs), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(load_bits(pairs + 32), 16))};
}
inline Vec load_odd(const std::byte* pairs) {
  const __m256i mask = _mm256_set1_epi32(-65536);
  return {_mm256_castsi256_ps(_mm256_and_si256(load_bits(pairs), mask)),
          _mm256_castsi256_ps(_mm256_and_si256(load_bits(pairs + 32), mask))};
}

inline __m256 widen_bf16(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
inline Vec load_bf16(const std::byte* p) {
  return {widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
inline void copy_halves(std::byte* to, const std::byte* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) __builtin_memcpy(to + 2 * i, from + 2 * i, 2);
}
inline Vec load_bf16_part(const std::byte* p, std::int64_t count) {
  alignas(32) std::byte halves[32] = {};
  copy_halves(halves, p, count);
  return load_bf16(halves);
}
// Rounds to nearest even, NaN stays NaN; the result is in the low half of each lane.
inline __m256i round_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i lowest = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(lowest, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
}
inline void store_bf16(std::byte* p, Vec x) {
  const __m256i packed = _mm256_packus_epi32(round_bf16(x.low), round_bf16(x.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline void store_bf16_part(std::byte* p, Vec x, std::int64_t count) {
  alignas(32) std::byte halves[32];
  store_bf16(halves, x);
  copy_halves(p, halves, count);
}

inline float reduce_add(Vec x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float reduce_max(Vec x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline __m256 reduce_eight(const Vec* v) {
  __m256 s[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) s[i] = _mm256_add_ps(v[i].low, v[i].high);
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(s[4], s[5]), _mm256_hadd_ps(s[6], s[7]));
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
// Lane i of the result is the sum of the lanes of v[i]; the order of adding is the same for all i.
inline Vec reduce_sixteen(const Vec (&v)[16]) {
  return {reduce_eight(v), reduce_eight(v + 8)};
}

// Transposes 16 x 16 elements of 32 bits: rows at `from` (stride bytes apart) to 16 lines of 64
// bytes at `to`, as four blocks of 8 x 8.
inline void transpose_32(const std::byte* from, std::int64_t stride, std::byte* to) {
  for (int block = 0; block < 4; ++block) {
    const std::byte* source = from + (block / 2) * 8 * stride + (block % 2) * 32;
    std::byte* target = to + (block % 2) * 8 * 64 + (block / 2) * 32;
    __m256 r[8];
    __m256 t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) r[i] = _mm256_castsi256_ps(load_bits(source + i * stride));
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_ps(reinterpret_cast<float*>(target + i * 64),
                       _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
      _mm256_storeu_ps(reinterpret_cast<float*>(target + (i + 4) * 64),
                       _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
  }
}

// Sixteen int32, or four bytes for each.
struct Ints {
  __m256i low;
  __m256i high;
};

template <typename F>
inline Ints for_halves(Ints a, F f) {
  return {f(a.low), f(a.high)};
}
inline Ints splat_int(std::int32_t x) {
  const __m256i v = _mm256_set1_epi32(x);
  return {v, v};
}
inline Vec to_float(Ints x) {
  return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)};
}
inline Ints load_codes(const std::byte* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline Ints load_low_nibbles(const std::byte* p) {
  return for_halves(load_codes(p),
                    [](__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); });
}
inline Ints load_high_nibbles(const std::byte* p) {
  return for_halves(load_codes(p), [](__m256i v) {
    return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
  });
}
template <int kHigh>
inline __m256i with_high_bits(__m256i low, __m256i bytes, int shift) {
  const __m256i high =
      shift > 4 ? _mm256_srli_epi16(bytes, shift - 4) : _mm256_slli_epi16(bytes, 4 - shift);
  return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(((1 << kHigh) - 1) << 4)));
}
// The codes with kHigh more bits above their four: those at `shift` of the bytes at `p`.
template <int kHigh>
inline Ints with_high_bits(Ints low, const std::byte* p, int shift) {
  const Ints bytes = load_codes(p);
  return {with_high_bits<kHigh>(low.low, bytes.low, shift),
          with_high_bits<kHigh>(low.high, bytes.high, shift)};
}
// A table of 16 bytes, and the bytes that codes below 16 stand for.
inline Ints load_levels(const std::uint8_t* table) {
  const __m256i levels =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {levels, levels};
}
inline Ints look_up(const Ints& levels, const Ints& codes) {
  return {_mm256_shuffle_epi8(levels.low, codes.low), _mm256_shuffle_epi8(levels.high, codes.high)};
}
template <int kBits>
inline __m256i dot_quads(__m256i sum, __m256i codes, __m256i x) {
#ifdef __AVXVNNI__
  return _mm256_dpbusd_avx_epi32(sum, codes, x);
#else
  if constexpr (kBits < 8) {  // two products are below 2^15
    const __m256i pairs = _mm256_maddubs_epi16(codes, x);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  } else {
    const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(255));
    const __m256i odd = _mm256_srli_epi16(codes, 8);
    const __m256i even_x = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
    const __m256i odd_x = _mm256_srai_epi16(x, 8);
    return _mm256_add_epi32(
        sum, _mm256_add_epi32(_mm256_madd_epi16(even, even_x), _mm256_madd_epi16(odd, odd_x)));
  }
#endif
}
// sum + the products of four unsigned codes with the four int8 at `x`, for each lane. Codes are
// below 2^kBits.
template <int kBits>
inline Ints dot_quads(Ints sum, Ints codes, const std::byte* x) {
  std::int32_t quad = 0;
  __builtin_memcpy(&quad, x, sizeof(quad));
  const __m256i xs = _mm256_set1_epi32(quad);
  return {dot_quads<kBits>(sum.low, codes.low, xs), dot_quads<kBits>(sum.high, codes.high, xs)};
}
// The numbers of `a` and `b`, rounded to whole ones, as 32 int16: a0-3 b0-3 a4-7 b4-7 ...
inline Ints round_to_words(Vec a, Vec b) {
  return {_mm256_packs_epi32(_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(b.low)),
          _mm256_packs_epi32(_mm256_cvtps_epi32(a.high), _mm256_cvtps_epi32(b.high))};
}
// Words of two rows in turn, those that were `a` of each in order, then those that were `b`.
inline Ints interleave_first(Ints x, Ints y) {
  return {_mm256_unpacklo_epi16(x.low, y.low), _mm256_unpacklo_epi16(x.high, y.high)};
}
inline Ints interleave_second(Ints x, Ints y) {
  return {_mm256_unpackhi_epi16(x.low, y.low), _mm256_unpackhi_epi16(x.high, y.high)};
}
// Two words at `p` in each lane.
inline Ints splat_words(const std::byte* p) {
  std::int32_t pair = 0;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return splat_int(pair);
}
#ifdef __AVXVNNI__
// sum + the products of two words, for each lane.
inline Ints dot_words(Ints sum, Ints a, Ints b) {
  return {_mm256_dpwssd_avx_epi32(sum.low, a.low, b.low),
          _mm256_dpwssd_avx_epi32(sum.high, a.high, b.high)};
}
#endif
inline void store_ints(std::byte* p, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.high);
}
// Whole numbers in [-128, 127].
inline void store_int8(std::byte* p, Vec x) {
  const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline Vec load_int8(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Vec load_half(const std::byte* p) {
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
// a * b + c, rounded once.
inline Vec fused_multiply_add(Vec a, Vec b, Vec c) {
  return multiply_add(a, b, c);
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
  asm volatile("" : "+x"(x.low), "+x"(x.high));
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
