// How GGUF files name a tokenizer.json: the kind of its stages, and scores in place of merges.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kakeya/status.h"
#include "text/tokenizer_gguf_kinds.h"

namespace kakeya {

// The left and the right side of each merge, the first first.
using MergeTexts = std::vector<std::pair<std::string, std::string>>;

// The kind that cuts texts as `root`, a tokenizer.json, does; where none does so, one that is near
// (check_gguf_tokenizer() says how they differ). gemma4: it belongs to a model of this family.
const GgufTokenizerKind& gguf_kind_of(simdjson::dom::element root, bool gemma4);

// Scores by which readers of GGUF come to these merges: for each token that merges make, its place
// among them, the first the highest. `types` are those of the format.
// Errors: kUnimplemented for merges that no scores say: a file with scores merges all pairs that
// make a token, and the pairs of one token one after another.
Result<std::vector<float>> scores_of_merges(const std::vector<std::string>& tokens,
                                            const std::vector<std::int32_t>& types,
                                            const MergeTexts& merges);

}  // namespace kakeya
