// Where the bits of the block formats are: shared by what reads blocks as numbers
// (quantized_format.cc) and what reads them as integers (integer_blocks.cc). All integers and
// halves are little-endian.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace kakeya {

inline int bits_at(std::uint8_t byte, int shift, int width) {
  return (byte >> shift) & ((1 << width) - 1);
}

inline float half_at(const std::uint8_t* bytes) {
  return half_to_float(static_cast<std::uint16_t>(bytes[0] | (bytes[1] << 8)));
}

// `byte` in each of eight bytes.
constexpr std::uint64_t eight_times(std::uint64_t byte) {
  return byte * 0x0101010101010101U;
}

// Bits [shift, shift + width) of bytes in a row: where as many elements have bits of their codes.
struct BitSlice {
  const std::uint8_t* bytes;
  int shift;
  int width;

  int operator[](int i) const { return bits_at(bytes[i], shift, width); }
  // The bits of elements i to i + 7, in a byte each, the first one lowest.
  std::uint64_t eight_from(int i) const {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, sizeof(word));
    return (word >> shift) & eight_times((1U << width) - 1);
  }
};

// Code i of 2 * `half` codes of 4 bits: the low nibbles of `half` bytes are the first half of the
// codes, the high nibbles are the second.
inline BitSlice nibbles_from(const std::uint8_t* codes, int half, int i) {
  return {codes + i % half, i < half ? 0 : 4, 4};
}
inline int nibble_at(const std::uint8_t* codes, int half, int i) {
  return nibbles_from(codes, half, i)[0];
}

// Reads kBytes bytes as a number: loads of powers of two, which cost less than a copy of any size.
template <int kBytes>
std::uint64_t integer_at(const std::uint8_t* bytes) {
  constexpr int kLow = static_cast<int>(std::bit_floor(static_cast<unsigned>(kBytes)));
  std::uint64_t low = 0;
  std::memcpy(&low, bytes, kLow);
  if constexpr (kLow == kBytes) {
    return low;
  } else {
    return low | integer_at<kBytes - kLow>(bytes + kLow) << (8 * kLow);
  }
}

// Eight codes of kBits bits, one after another from the lowest bit of the first byte on, in a byte
// each, the first one lowest: they move apart as halves of four, then of two, then of one.
template <int kBits>
std::uint64_t eight_codes(const std::uint8_t* bits) {
  std::uint64_t codes = integer_at<kBits>(bits);
  const auto move_apart = [&codes](int count, std::uint64_t fields) {
    const std::uint64_t low = ((std::uint64_t{1} << (count * kBits)) - 1) * fields;
    const std::uint64_t high = low << (count * kBits);
    codes = (codes & low) | (codes & high) << (count * (8 - kBits));
  };
  move_apart(4, 1);
  move_apart(2, 0x0000000100000001U);
  move_apart(1, 0x0001000100010001U);
  return codes;
}

// Bit i of a string of bits, lowest first.
inline int bit_at(const std::uint8_t* bits, int i) {
  return bits_at(bits[i / 8], i % 8, 1);
}

// Two bits of element i of 256: each run of 32 bytes holds four runs of 32 elements, one in each
// pair of bits.
inline BitSlice pairs_from(const std::uint8_t* codes, int i) {
  return {codes + 32 * (i / 128) + i % 32, 2 * (i % 128 / 32), 2};
}
inline int pair_at(const std::uint8_t* codes, int i) {
  return pairs_from(codes, i)[0];
}

// One bit of element i of 256: 32 bytes hold eight runs of 32 elements, one in each bit.
inline BitSlice strided_bits_from(const std::uint8_t* bits, int i) {
  return {bits + i % 32, i / 32, 1};
}
inline int strided_bit_at(const std::uint8_t* bits, int i) {
  return strided_bits_from(bits, i)[0];
}

// Scale g of 16, 6 bits: 8 bytes have the low four as nibbles, 4 more bytes the high two: that of g
// is byte g % 4, from bit 2 * (g / 4) on.
inline int q3_k_scale(const std::uint8_t* scales, int g) {
  return nibble_at(scales, 8, g) + 16 * bits_at(scales[8 + g % 4], 2 * (g / 4), 2);
}

// The 6-bit scale s and minimum t of group g of 8, in 12 bytes: bytes 0 to 3 have s of the groups 0
// to 3 and, above it, the high two bits of s of the groups 4 to 7; bytes 4 to 7 have t in the same
// way; bytes 8 to 11 have the low four bits of the groups 4 to 7, s below t.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};

inline ScaleAndMinimum k_scales(const std::uint8_t* bytes, int g) {
  if (g < 4) return {bits_at(bytes[g], 0, 6), bits_at(bytes[4 + g], 0, 6)};
  return {bits_at(bytes[4 + g], 0, 4) + 16 * bits_at(bytes[g - 4], 6, 2),
          bits_at(bytes[4 + g], 4, 4) + 16 * bits_at(bytes[g], 6, 2)};
}

// The levels of IQ4_NL and IQ4_XS: closer together near zero, as weights are.
inline constexpr std::array<std::int8_t, 16> kNonLinear = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The scale of group g of 8 of IQ4_XS, in [-32, 31]: high two bits in 2 bytes, low four in 4 more.
inline int iq4_xs_scale(const std::uint8_t* block, int g) {
  const int high = bits_at(block[2 + g / 4], 2 * (g % 4), 2);
  const int low = bits_at(block[4 + g / 2], 4 * (g % 2), 4);
  return low + 16 * high - 32;
}

// Twice the value of a float of sign, two exponent bits and one mantissa bit (E2M1).
inline constexpr std::array<std::int8_t, 16> kTwiceE2m1 = {0, 1,  2,  3,  4,  6,  8,  12,
                                                           0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128): half of the scale, since the codes are doubled. The two smallest are subnormal.
inline float half_of_e8m0(std::uint8_t e) {
  const std::uint32_t bits = e < 2 ? 0x00200000U << e : static_cast<std::uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

}  // namespace kakeya
