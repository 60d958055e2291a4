// The tokens that two drafters propose for the same blocks, and how many of them agree.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kakeya/types.h"

namespace kakeya::eval {

// The fewest proposed tokens of which something is claimed.
inline constexpr std::int64_t kFewestParityTokens = 20;

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

}  // namespace kakeya::eval
