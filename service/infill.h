// Fill in the middle: the prompt by which a model of code is asked for what stands between two
// texts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/tokenizer.h"
#include "service/refusal.h"

namespace kakeya::service {

struct RawPrompt;

// The tokens that such a prompt is made of.
struct InfillTokens {
  TokenId prefix = 0;
  TokenId suffix = 0;
  TokenId middle = 0;
  // In front of a project's name and of each of its files' names, where a model knows more files.
  std::optional<TokenId> project = {};
  std::optional<TokenId> file = {};
  std::vector<TokenId> ends = {};  // end an answer, beside those of the model
};

// Finds them by their names, as publishers of models of code write
// them; none if the model knows no such prompt.
std::optional<InfillTokens> find_infill_tokens(const Tokenizer& tokenizer);

// The ids of a prompt that has a suffix: what begins a text if `add_special`, the other files,
// [prefix] text [suffix] suffix [middle] what the answer goes on from; the texts spell no special
// tokens. Of the other files the last ones are taken that fit in front of the rest and of
// `answer_tokens`. Errors: kInvalidArgument for a model without such tokens, naming "suffix", and
// for more than `most_tokens` without files ("context_length_exceeded").
Outcome<std::vector<TokenId>> encode_infill(const Engine& engine,
                                            const RawPrompt& prompt,
                                            bool add_special,
                                            std::int64_t most_tokens,
                                            std::int64_t answer_tokens);

}  // namespace kakeya::service
