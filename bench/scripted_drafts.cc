#include "scripted_drafts.h"

namespace kakeya::bench {

void ScriptedDrafts::draft(std::span<const TokenId> tokens,
                           Sampler& sampler,
                           std::span<TokenId> out) {
  source_.draft(tokens, sampler, out);
  // One number a round, so that depth d is reached with the probability that the curve says.
  const double luck = 0.5 + 0.5 * static_cast<double>(script_.rng.symmetric());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t position = tokens.size() + i;
    const TokenId truth = position < script_.tokens.size() ? script_.tokens[position] : 0;
    const bool right = i < script_.survival.size() && luck < script_.survival[i];
    out[i] = right ? truth : (truth + 1) % static_cast<TokenId>(script_.vocab_size);
  }
}

}  // namespace kakeya::bench
