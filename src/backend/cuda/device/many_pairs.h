// Many pairs of a row and a rank in order of their experts (grouped_experts.h): each warp counts a
// stretch of the pairs, and stores it once it is known what is before that.
#pragma once

#include "backend/cuda/device/grouped_experts.h"

namespace kakeya::cuda::device {

inline constexpr int kManyPairsWarps = 32;  // at most
inline constexpr int kManyPairsWords = 16384;

// The words of a number an expert.
KAKEYA_DEVICE int expert_words(std::int64_t experts) {
  return (static_cast<int>(experts) + kUnitWords - 1) / kUnitWords * kUnitWords;
}
// The warps whose counts have room in shared memory.
KAKEYA_DEVICE int many_pairs_warps(std::int64_t experts) {
  const bool has_room = expert_words(experts) * kManyPairsWarps <= kManyPairsWords;
  return has_room ? kManyPairsWarps : kManyPairsWarps / 2;
}
// Shared words: for each warp a number an expert, then two for each expert, then one.
KAKEYA_DEVICE int many_pairs_words(std::int64_t experts) {
  return (many_pairs_warps(experts) + 2) * expert_words(experts) + 1;
}

// A warp's stretch of the pairs, and what it has of each expert.
struct PairStretch {
  static constexpr int kAtOnce = 8;  // loads for each lane

  const GroupExpertsParams& p;
  dev::Shared<std::int32_t> counts;

  KAKEYA_DEVICE explicit PairStretch(const GroupExpertsParams& params)
      : p(params), counts(dev::warp() * expert_words(params.num_experts)) {}

  // Calls `found(pair, expert, how many of the stretch are the expert's before it)`, where counts
  // are what these begin with, and adds all to counts.
  template <typename Found>
  KAKEYA_DEVICE void count(const Found& found) const {
    const auto pairs = static_cast<int>(p.pairs);
    const int warps = dev::threads() / dev::kWarp;
    const int length = (pairs + warps * dev::kWarp - 1) / (warps * dev::kWarp) * dev::kWarp;
    const int begin = dev::warp() * length;
    const int end = begin + length < pairs ? begin + length : pairs;
    const dev::Global<const std::int32_t> experts(p.experts);
    KAKEYA_NO_UNROLL
    for (int first = begin; first < end; first += kAtOnce * dev::kWarp) {
      std::int32_t own[kAtOnce];
      KAKEYA_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const int pair = first + k * dev::kWarp + dev::lane();
        own[k] = pair < end ? experts.load(pair) : -1;
      }
      KAKEYA_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        add(first + k * dev::kWarp + dev::lane(), own[k], found);
      }
    }
  }

 private:
  template <typename Found>
  KAKEYA_DEVICE void add(int pair, std::int32_t expert, const Found& found) const {
    const std::uint32_t same = dev::lanes_with(static_cast<std::uint32_t>(expert));
    const int before = dev::count_bits(same & ((1U << dev::lane()) - 1));
    const int base = expert < 0 ? 0 : counts.load(expert);
    dev::sync_warp();
    if (expert >= 0 && before == 0) counts.store(expert, base + dev::count_bits(same));
    dev::sync_warp();
    if (expert >= 0) found(pair, expert, base + before);
  }
};

// Makes of what each warp has of an expert what those before it have; returns the sum of all.
KAKEYA_DEVICE std::int32_t add_stretches(int expert, int words) {
  constexpr int kAtOnce = 8;
  const dev::Shared<std::int32_t> counts(expert);
  std::int32_t sum = 0;
  KAKEYA_NO_UNROLL
  for (int warp = 0; warp < dev::threads() / dev::kWarp; warp += kAtOnce) {
    std::int32_t own[kAtOnce];
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) own[k] = counts.load((warp + k) * words);
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      counts.store((warp + k) * words, sum);
      sum += own[k];
    }
  }
  return sum;
}

// How many pairs, and tiles of them, the experts before `e` have.
struct ExpertPlace {
  int begin = 0;
  int tile = 0;

  KAKEYA_DEVICE ExpertPlace(const dev::Shared<std::int32_t>& totals, int e, int of_tile) {
    KAKEYA_NO_UNROLL
    for (int other = 0; other < e; other += kUnitWords) {
      const auto four = totals.load_as<FourWords>(other);
      KAKEYA_UNROLL
      for (int k = 0; k < kUnitWords; ++k) {
        const unsigned count = other + k < e ? four.at[k] : 0;
        begin += static_cast<int>(count);
        tile += static_cast<int>((count + of_tile - 1) / static_cast<unsigned>(of_tile));
      }
    }
  }
};

// One block, of many_pairs_warps().
KAKEYA_DEVICE void group_many_experts(const GroupExpertsParams& p) {
  dev::wait_for_previous();
  dev::let_next_start();
  const int words = expert_words(p.num_experts);
  const auto of_tile = static_cast<int>(p.tile_pairs);
  const int warps = dev::threads() / dev::kWarp;
  const dev::Shared<std::int32_t> totals(warps * words);
  const dev::Shared<std::int32_t> begins((warps + 1) * words);
  const dev::Shared<std::int32_t> num_tiles((warps + 2) * words);
  const dev::Global<std::int32_t> order(p.groups.order);
  const dev::Global<ExpertTile> tiles(p.groups.tiles);
  const PairStretch stretch(p);
  for (int e = dev::lane(); e < words; e += dev::kWarp) stretch.counts.store(e, 0);
  dev::sync_warp();
  stretch.count([](int /*pair*/, int /*expert*/, int /*place*/) {});
  dev::sync_block();
  for (int e = dev::thread(); e < words; e += dev::threads()) {
    totals.store(e, add_stretches(e, words));
  }
  dev::sync_block();
  for (int e = dev::thread(); e < p.num_experts; e += dev::threads()) {
    ExpertPlace place(totals, e, of_tile);
    begins.store(e, place.begin);
    const int end = place.begin + totals.load(e);
    for (int first = place.begin; first < end; first += of_tile, ++place.tile) {
      tiles.store(place.tile, {e, first, end - first < of_tile ? end - first : of_tile, 0});
    }
    if (e == p.num_experts - 1) num_tiles.store(0, place.tile);
  }
  dev::sync_block();
  for (std::int64_t i = num_tiles.load(0) + dev::thread(); i < p.num_tiles; i += dev::threads()) {
    tiles.store(i, {0, 0, 0, 0});
  }
  stretch.count(
      [&](int pair, int expert, int place) { order.store(begins.load(expert) + place, pair); });
}

}  // namespace kakeya::cuda::device
