#include "decode/chain_source.h"

#include <algorithm>

namespace kakeya {

std::int64_t ChainSource::max_length() const {
  return std::max(ngram_.max_length(), other_.max_length());
}

DraftOffer ChainSource::offer(std::span<const TokenId> tokens) {
  by_ngram_ = NgramSource::match_length(tokens) >= kLongMatch;
  return by_ngram_ ? ngram_.offer(tokens) : other_.offer(tokens);
}

Status ChainSource::draft(std::span<const TokenId> tokens,
                          Sampler& sampler,
                          std::span<TokenId> out) {
  return by_ngram_ ? ngram_.draft(tokens, sampler, out) : other_.draft(tokens, sampler, out);
}

}  // namespace kakeya
