// Element types of tensors and exact conversions between the floating point ones.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kakeya {

enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kBool
};

// The safetensors spelling: "F32", "BF16", "I32", ...
std::string_view dtype_name(DType dtype);
std::size_t dtype_bytes(DType dtype);

// A bfloat16 as stored: the upper half of an IEEE 754 single.
struct BFloat16 {
  std::uint16_t bits;
};

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN.
inline BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

// IEEE 754 half precision, given as its bits. Exact.
float half_to_float(std::uint16_t bits);

// The bits of the nearest half, ties to even; from 65520 on infinity; NaN stays NaN.
std::uint16_t float_to_half(float value);

// Stores the nearest half in two bytes, the lower one first.
inline void store_half(float value, std::uint8_t* out) {
  const std::uint16_t bits = float_to_half(value);
  out[0] = static_cast<std::uint8_t>(bits & 0xffU);
  out[1] = static_cast<std::uint8_t>(bits >> 8);
}

}  // namespace kakeya
