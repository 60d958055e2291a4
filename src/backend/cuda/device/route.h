// The choice of experts: each logit counts those that come before it.
#pragma once

#include "backend/cuda/device/products.h"

namespace kakeya::cuda::device {

inline constexpr int kRouteThreads = 512;
inline constexpr int kRouteParts = 4;  // threads that share the counting for an expert

// Unsigned numbers in the order of floats, equal for equal ones; NaN is below all of them. Never 0.
KAKEYA_DEVICE std::uint32_t ordered(float x) {
  if (x != x) return 1;
  const std::uint32_t bits = dev::bits_of(x + 0.0F);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

// In shared memory, in words: for each expert its key, of which there are whole groups, its logit
// and its scale; for each rank its expert.
struct RouteWords {
  static constexpr int kGroup = kRouteParts * kUnitWords;

  int keys;

  KAKEYA_DEVICE explicit RouteWords(std::int64_t num_experts)
      : keys((static_cast<int>(num_experts) + kGroup - 1) / kGroup * kGroup) {}

  KAKEYA_DEVICE int logits() const { return keys; }
  KAKEYA_DEVICE int scales() const { return 2 * keys; }
  KAKEYA_DEVICE int chosen() const { return 3 * keys; }
  KAKEYA_DEVICE int all() const { return chosen() + static_cast<int>(kMaxTopK); }
};

// Counts the keys of every kRouteParts-th unit from the lane's one on that come before the key of
// an expert: larger ones, and equal ones of experts before it.
KAKEYA_DEVICE int count_before(const RouteWords& words, std::uint32_t key, int expert) {
  const dev::Shared<std::uint32_t> keys(0);
  int before = 0;
  KAKEYA_NO_UNROLL
  for (int first = 0; first < words.keys; first += 2 * RouteWords::kGroup) {
    KAKEYA_UNROLL
    for (int g = 0; g < 2; ++g) {
      const int at = first + g * RouteWords::kGroup + dev::lane() % kRouteParts * kUnitWords;
      if (at >= words.keys) continue;
      const auto four = keys.load_as<FourWords>(at);
      KAKEYA_UNROLL
      for (int k = 0; k < kUnitWords; ++k) {
        const std::uint32_t least = at + k < expert ? key : key + 1;
        before += four.at[k] >= least ? 1 : 0;
      }
    }
  }
  return before;
}

// By the first warp: of each rank the power of its logit, over their sum, times the scale of the
// expert.
KAKEYA_DEVICE void weigh_ranks(const RouteParams& p, const RouteWords& words, std::int64_t row) {
  constexpr int kAtOnce = 8;
  const auto top_k = static_cast<int>(p.top_k);
  const int rank = dev::lane() < top_k ? dev::lane() : 0;
  const int own = dev::Shared<int>(words.chosen()).load(rank);
  const float value = dev::Shared<float>(words.logits()).load(own);
  float first[1];
  dev::of_lanes(value, 0, first);
  const double power = device::exp(static_cast<double>(value) - first[0]);
  double total = 0.0;
  KAKEYA_NO_UNROLL
  for (int begin = 0; begin < top_k; begin += kAtOnce) {
    double powers[kAtOnce];
    dev::of_lanes(power, begin, powers);
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      if (begin + k < top_k) total = total + powers[k];
    }
  }
  if (dev::lane() >= top_k) return;
  const float scale = dev::Shared<float>(words.scales()).load(own);
  const std::int64_t at = row * p.top_k + dev::lane();
  dev::Global<std::int32_t>(p.experts).store(at, own);
  dev::Global<float>(p.weights).store(at, static_cast<float>(power / total * scale));
}

// By a block of kThreads threads, which may have written the logits itself.
template <int kThreads>
KAKEYA_DEVICE void choose_experts(const RouteParams& p, std::int64_t row) {
  const RouteWords words(p.num_experts);
  const auto num_experts = static_cast<int>(p.num_experts);
  const dev::Global<const float> from(p.logits + row * p.num_experts);
  const dev::Global<const float> scale(p.per_expert_scale);
  const dev::Shared<std::uint32_t> keys(0);
  const dev::Shared<float> logits(words.logits());
  const dev::Shared<float> scales(words.scales());
  KAKEYA_NO_UNROLL
  for (int e = dev::thread(); e < words.keys; e += kThreads) {
    const bool is_there = e < num_experts;
    const float logit = is_there ? from.load_fresh(e) : 0.0F;
    scales.store(e, is_there ? scale.load(e) : 0.0F);
    logits.store(e, logit);
    keys.store(e, is_there ? ordered(logit) : 0);
  }
  dev::sync_block();
  KAKEYA_NO_UNROLL
  for (int first = 0; first < num_experts; first += kThreads / kRouteParts) {
    const int expert = first + dev::thread() / kRouteParts;
    const bool is_there = expert < num_experts;
    int before = is_there ? count_before(words, keys.load(expert), expert) : 0;
    KAKEYA_UNROLL
    for (int apart = 1; apart < kRouteParts; apart *= 2) {
      int other[1];
      dev::of_lanes(before, dev::lane() ^ apart, other);
      before += other[0];
    }
    if (!is_there || dev::lane() % kRouteParts != 0 || before >= p.top_k) continue;
    dev::Shared<int>(words.chosen()).store(before, expert);
  }
  dev::sync_block();
  if (dev::warp() == 0) weigh_ranks(p, words, row);
}

// Grid: rows.
KAKEYA_DEVICE void route(const RouteParams& p) {
  dev::wait_for_previous();
  dev::let_next_start();
  choose_experts<kRouteThreads>(p, dev::block_x());
}

}  // namespace kakeya::cuda::device
