// The largest number of a row, so that a row of logits need not leave the device.
#pragma once

#include "backend/cuda/device/dev.h"
#include "backend/cuda/device/params.h"

namespace kakeya::cuda::device {

inline constexpr int kLargestThreads = 256;
inline constexpr int kLargestWarps = kLargestThreads / dev::kWarp;
inline constexpr int kLargestWords = 3 * kLargestWarps;
inline constexpr std::int64_t kLargestSpan = 8192;  // columns of a block

// What one thread, warp or block has seen.
struct Largest {
  float value = 0.0F;
  int id = -1;
  float poison = 0.0F;  // 0, or NaN behind a number that is not finite

  KAKEYA_DEVICE void of_lanes() {
    dev::warp_best(value, id);
    float sums[1] = {poison};
    dev::warp_sums(sums);
    poison = sums[0];
  }
};

KAKEYA_DEVICE bool is_excluded(const LargestParams& p, std::int64_t id) {
  bool excluded = false;
  KAKEYA_UNROLL
  for (int i = 0; i < kMostExcluded; ++i) excluded = excluded || p.excluded[i] == id;
  return excluded;
}

// Grid: spans, rows.
KAKEYA_DEVICE void largest(const LargestParams& p) {
  constexpr int kAhead = 8;  // loads in flight
  const dev::Global<const float> x(p.x + dev::block_y() * p.width);
  const std::int64_t begin = dev::block_x() * kLargestSpan;
  const std::int64_t end = begin + kLargestSpan < p.width ? begin + kLargestSpan : p.width;
  Largest own;
  for (std::int64_t i = begin + dev::thread(); i < end; i += kAhead * kLargestThreads) {
    float values[kAhead] = {};
    KAKEYA_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      const std::int64_t at = i + j * kLargestThreads;
      if (at < end) values[j] = x.load(at);
    }
    KAKEYA_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      const std::int64_t at = i + j * kLargestThreads;
      own.poison = own.poison + values[j] * 0.0F;
      // Ascending, so that of equal ones the lowest id stays.
      if (at >= end || !(own.id < 0 || values[j] > own.value) || is_excluded(p, at)) continue;
      own.value = values[j];
      own.id = static_cast<int>(at);
    }
  }
  own.of_lanes();
  const dev::Shared<float> values(0);
  const dev::Shared<int> ids(kLargestWarps);
  const dev::Shared<float> poisons(2 * kLargestWarps);
  if (dev::lane() == 0) {
    values.store(dev::warp(), own.value);
    ids.store(dev::warp(), own.id);
    poisons.store(dev::warp(), own.poison);
  }
  dev::sync_block();
  if (dev::warp() != 0) return;
  Largest of_warp;
  if (dev::lane() < kLargestWarps) {
    of_warp = {values.load(dev::lane()), ids.load(dev::lane()), poisons.load(dev::lane())};
  }
  of_warp.of_lanes();
  if (dev::lane() != 0) return;
  const std::int64_t spans = (p.width + kLargestSpan - 1) / kLargestSpan;
  const LargestOfSpan found = {of_warp.value + of_warp.poison, of_warp.id};
  dev::Global<LargestOfSpan>(p.out).store(dev::block_y() * spans + dev::block_x(), found);
}

}  // namespace kakeya::cuda::device
