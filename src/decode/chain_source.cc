#include "decode/chain_source.h"

#include <algorithm>

namespace kakeya {

DraftKind ChainSource::lane_kind(int lane) const {
  const int first = ngram_.num_lanes();
  return lane < first ? ngram_.lane_kind(lane) : other_.lane_kind(lane - first);
}

std::int64_t ChainSource::max_length() const {
  return std::max(ngram_.max_length(), other_.max_length());
}

DraftOffer ChainSource::offer(std::span<const TokenId> tokens) {
  by_ngram_ = NgramSource::match_length(tokens) >= kLongMatch;
  if (by_ngram_) return ngram_.offer(tokens);
  DraftOffer offer = other_.offer(tokens);
  offer.lane += ngram_.num_lanes();
  return offer;
}

Status ChainSource::draft(std::span<const TokenId> tokens,
                          Sampler& sampler,
                          std::span<TokenId> out) {
  return by_ngram_ ? ngram_.draft(tokens, sampler, out) : other_.draft(tokens, sampler, out);
}

std::span<const float> ChainSource::draft_probabilities(std::int64_t index) const {
  return by_ngram_ ? ngram_.draft_probabilities(index) : other_.draft_probabilities(index);
}

}  // namespace kakeya
