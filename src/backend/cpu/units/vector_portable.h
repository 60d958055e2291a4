// Sixteen floats as an array, for machines without a unit of their own. The compiler vectorises
// what it can; products and sums are rounded one by one (no fused multiply-add).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/code_view.h"
#include "tensor/dtype.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

struct Vec {
  float lane[16];
};

// Rows of accumulators in a tile beside `panels` panels; 16 registers of four lanes hold little.
constexpr int most_rows(int panels) {
  return panels == 1 ? 2 : 1;
}
inline constexpr int kManyRowsPanels = 1;
// Rows and panels of a tile of integers; there are no taller ones.
inline constexpr int kIntegerRows = 2;
inline constexpr int kIntegerPanels = 1;
inline constexpr int kTallIntegerRows = 0;

template <typename F>
inline Vec make_vec(F f) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
  return r;
}

inline std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float float_of(std::uint32_t bits) {
  float x = 0.0F;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// Reads the codes of a group, as numbers.
struct Unpacker {
  const CodeGroup& group;

  explicit Unpacker(const CodeGroup& read) : group(read) {}

  Vec operator()(const std::byte* window) const {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(window);
    return make_vec([&](int i) {
      const std::uint32_t pair = bytes[group.shuffle[4 * i]] |
                                 static_cast<std::uint32_t>(bytes[group.shuffle[4 * i + 1]]) << 8;
      return static_cast<float>(pair >> group.shift[i] & group.mask[i]);
    });
  }
};

inline Vec zero() {
  return make_vec([](int) { return 0.0F; });
}
inline Vec splat(float x) {
  return make_vec([x](int) { return x; });
}
inline Vec load(const float* p) {
  Vec r;
  std::memcpy(r.lane, p, sizeof(r.lane));
  return r;
}
inline void store(float* p, const Vec& x) {
  std::memcpy(p, x.lane, sizeof(x.lane));
}
// The first `count` < 16 lanes; the others are 0.
inline Vec load_part(const float* p, std::int64_t count) {
  return make_vec([=](int i) { return i < count ? p[i] : 0.0F; });
}
inline void store_part(float* p, const Vec& x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) p[i] = x.lane[i];
}

