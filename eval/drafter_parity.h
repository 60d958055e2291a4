// Whether a drafter proposes the same tokens on two backends, or in two files, given the same
// features of the target.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "prompt_set.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

// Of fewer proposed tokens nothing is claimed.
inline constexpr std::int64_t kFewestParityTokens = 20;

struct DrafterParityOptions {
  std::int64_t blocks = 4;        // of a prompt, one behind the other
  std::int64_t block_tokens = 8;  // of a block: 2 or more, at most the drafters' block_size
};

// One block.
struct ParityBlock {
  std::string prompt = {};              // its id
  std::int64_t context = 0;             // rows of features
  std::vector<TokenId> reference = {};  // what the reference proposes, block_tokens - 1 ids
  std::vector<TokenId> drafted = {};    // what the other one does
  double difference = 0.0;              // largest one of their logits, over the root mean
                                        // square of the reference's
  // Positions with the same token.
  std::int64_t equal() const;
};

struct ParityTotals {
  std::int64_t blocks = 0;
  std::int64_t tokens = 0;  // proposed by each
  std::int64_t equal = 0;
  double largest_difference = 0.0;
  // The share of tokens that are equal; 0 without any.
  double agreement() const;
};
ParityTotals parity_totals(std::span<const ParityBlock> blocks);

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
