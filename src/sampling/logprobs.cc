#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/status.h"

namespace kakeya {
namespace {

// The divisor of a softmax, relative to the largest logit so that nothing overflows.
struct Normalizer {
  double most = 0.0;
  double log_sum = 0.0;  // of exp(logit - most)
};

Normalizer normalizer_of(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return {.most = most, .log_sum = std::log(sum)};
}

// The likeliest ids, in order. Most logits are below the last of them and cost one comparison.
std::vector<TokenId> likeliest_ids(std::span<const float> logits, std::size_t count) {
  std::vector<TokenId> ids;
  if (count == 0) return ids;
  ids.reserve(count + 1);
  const auto logit_of = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (ids.size() == count && !(logits[i] > logit_of(ids.back()))) continue;
    const auto place = std::upper_bound(ids.begin(), ids.end(), logits[i],
                                        [&](float a, TokenId b) { return a > logit_of(b); });
    ids.insert(place, static_cast<TokenId>(i));
    if (ids.size() > count) ids.pop_back();
  }
  return ids;
}

}  // namespace

Status check_top_logprobs(const char* option, int top) {
  if (top >= 0 && top <= kMostTopLogprobs) return {};
  return invalid_argument("{} must be 0 to {} but is {}", option, kMostTopLogprobs, top);
}

TokenLogprobs token_logprobs(std::span<const float> logits, TokenId id, int top) {
  const Normalizer normalizer = normalizer_of(logits);
  const auto entry = [&](TokenId token) {
    const double logit = logits[static_cast<std::size_t>(token)];
    const double logprob = logit - normalizer.most - normalizer.log_sum;
    return TokenLogprob{.id = token, .logprob = static_cast<float>(logprob)};
  };
  TokenLogprobs result{.token = entry(id), .top = {}};
  const std::vector<TokenId> ids = likeliest_ids(logits, static_cast<std::size_t>(top));
  result.top.reserve(ids.size());
  for (const TokenId token : ids) result.top.push_back(entry(token));
  return result;
}

}  // namespace kakeya
