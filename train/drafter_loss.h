// The loss that a drafter is trained on: how unlikely it makes the target's tokens, deeper ones
// counting less.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drafter_network.h"
#include "kakeya/status.h"

namespace kakeya::train {

// The weights of drafts of depth k = 1, 2 ...
struct DepthWeights {
  enum class Kind : std::uint8_t { kDecay, kDpace };
  Kind kind = Kind::kDecay;
  // kDecay: gamma > 0 of exp(-(k - 1) / gamma). kDpace: a in [0, 1) of the products over depths of
  // (1 - a) p + a, where p is what the drafter gives the right token; a draft weighs the sum of the
  // products from its own depth on, so blocks that are right so far teach most.
  double parameter = 7.0;
};

// "decay:7" or "dpace:0.5". Errors: kInvalidArgument.
Result<DepthWeights> parse_depth_weights(std::string_view text);

// Blocks of a document with the tokens that they are to draft.
struct LabelledBlocks {
  DocumentBlocks blocks;
  std::vector<TokenId> labels;  // [N, B - 1]; -1: beyond the document
};

struct LossSum {
  mx::array loss;    // the weighted sum of -log p
  mx::array weight;  // of the weights, no part of the gradient
};

// Both are scalars.
LossSum block_loss(const DrafterNetwork& network,
                   const std::vector<mx::array>& weights,
                   const LabelledBlocks& blocks,
                   const DepthWeights& depth);

// The weights [N, B - 1] of drafts whose labels have these log-probabilities [N, B - 1]; 0 where
// `valid` is 0. Not differentiated.
mx::array depth_weights(const DepthWeights& depth, const mx::array& log_p, const mx::array& valid);

// How many blocks have a right draft at each depth, all before it right as well: [B - 1]; and how
// many blocks reach so deep within their document.
struct Acceptance {
  std::vector<std::int64_t> accepted;
  std::vector<std::int64_t> possible;
  std::int64_t blocks = 0;

  void add(const Acceptance& other);
  // Tokens a round would give: 1 and the accepted drafts, on the mean.
  double tokens() const;
};
Acceptance count_accepted(const DrafterNetwork& network,
                          const std::vector<mx::array>& weights,
                          const LabelledBlocks& blocks);

}  // namespace kakeya::train
