// Blocks of rotated vectors, to codes and back: tensor/kv_format.h and its bits.
#pragma once

#include "backend/cuda/device/math.h"
#include "backend/cuda/device/params.h"

namespace kakeya::cuda::device {

inline constexpr int kD4Digits = 18;
inline constexpr int kD4Least = -9;
inline constexpr int kD4Largest = 8;

KAKEYA_DEVICE bool is_rotated(RowFormat format) {
  return format == RowFormat::kRotatedInt4 || format == RowFormat::kD4 || format == RowFormat::kE8;
}

// Elements that share a code.
KAKEYA_DEVICE int block_elements(RowFormat format) {
  return format == RowFormat::kE8 ? 8 : format == RowFormat::kD4 ? 4 : 2;
}

// The step that suits a normal distribution of standard deviation 1, and the largest number that
// a step of 1 reaches.
KAKEYA_DEVICE float normal_step(RowFormat format) {
  return format == RowFormat::kD4 ? 0.295F : 0.335F;
}
KAKEYA_DEVICE float reach(RowFormat format) {
  return format == RowFormat::kE8 ? 7.5F : 8.0F;
}

KAKEYA_DEVICE float rounded_within(float x, float low, float high) {
  const float rounded = dev::round_even(x);
  return rounded < low ? low : rounded > high ? high : rounded;
}

// A block's code, and its squared distance from what was to be coded.
struct BlockCode {
  std::uint32_t code;
  float distance;
};

// The nearest point with whole coordinates of an even sum; returns the squared distance.
template <int kSize>
KAKEYA_DEVICE float nearest_even(const float (&z)[kSize], int low, int high, int (&point)[kSize]) {
  float distance = 0.0F;
  float least = dev::float_of(0x7f800000U);
  int sum = 0;
  int cheapest = 0;
  int moved = 0;
  KAKEYA_UNROLL
  for (int i = 0; i < kSize; ++i) {
    const float nearest = rounded_within(z[i], static_cast<float>(low), static_cast<float>(high));
    point[i] = static_cast<int>(nearest);
    const float residual = z[i] - nearest;
    distance = distance + residual * residual;
    sum += point[i];
    int other = residual >= 0.0F ? point[i] + 1 : point[i] - 1;
    if (other > high) other = high - 1;
    if (other < low) other = low + 1;
    const float after = z[i] - static_cast<float>(other);
    const float extra = after * after - residual * residual;
    if (extra < least) {
      least = extra;
      cheapest = i;
      moved = other;
    }
  }
  if (sum % 2 == 0) return distance;
  KAKEYA_UNROLL
  for (int i = 0; i < kSize; ++i) {
    if (i == cheapest) point[i] = moved;
  }
  return distance + least;
}

KAKEYA_DEVICE BlockCode int4_block(const float (&z)[2]) {
  BlockCode block = {0, 0.0F};
  KAKEYA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const float code = rounded_within(z[i] - 0.5F, -8.0F, 7.0F);
    const float residual = z[i] - code - 0.5F;
    block.distance = block.distance + residual * residual;
    block.code |= static_cast<std::uint32_t>(static_cast<int>(code) + 8) << (4 * i);
  }
  return block;
}

KAKEYA_DEVICE BlockCode d4_block(const float (&z)[4]) {
  int point[4];
  const float distance = nearest_even(z, kD4Least, kD4Largest, point);
  int code = 0;
  KAKEYA_UNROLL
  for (int i = 0; i < 3; ++i) code = code * kD4Digits + point[i] - kD4Least;
  code = code * (kD4Digits / 2) + (point[3] - kD4Least) / 2;
  return {static_cast<std::uint32_t>(code), distance};
}

// The shift of 4-bit field i: fields of the lower half lie below those of the upper half.
KAKEYA_DEVICE int e8_field_shift(int i) {
  return i < 4 ? 8 * i : 8 * (i - 4) + 4;
}

KAKEYA_DEVICE BlockCode e8_block(const float (&z)[8]) {
  float shifted[8];
  KAKEYA_UNROLL
  for (int i = 0; i < 8; ++i) shifted[i] = z[i] - 0.5F;
  int whole[8];
  int half[8];
  const float to_whole = nearest_even(z, -8, 7, whole);
  const float to_half = nearest_even(shifted, -8, 7, half);
  const bool coset = to_half < to_whole;
  BlockCode block = {0, coset ? to_half : to_whole};
  KAKEYA_UNROLL
  for (int i = 0; i < 8; ++i) {
    int field = (coset ? half[i] : whole[i]) + 8;
    if (i == 7) field = (field & ~1) | (coset ? 1 : 0);
    block.code |= static_cast<std::uint32_t>(field) << e8_field_shift(i);
  }
  return block;
}

KAKEYA_DEVICE int d4_coordinate(int code, int i) {
  const int third = code / (kD4Digits / 2);
  const int second = third / kD4Digits;
  const int digits[3] = {second / kD4Digits, second % kD4Digits, third % kD4Digits};
  if (i == 0) return digits[0] + kD4Least;
  if (i == 1) return digits[1] + kD4Least;
  if (i == 2) return digits[2] + kD4Least;
  const int odd = (digits[0] + digits[1] + digits[2]) % 2;
  return code % (kD4Digits / 2) * 2 + odd + kD4Least;
}

KAKEYA_DEVICE float e8_coordinate(std::uint32_t code, int i) {
  const int field = static_cast<int>(code >> e8_field_shift(i) & 15U);
  // The last field's lowest bit tells the coset, and its own follows from the others' sum.
  constexpr std::uint32_t kLowestOfOthers = 0x01111111U;
  std::uint32_t odd = code & kLowestOfOthers;
  odd ^= odd >> 16;
  odd ^= odd >> 8;
  odd ^= odd >> 4;
  const int whole = i == 7 ? (field & ~1) | static_cast<int>(odd & 1U) : field;
  return static_cast<float>(whole - 8) + ((code >> 28 & 1U) != 0 ? 0.5F : 0.0F);
}

// Element i of the block that a code stands for, in steps.
KAKEYA_DEVICE float coordinate(RowFormat format, std::uint32_t code, int i) {
  if (format == RowFormat::kE8) return e8_coordinate(code, i);
  if (format == RowFormat::kD4) return static_cast<float>(d4_coordinate(static_cast<int>(code), i));
  return static_cast<float>(static_cast<int>(code >> (4 * i) & 15U) - 8) + 0.5F;
}

}  // namespace kakeya::cuda::device
