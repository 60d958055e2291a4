// Log-probabilities as OpenAI's clients read them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kakeya/logprobs.h"
#include "kakeya/tokenizer.h"

namespace kakeya::openai {

// The text shown for a token: its own, or for a part of a character its bytes as OpenAI writes
// them, behind `prefix`.
std::string shown_token(const Tokenizer& tokenizer, TokenId id, std::string_view prefix);

// The number shown: JSON has no infinity.
float shown_logprob(const TokenLogprob& of);

// {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}, ...]}
nlohmann::ordered_json logprobs_json(const Tokenizer& tokenizer, const TokenLogprobs& of);

}  // namespace kakeya::openai
