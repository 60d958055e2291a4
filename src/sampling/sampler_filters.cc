// Top-k, top-p and min-p: which tokens of a row can be drawn. A row has 262,144 logits and is
// filtered for each token, with drafts for each token of a block: nothing here sorts more of it
// than has to be in order.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>

#include "sampling/sampler.h"

namespace kakeya {
namespace {

// Bounds the `count`-th largest logit of a row from below, and nearly always well: the largest
// logits of parts of the row are different ones, so the `count`-th largest of these is no larger.
// Minus infinity where a row is too short for that.
float bound_of_largest(std::span<const float> logits, std::size_t count) {
  constexpr std::size_t kParts = 1024;  // lanes, which the compiler turns into vectors
  if (count == 0 || count > kParts / 4 || logits.size() < 4 * kParts) return kNever;
  std::array<float, kParts> largest;
  largest.fill(kNever);
  for (std::size_t i = 0; i < logits.size(); i += kParts) {
    const std::size_t lanes = std::min(kParts, logits.size() - i);
    for (std::size_t j = 0; j < lanes; ++j) {
      largest[j] = logits[i + j] > largest[j] ? logits[i + j] : largest[j];
    }
  }
  const auto rank = largest.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(largest.begin(), rank, largest.end(), std::greater());
  return *rank;
}

// e^x, x from -80 to 0, within 1e-6 of it, in operations that the compiler turns into vectors: a
// row has as many logits as a vocabulary has tokens. e^x = 2^n * 2^f, |f| <= 1/2, the second factor
// by its Taylor polynomial.
inline float exponential(float x) {
  constexpr float kBitsPerNat = 1.44269504F;
  constexpr float kRounding = 12'582'912.0F;  // 1.5 * 2^23: the sum with it is a whole number
  const float bits = x * kBitsPerNat;
  const float shifted = bits + kRounding;
  const float f = bits - (shifted - kRounding);
  float power = 1.5403530e-4F;
  power = power * f + 1.3333558e-3F;
  power = power * f + 9.6181291e-3F;
  power = power * f + 5.5504109e-2F;
  power = power * f + 2.4022651e-1F;
  power = power * f + 6.9314718e-1F;
  power = power * f + 1.0F;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(power) + exponent);
}

}  // namespace

// Fills candidates_ with what top-k, top-p and min-p leave, and returns how many.
std::size_t Sampler::keep_most_likely(std::span<const float> logits) {
  const float best = logits[static_cast<std::size_t>(argmax(logits))];
  const auto top_k = static_cast<std::size_t>(options_.top_k);
  const float lowest = std::max(best - kReachOfNoise, bound_of_largest(logits, top_k));
  std::size_t count = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= lowest) candidates_[count++] = {static_cast<TokenId>(i), logits[i]};
  }
  return filter(count, best);
}

std::size_t Sampler::filter(std::size_t count, float best) {
  if (options_.top_k > 0) count = top_candidates(count, static_cast<std::size_t>(options_.top_k));
  if (options_.top_p < 1.0F) count = apply_top_p(count, best);
  if (options_.min_p > 0.0F) {
    const float lowest = best + std::log(options_.min_p);
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
    const auto kept = std::remove_if(candidates_.begin(), end,
                                     [&](const TokenLogit& c) { return c.logit < lowest; });
    count = static_cast<std::size_t>(kept - candidates_.begin());
  }
  return count;
}

// Sorts the `wanted` best of the first `available` candidates to the front; returns how many.
std::size_t Sampler::top_candidates(std::size_t available, std::size_t wanted) {
  const auto begin = candidates_.begin();
  wanted = std::min(wanted, available);
  const auto middle = begin + static_cast<std::ptrdiff_t>(wanted);
  if (wanted < available) {
    std::nth_element(begin, middle, begin + static_cast<std::ptrdiff_t>(available), IsBetter());
  }
  std::sort(begin, middle, IsBetter());
  return wanted;
}

// Brings the fewest candidates, the most likely ones, whose probabilities reach top_p to the front,
// in any order. Probabilities are added up by how far below the best a candidate is, and those of
// the step where the sum is reached are the only ones that are sorted.
std::size_t Sampler::apply_top_p(std::size_t count, float best) {
  constexpr float kStepsPerNat = 32.0F;
  constexpr auto kLastStep = static_cast<std::int32_t>(kReachOfNoise * kStepsPerNat) + 1;
  const auto step_of = [&](const TokenLogit& candidate) {
    const float steps = (best - candidate.logit) * kStepsPerNat;
    return static_cast<std::int32_t>(std::min(static_cast<float>(kLastStep), steps));
  };
  const auto share_of = [&](const TokenLogit& candidate) {
    return exponential(candidate.logit - best);
  };
  std::array<double, kLastStep + 1> shares{};
  constexpr std::size_t kBlock = 256;  // whose shares and steps are made first, in vectors
  std::array<float, kBlock> share;
  std::array<std::int32_t, kBlock> step_here;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const auto block = candidates_.subspan(begin, std::min(kBlock, count - begin));
    for (std::size_t i = 0; i < block.size(); ++i) {
      share[i] = share_of(block[i]);
      step_here[i] = step_of(block[i]);
    }
    for (std::size_t i = 0; i < block.size(); ++i) {
      shares[static_cast<std::size_t>(step_here[i])] += share[i];
    }
  }
  double total = 0.0;
  for (const double each : shares) total += each;
  const double wanted = static_cast<double>(options_.top_p) * total;
  double sum = 0.0;
  std::int32_t step = 0;
  while (step < kLastStep && sum + shares[static_cast<std::size_t>(step)] < wanted) {
    sum += shares[static_cast<std::size_t>(step++)];
  }

  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  auto kept = std::partition(candidates_.begin(), end,
                             [&](const TokenLogit& c) { return step_of(c) < step; });
  const auto last =
      std::partition(kept, end, [&](const TokenLogit& c) { return step_of(c) == step; });
  std::sort(kept, last, IsBetter());
  while (kept != last && sum < wanted) sum += share_of(*kept++);
  return static_cast<std::size_t>(kept - candidates_.begin());
}

}  // namespace kakeya
