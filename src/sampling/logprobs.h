// The arithmetic of kakeya/logprobs.h.
#pragma once

#include <span>

#include "kakeya/logprobs.h"
#include "kakeya/status.h"

namespace kakeya {

// Errors: kInvalidArgument unless 0 <= top <= kMostTopLogprobs; `option` names it.
Status check_top_logprobs(const char* option, int top);

// The log-probabilities of token `id`, and of the `top` likeliest ones, from finite logits [V] as
// the model gave them; 0 <= id < V. All sums are in double.
TokenLogprobs token_logprobs(std::span<const float> logits, TokenId id, int top);

}  // namespace kakeya
