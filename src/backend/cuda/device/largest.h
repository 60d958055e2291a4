// The largest numbers of a row, so that a row of logits need not leave the device. The columns of a
// block lie in bins, neighbours in different ones, since tokens that are likely together are often
// neighbours; the largest six of each bin are listed. No other number of a bin is larger than the
// sixth.
#pragma once

#include "backend/cuda/device/integer_strips.h"

namespace kakeya::cuda::device {

inline constexpr int kLargestThreads = 256;
inline constexpr int kLargestWarps = kLargestThreads / dev::kWarp;
inline constexpr int kLargestBins = 8;  // column i is in bin i % 8 of its block
inline constexpr int kLargestOfBin = 6;
inline constexpr int kLargestListed = kLargestBins * kLargestOfBin;  // of a block
inline constexpr int kLargestFoundWords = kLargestWarps * (2 * kLargestListed + 1);
inline constexpr int kLargestWords = kLargestFoundWords + 2 * kLargestListed;

struct LargestOfBin {
  float values[kLargestOfBin];  // descending
  int ids[kLargestOfBin];       // -1: none

  KAKEYA_DEVICE LargestOfBin() {
    KAKEYA_UNROLL
    for (int i = 0; i < kLargestOfBin; ++i) {
      values[i] = 0.0F;
      ids[i] = -1;
    }
  }

  KAKEYA_DEVICE void insert(float value, int id) {
    KAKEYA_UNROLL
    for (int i = 0; i < kLargestOfBin; ++i) {
      const bool before = id >= 0 && (ids[i] < 0 || value > values[i]);
      const float behind = before ? values[i] : value;
      const int id_behind = before ? ids[i] : id;
      values[i] = before ? value : values[i];
      ids[i] = before ? id : ids[i];
      value = behind;
      id = id_behind;
    }
  }
  // Adds those of the lane whose number is `apart` from the own one.
  KAKEYA_DEVICE void insert_lane(int apart) {
    const LargestOfBin own = *this;
    KAKEYA_UNROLL
    for (int i = 0; i < kLargestOfBin; ++i) {
      float value[1];
      int id[1];
      dev::of_lanes(own.values[i], dev::lane() ^ apart, value);
      dev::of_lanes(own.ids[i], dev::lane() ^ apart, id);
      insert(value[0], id[0]);
    }
  }
};

// Grid: blocks of a row, rows.
KAKEYA_DEVICE void largest(const LargestParams& p) {
  constexpr int kAhead = 8;  // loads in flight
  const dev::Global<const float> x(p.x + dev::block_y() * p.width);
  const std::int64_t begin = dev::block_x() * p.span;
  const std::int64_t end = begin + p.span < p.width ? begin + p.span : p.width;
  LargestOfBin own;
  float poison[1] = {};  // 0, or NaN behind a number that is not finite
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
      poison[0] = poison[0] + values[j] * 0.0F;
      own.insert(values[j], at < end ? static_cast<int>(at) : -1);
    }
  }
  dev::warp_sums(poison);
  for (int apart = kLargestBins; apart < dev::kWarp; apart *= 2) own.insert_lane(apart);
  const dev::Shared<float> values(0);
  const dev::Shared<int> ids(kLargestWarps * kLargestListed);
  const dev::Shared<float> poisons(2 * kLargestWarps * kLargestListed);
  const int place = dev::lane() * kLargestOfBin;
  if (dev::lane() < kLargestBins) {
    KAKEYA_UNROLL
    for (int i = 0; i < kLargestOfBin; ++i) {
      values.store(dev::warp() * kLargestListed + place + i, own.values[i]);
      ids.store(dev::warp() * kLargestListed + place + i, own.ids[i]);
    }
  }
  if (dev::lane() == 0) poisons.store(dev::warp(), poison[0]);
  dev::sync_block();
  if (dev::warp() != 0) return;
  const dev::Shared<std::uint32_t> listed(kLargestFoundWords);
  if (dev::lane() < kLargestBins) {
    for (int warp = 1; warp < kLargestWarps; ++warp) {
      poison[0] = poison[0] + poisons.load(warp);
      KAKEYA_UNROLL
      for (int i = 0; i < kLargestOfBin; ++i) {
        const int at = warp * kLargestListed + place + i;
        own.insert(values.load(at), ids.load(at));
      }
    }
    KAKEYA_UNROLL
    for (int i = 0; i < kLargestOfBin; ++i) {
      listed.store(2 * (place + i), dev::bits_of(own.values[i] + poison[0]));
      listed.store(2 * (place + i) + 1, static_cast<std::uint32_t>(own.ids[i]));
    }
  }
  dev::sync_warp();
  // In pieces of 16 bytes side by side: on the way to the host each piece by itself takes as long.
  constexpr int kUnits = 2 * kLargestListed / kUnitWords;
  if (dev::lane() >= kUnits) return;
  const std::int64_t blocks = (p.width + p.span - 1) / p.span;
  const dev::Global<FourWords> out(reinterpret_cast<FourWords*>(p.out));
  out.store((dev::block_y() * blocks + dev::block_x()) * kUnits + dev::lane(),
            listed.load_as<FourWords>(dev::lane() * kUnitWords));
}

}  // namespace kakeya::cuda::device
