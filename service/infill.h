// Fill in the middle: the prompt by which a model of code is asked for what stands between two
// texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/tokenizer.h"
#include "service/refusal.h"

namespace kakeya::service {

// The tokens that such a prompt is made of.
struct InfillTokens {
  TokenId prefix = 0;
  TokenId suffix = 0;
  TokenId middle = 0;
  std::vector<TokenId> ends = {};  // end an answer, beside those of the model
};

// Finds them by their names, as publishers of models of code write
// them; none if the model knows no such prompt.
std::optional<InfillTokens> find_infill_tokens(const Tokenizer& tokenizer);

// The ids of: what begins a text if `add_special`, [prefix] before [suffix] after [middle]; the
// texts spell no special tokens. Errors: kInvalidArgument for a model without such tokens, naming
// "suffix", and for more than `most_tokens` ("context_length_exceeded").
Outcome<std::vector<TokenId>> encode_infill(const Engine& engine,
                                            std::string_view before,
                                            std::string_view after,
                                            bool add_special,
                                            std::int64_t most_tokens);

}  // namespace kakeya::service
