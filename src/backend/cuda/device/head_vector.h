// A vector of one head, in the registers of a warp. Lane l holds elements l + 32 k of its first
// half, then those of its second half: the two that rotary embedding pairs are numbers k and
// k + kHeldPairs of one lane. Where a lane has no such element it holds 0.
#pragma once

#include "backend/cuda/device/math.h"

namespace kakeya::cuda::device {

inline constexpr int kMaxHeadDim = 512;
inline constexpr int kHeld = kMaxHeadDim / dev::kWarp;
inline constexpr int kHeldPairs = kHeld / 2;

// Which elements of a vector of `size` the lane holds.
class Held {
 public:
  KAKEYA_DEVICE explicit Held(int size)
      : size_(size),
        half_(size / 2),
        lane_(dev::lane()),
        used_((size - half_ + dev::kWarp - 1) / dev::kWarp) {}

  KAKEYA_DEVICE int size() const { return size_; }
  KAKEYA_DEVICE int half() const { return half_; }
  // True if some lane holds an element as number k. Other numbers are never looked at.
  KAKEYA_DEVICE bool uses(int k) const { return k % kHeldPairs < used_; }
  // The one that this lane holds as number k; -1: none.
  KAKEYA_DEVICE int element(int k) const {
    const int i = lane_ + dev::kWarp * (k % kHeldPairs);
    if (k < kHeldPairs) return i < half_ ? i : -1;
    return half_ + i < size_ ? half_ + i : -1;
  }

 private:
  int size_;
  int half_;
  int lane_;
  int used_;
};

// The product of two vectors, in all lanes: each adds up its own, fma, then pairs of lanes.
KAKEYA_DEVICE float dot(const Held& held, const float (&a)[kHeld], const float (&b)[kHeld]) {
  float sum[1] = {0.0F};
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    if (held.uses(k)) sum[0] = dev::fma(a[k], b[k], sum[0]);
  }
  dev::warp_sums(sum);
  return sum[0];
}

// hadamard_transform() of tensor/kv_format.h, with its bits; `size` is a power of two from 8 on.
KAKEYA_DEVICE void hadamard(const Held& held, float (&x)[kHeld]) {
  const int half = held.half();
  for (int apart = 1; apart < half && apart < dev::kWarp; apart *= 2) {
    float other[kHeld];
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) other[k] = x[k];
    dev::warp_swap(other, apart);
    const bool is_second = (dev::lane() & apart) != 0;
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      if (held.uses(k)) x[k] = is_second ? other[k] - x[k] : x[k] + other[k];
    }
  }
  KAKEYA_UNROLL
  for (int apart = 1; apart < kHeld; apart *= 2) {
    // The last step is between the halves, wherever they begin.
    if (apart < kHeldPairs && apart * dev::kWarp >= half) continue;
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      if ((k & apart) != 0 || !held.uses(k)) continue;
      const float first = x[k];
      const float second = x[k + apart];
      x[k] = first + second;
      x[k + apart] = first - second;
    }
  }
  const float scale = 1.0F / dev::sqrt(static_cast<float>(held.size()));
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    if (held.uses(k)) x[k] = x[k] * scale;
  }
}

// Rotary embedding at a position.
KAKEYA_DEVICE void turn(std::int64_t position,
                        const dev::Global<const float>& frequencies,
                        std::int64_t num_frequencies,
                        float (&x)[kHeld]) {
  KAKEYA_UNROLL
  for (int k = 0; k < kHeldPairs; ++k) {
    const int i = dev::lane() + dev::kWarp * k;
    if (i >= num_frequencies) continue;
    const Turn by = turn_by(static_cast<float>(position) * frequencies.load(i));
    const float low = x[k];
    const float high = x[k + kHeldPairs];
    x[k] = low * by.cos - high * by.sin;
    x[k + kHeldPairs] = high * by.cos + low * by.sin;
  }
}

}  // namespace kakeya::cuda::device
