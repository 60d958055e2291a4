#include "bench/scripted_drafts.h"

#include "base/status.h"

namespace kakeya::bench {

Status ScriptedDrafts::draft(std::span<const TokenId> tokens,
                             Sampler& sampler,
                             std::span<TokenId> out) {
  KAKEYA_TRY(source_.draft(tokens, sampler, out));
  double before = 1.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t position = tokens.size() + i;
    const TokenId truth = position < script_.tokens.size() ? script_.tokens[position] : 0;
    // A number for each position against the chance that this depth is right if those before it
    // were: depth d is reached with the probability that the curve says.
    const double survival = i < script_.survival.size() ? script_.survival[i] : 0.0;
    const auto word = philox(script_.luck, {static_cast<std::uint32_t>(position), 0, 0, 0})[0];
    const bool right = unit_interval(word) * before < survival;
    before = survival;
    out[i] = right ? truth : (truth + 1) % static_cast<TokenId>(script_.vocab_size);
  }
  return {};
}

}  // namespace kakeya::bench
