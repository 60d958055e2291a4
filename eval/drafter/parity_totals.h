// The tokens that two drafters propose for the same blocks, and how many of them agree.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eval/report/describe.h"
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

template <typename Visitor, MaybeConst<ParityBlock> Block>
void describe(Visitor& visitor, Block& block) {
  using enum FieldRole;
  visitor.field("prompt", block.prompt, kStated);
  visitor.field("context", block.context, kStated);
  visitor.field("reference", block.reference, kMeasured);
  visitor.field("drafted", block.drafted, kMeasured);
  visitor.field("difference", block.difference, kMeasured);
}

template <typename Visitor, MaybeConst<ParityTotals> Totals>
void describe(Visitor& visitor, Totals& totals) {
  visitor.derived("blocks", totals, &ParityTotals::blocks, "counts");
  visitor.derived("tokens", totals, &ParityTotals::tokens, "counts");
  visitor.derived("equal", totals, &ParityTotals::equal, "counts");
  visitor.derived("agreement", totals, &ParityTotals::agreement, "headline", FieldType::kShare);
  visitor.derived("largest_difference", totals, &ParityTotals::largest_difference, "headline");
}

}  // namespace kakeya::eval
