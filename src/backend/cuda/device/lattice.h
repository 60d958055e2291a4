// Blocks of vectors that are stored as e8, to codes and back: tensor/kv_format.h and its bits.
#pragma once

#include "backend/cuda/device/math.h"
#include "backend/cuda/device/params.h"

namespace kakeya::cuda::device {

// Elements that share a code of E8.
inline constexpr int kE8Block = 8;
// The step that suits a normal distribution of standard deviation 1, and the largest number that
// a step of 1 reaches.
inline constexpr float kE8NormalStep = 0.335F;
inline constexpr float kE8Reach = 7.5F;
inline constexpr int kE8Least = -8;
inline constexpr int kE8Largest = 7;

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
KAKEYA_DEVICE float nearest_even(const float (&z)[kE8Block], int (&point)[kE8Block]) {
  float distance = 0.0F;
  float least = dev::float_of(0x7f800000U);
  int sum = 0;
  int cheapest = 0;
  int moved = 0;
  KAKEYA_UNROLL
  for (int i = 0; i < kE8Block; ++i) {
    const float nearest =
        rounded_within(z[i], static_cast<float>(kE8Least), static_cast<float>(kE8Largest));
    point[i] = static_cast<int>(nearest);
    const float residual = z[i] - nearest;
    distance = distance + residual * residual;
    sum += point[i];
    int other = residual >= 0.0F ? point[i] + 1 : point[i] - 1;
    if (other > kE8Largest) other = kE8Largest - 1;
    if (other < kE8Least) other = kE8Least + 1;
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
  for (int i = 0; i < kE8Block; ++i) {
    if (i == cheapest) point[i] = moved;
  }
  return distance + least;
}

// The shift of 4-bit field i: fields of the lower half lie below those of the upper half.
KAKEYA_DEVICE int e8_field_shift(int i) {
  return i < 4 ? 8 * i : 8 * (i - 4) + 4;
}

KAKEYA_DEVICE BlockCode e8_block(const float (&z)[kE8Block]) {
  float shifted[kE8Block];
  KAKEYA_UNROLL
  for (int i = 0; i < kE8Block; ++i) shifted[i] = z[i] - 0.5F;
  int whole[kE8Block];
  int half[kE8Block];
  const float to_whole = nearest_even(z, whole);
  const float to_half = nearest_even(shifted, half);
  const bool coset = to_half < to_whole;
  BlockCode block = {0, coset ? to_half : to_whole};
  KAKEYA_UNROLL
  for (int i = 0; i < kE8Block; ++i) {
    int field = (coset ? half[i] : whole[i]) + 8;
    if (i == 7) field = (field & ~1) | (coset ? 1 : 0);
    block.code |= static_cast<std::uint32_t>(field) << e8_field_shift(i);
  }
  return block;
}

// Element i of the block that a code stands for, in steps.
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

}  // namespace kakeya::cuda::device
