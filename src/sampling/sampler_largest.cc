// The choice from the largest logits of a row: the token of the whole row, or none where one that
// is not listed could change it.
#include <algorithm>
#include <cmath>

#include "sampling/sampler.h"

namespace kakeya {

// An option that raises logits might make one the largest that is not listed. Without top-k and
// min-p nearly all tokens can be drawn, and top-p needs the sum over all of them.
bool Sampler::chooses_from_largest() const {
  const bool raises =
      options_.repetition_penalty < 1.0F || options_.presence_penalty < 0.0F ||
      options_.frequency_penalty < 0.0F ||
      std::ranges::any_of(options_.logit_bias, [](const auto& bias) { return bias.second > 0.0F; });
  if (raises) return false;
  return options_.temperature == 0.0F || options_.top_k > 0 ||
         (options_.min_p > 0.0F && options_.top_p == 1.0F);
}

std::optional<TokenId> Sampler::sample(const LargestLogits& largest, Position position) {
  return choose(largest, position, true);
}

std::optional<TokenId> Sampler::draft(const LargestLogits& largest, Position position) {
  const std::optional<TokenId> id = choose(largest, position, on_path_);
  if (id) take_draft(*id);
  return id;
}

std::optional<TokenId> Sampler::choose(const LargestLogits& largest,
                                       Position position,
                                       bool constrained) {
  // A list of all that there is tells as much as the row.
  if (largest.others > kNever && !chooses_from_largest()) return std::nullopt;
  const Result<bool> masked = constrained ? fill_mask() : false;
  if (!masked) return std::nullopt;
  std::size_t count = keep_allowed(largest.listed, *masked);
  const std::span kept = candidates_.first(count);
  if (kept.empty()) return std::nullopt;
  TokenLogit best = *std::ranges::min_element(kept, IsBetter());
  // One that is not listed is no larger than `others`: nothing that is left to do raises it.
  if (!(best.logit > largest.others)) return std::nullopt;
  const float temperature = options_.temperature;
  if (temperature == 0.0F) return best.id;
  if (!std::isfinite(best.logit / temperature)) return std::nullopt;
  for (TokenLogit& candidate : kept) candidate.logit /= temperature;
  best.logit /= temperature;
  const float others = largest.others / temperature;
  const auto end = std::remove_if(kept.begin(), kept.end(), [&](const TokenLogit& candidate) {
    return candidate.logit < best.logit - kReachOfNoise;
  });
  count = static_cast<std::size_t>(end - kept.begin());
  if (options_.top_k > 0) count = top_candidates(count, static_cast<std::size_t>(options_.top_k));
  if (!covers_filters(count, best.logit, others)) return std::nullopt;
  return draw_candidate(filter(count, best.logit), best, position);
}

std::size_t Sampler::keep_allowed(std::span<const TokenLogit> listed, bool masked) {
  if (!masked && suppressed_.empty() && options_.logit_bias.empty() && !penalises()) {
    std::ranges::copy(listed, candidates_.begin());
    return listed.size();
  }
  std::size_t count = 0;
  for (const auto& [id, logit] : listed) {
    if (masked && !is_allowed(static_cast<std::size_t>(id))) continue;
    if (std::ranges::find(suppressed_, id) != suppressed_.end()) continue;
    const float own = biased(id, logit);
    if (own > kNever) candidates_[count++] = {id, own};
  }
  return count;
}

float Sampler::biased(TokenId id, float logit) const {
  for (const auto& [of, bias] : options_.logit_bias) {
    if (of == id && logit > kNever) logit += bias;
  }
  const auto i = static_cast<std::size_t>(id);
  return penalises() && seen_[i] != 0 ? penalised(i, logit) : logit;
}

bool Sampler::covers_filters(std::size_t count, float best, float others) const {
  if (others < best - kReachOfNoise) return true;
  // The lower id of equal ones is kept, and perhaps is not listed.
  const auto top_k = static_cast<std::size_t>(options_.top_k);
  if (top_k > 0 && count == top_k && candidates_[count - 1].logit > others) return true;
  return options_.top_p == 1.0F && options_.min_p > 0.0F &&
         others < best + std::log(options_.min_p);
}

}  // namespace kakeya