inline Vec add(const Vec& a, const Vec& b) {
  return make_vec([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec sub(const Vec& a, const Vec& b) {
  return make_vec([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec mul(const Vec& a, const Vec& b) {
  return make_vec([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec div(const Vec& a, const Vec& b) {
  return make_vec([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Vec multiply_add(const Vec& a, const Vec& b, const Vec& c) {
  return make_vec([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
inline Vec negative_multiply_add(const Vec& a, const Vec& b, const Vec& c) {
  return make_vec([&](int i) { return c.lane[i] - a.lane[i] * b.lane[i]; });
}
// The second operand if either is NaN.
inline Vec min(const Vec& a, const Vec& b) {
  return make_vec([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec max(const Vec& a, const Vec& b) {
  return make_vec([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec absolute(const Vec& a) {
  return make_vec([&](int i) { return float_of(bits_of(a.lane[i]) & 0x7fffffffU); });
}
inline Vec with_sign_of(const Vec& magnitude, const Vec& sign) {
  return make_vec([&](int i) {
    return float_of(bits_of(magnitude.lane[i]) | (bits_of(sign.lane[i]) & 0x80000000U));
  });
}
inline Vec select_less(const Vec& a, const Vec& b, const Vec& if_less, const Vec& otherwise) {
  return make_vec(
      [&](int i) { return a.lane[i] < b.lane[i] ? if_less.lane[i] : otherwise.lane[i]; });
}
// For |a| < 2^22.
inline Vec round_nearest(const Vec& a) {
  return make_vec([&](int i) {
    constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: adding it drops the fraction
    return (a.lane[i] + kShift) - kShift;
  });
}
// a * 2^n for whole n in [-126, 127].
inline Vec scale_by_power(const Vec& a, const Vec& n) {
  return make_vec([&](int i) {
    const float whole = n.lane[i] == n.lane[i] ? n.lane[i] : 0.0F;
    return a.lane[i] * float_of(static_cast<std::uint32_t>(static_cast<int>(whole) + 127) << 23);
  });
}
inline Vec lane_numbers() {
  return make_vec([](int i) { return static_cast<float>(i); });
}

// The two bf16 of each 32-bit lane, widened: even columns are the low halves.
inline Vec load_even(const std::byte* pairs) {
  return make_vec([=](int i) {
    std::uint16_t half = 0;
    std::memcpy(&half, pairs + 4 * i, sizeof(half));
    return float_of(static_cast<std::uint32_t>(half) << 16);
  });
}
inline Vec load_odd(const std::byte* pairs) {
  return load_even(pairs + 2);
}

inline Vec load_bf16_part(const std::byte* p, std::int64_t count) {
  return make_vec([=](int i) {
    std::uint16_t half = 0;
    if (i < count) std::memcpy(&half, p + 2 * i, sizeof(half));
    return float_of(static_cast<std::uint32_t>(half) << 16);
  });
}
inline Vec load_bf16(const std::byte* p) {
  return load_bf16_part(p, 16);
}
// Rounds to nearest even, NaN stays NaN.
inline void store_bf16_part(std::byte* p, const Vec& x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(x.lane[i]);
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = nan ? bits | 0x400000U : bits + 0x7fffU + ((bits >> 16) & 1U);
    const auto half = static_cast<std::uint16_t>(rounded >> 16);
    std::memcpy(p + 2 * i, &half, sizeof(half));
  }
}
inline void store_bf16(std::byte* p, const Vec& x) {
  store_bf16_part(p, x, 16);
}

inline float reduce_max(const Vec& x) {
  float best = x.lane[0];
  for (int i = 1; i < 16; ++i) best = x.lane[i] > best ? x.lane[i] : best;
  return best;
}
inline float reduce_add(const Vec& x) {
  Vec s = x;
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) s.lane[i] += s.lane[i + half];
  }
  return s.lane[0];
}
// Lane i of the result is the sum of the lanes of v[i].
inline Vec reduce_sixteen(const Vec (&v)[16]) {
  return make_vec([&](int i) { return reduce_add(v[i]); });
}

// Transposes 16 x 16 elements of 32 bits: rows at `from` (stride bytes apart) to 16 lines of 64
// bytes at `to`.
inline void transpose_32(const std::byte* from, std::int64_t stride, std::byte* to) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) std::memcpy(to + j * 64 + i * 4, from + i * stride + j * 4, 4);
  }
}

// Sixteen int32, or four bytes for each.
struct Ints {
  std::int32_t lane[16];
};

inline Ints splat_int(std::int32_t x) {
  Ints r;
  for (std::int32_t& lane : r.lane) lane = x;
  return r;
}
inline Vec to_float(const Ints& x) {
  return make_vec([&](int i) { return static_cast<float>(x.lane[i]); });
}
inline Ints load_codes(const std::byte* p) {
  Ints r;
  std::memcpy(r.lane, p, sizeof(r.lane));
  return r;
}
inline Ints load_low_nibbles(const std::byte* p) {
  Ints r = load_codes(p);
  for (std::int32_t& lane : r.lane) lane &= 0x0f0f0f0f;
  return r;
}
inline Ints load_high_nibbles(const std::byte* p) {
  Ints r = load_codes(p);
  for (std::int32_t& lane : r.lane) lane = (lane >> 4) & 0x0f0f0f0f;
  return r;
}
// The codes with kHigh more bits above their four: those at `shift` of the bytes at `p`.
template <int kHigh>
inline Ints with_high_bits(Ints low, const std::byte* p, int shift) {
  constexpr std::int32_t kMask = ((1 << kHigh) - 1) * 0x01010101;
  const Ints bytes = load_codes(p);
  for (int i = 0; i < 16; ++i) low.lane[i] |= ((bytes.lane[i] >> shift) & kMask) << 4;
  return low;
}
// A table of 16 bytes, and the bytes that codes below 16 stand for.
inline Ints load_levels(const std::uint8_t* table) {
  Ints levels{};
  std::memcpy(levels.lane, table, 16);
  return levels;
}
inline Ints look_up(const Ints& levels, Ints codes) {
  std::uint8_t table[16];
  std::uint8_t bytes[64];
  std::memcpy(table, levels.lane, sizeof(table));
  std::memcpy(bytes, codes.lane, sizeof(bytes));
  for (std::uint8_t& byte : bytes) byte = table[byte];
  std::memcpy(codes.lane, bytes, sizeof(bytes));
  return codes;
}
// sum + the products of four unsigned codes with the four int8 at `x`, for each lane.
template <int kBits>
inline Ints dot_quads(const Ints& sum, const Ints& codes, const std::byte* x) {
  Ints r = sum;
  std::uint8_t bytes[64];
  std::memcpy(bytes, codes.lane, sizeof(bytes));
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      r.lane[i] += static_cast<std::int32_t>(bytes[4 * i + j]) * static_cast<std::int8_t>(x[j]);
    }
  }
  return r;
}
// Whole numbers in [-128, 127].
inline void store_int8(std::byte* p, const Vec& x) {
  for (int i = 0; i < 16; ++i) {
    p[i] = static_cast<std::byte>(static_cast<std::int8_t>(x.lane[i]));
  }
}
inline Vec load_int8(const std::byte* p) {
  return make_vec([=](int i) { return static_cast<float>(static_cast<std::int8_t>(p[i])); });
}
inline Vec load_half(const std::byte* p) {
  return make_vec([=](int i) {
    std::uint16_t half = 0;
    std::memcpy(&half, p + 2 * i, sizeof(half));
    return half_to_float(half);
  });
}
// a * b + c, rounded once.
inline Vec fused_multiply_add(const Vec& a, const Vec& b, const Vec& c) {
  return make_vec([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}

[[gnu::always_inline]] inline void prefetch(const std::byte*) {}
// Makes the compiler believe that x changes here.
inline void keep(Vec& x) {
  asm volatile("" : "+m"(x));
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
