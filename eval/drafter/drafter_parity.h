// Checks that a drafter proposes the same tokens on two backends, or in two files, given the same
// features of the target.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/drafter/parity_totals.h"
#include "eval/prompts/prompt_set.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

struct DrafterParityOptions {
  std::int64_t blocks = 4;        // of a prompt, one behind the other
  std::int64_t block_tokens = 8;  // of a block: 2 or more, at most the drafters' block_size
};

// The reference's target continues the prompt greedily, and its features and tokens are what both
// drafters get; a block's proposals are its likeliest tokens other than the mask. Errors:
// kFailedPrecondition if an engine has no drafter; kInvalidArgument for drafters that do not take
// the same features, for blocks longer than theirs, and for a prompt that is empty or leaves no
// room, with its id; those of the engines.
Result<std::vector<ParityBlock>> compare_drafters(EngineImpl& reference,
                                                  EngineImpl& other,
                                                  const EvalPrompt& prompt,
                                                  const DrafterParityOptions& options);

}  // namespace kakeya::eval
