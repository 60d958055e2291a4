// The target's own greedy replies, with the taps of their positions: what a drafter learns from.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "drafter_loss.h"
#include "kakeya/status.h"
#include "runtime/engine_impl.h"

namespace kakeya::train {

struct Reply {
  std::vector<TokenId> ids;      // the prompt and what the target says
  std::int64_t prompt = 0;       // how many of them are the prompt
  std::vector<float> taps = {};  // [ids, num_taps * D]

  // Positions that a block of drafts may begin at: those of the reply but the last.
  std::int64_t first_anchor() const { return prompt; }
  std::int64_t num_anchors() const {
    return std::max<std::int64_t>(0, std::ssize(ids) - 1 - prompt);
  }
};

using DataProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Greedy replies of at most `max_tokens` to the prompts, in their order, without taps. They do not
// depend on how many run at once. Errors: those of the engine.
Result<std::vector<Reply>> make_replies(EngineImpl& engine,
                                        std::span<const std::vector<TokenId>> prompts,
                                        std::int64_t max_tokens,
                                        const DataProgress& progress);

// Fills the taps of the replies: outputs of these layers, as passes over prompts leave them.
// Errors: those of the engine; kDataLoss for taps that are not finite.
Status add_taps(EngineImpl& engine,
                std::span<const std::int64_t> layers,
                std::span<Reply> replies,
                const DataProgress& progress);

// Stands for ids and taps.
std::uint64_t hash_of(std::span<const Reply> replies);

// Blocks of a reply at these anchors.
LabelledBlocks make_blocks(const Reply& reply,
                           std::span<const std::int64_t> anchors,
                           std::int64_t block_size,
                           std::int64_t tap_width);

// The blocks of step number `step`, about `anchors` in all, from a few replies; positions are drawn
// alike. A pure function of its arguments. At least one reply must have an anchor.
std::vector<LabelledBlocks> draw_blocks(std::span<const Reply> replies,
                                        std::int64_t anchors,
                                        std::int64_t block_size,
                                        std::int64_t tap_width,
                                        std::uint64_t seed,
                                        std::int64_t step);

// Every block where free-running drafting could begin, up to about `most`, at even distances.
std::vector<LabelledBlocks> spread_blocks(std::span<const Reply> replies,
                                          std::int64_t most,
                                          std::int64_t block_size,
                                          std::int64_t tap_width);

}  // namespace kakeya::train
