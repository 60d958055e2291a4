// Log-probabilities of tokens: natural logarithms of the softmax of the model's own logits, at
// temperature 1. The logits are those after the model's soft-capping and before anything that
// sampling does to them: bias, penalties, temperature, filters, suppressed tokens.
#pragma once

#include <vector>

#include "kakeya/types.h"

namespace kakeya {

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0.0F;  // at most 0; -infinity for a token that cannot be

  bool operator==(const TokenLogprob&) const = default;
};

// Log-probabilities at one position.
struct TokenLogprobs {
  TokenLogprob token;             // the one that stands there
  std::vector<TokenLogprob> top;  // the likeliest ones, in order; ties: the lower id first

  bool operator==(const TokenLogprobs&) const = default;
};

// Most entries of TokenLogprobs::top.
inline constexpr int kMostTopLogprobs = 20;

}  // namespace kakeya
