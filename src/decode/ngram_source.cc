#include "decode/ngram_source.h"

#include <algorithm>

#include "base/check.h"

namespace kakeya {
namespace {

constexpr std::int64_t kBlock = 32;

// True if the pair (first, second) begins at any of the kBlock tokens from `tokens` on. Without
// branches, so that the compiler makes vectors of it.
bool block_has_pair(const TokenId* tokens, TokenId first, TokenId second) {
  std::int32_t hits = 0;
  for (std::int64_t i = 0; i < kBlock; ++i) {
    hits |= static_cast<std::int32_t>(tokens[i] == first) &
            static_cast<std::int32_t>(tokens[i + 1] == second);
  }
  return hits != 0;
}

// How many tokens before `end` are those before `other`, which is further left; at most `most`.
std::int64_t common_suffix(const TokenId* end, const TokenId* other, std::int64_t most) {
  std::int64_t length = 0;
  while (length < most && end[-1 - length] == other[-1 - length]) ++length;
  return length;
}

}  // namespace

NgramSource::NgramSource(std::int64_t max_length) : max_length_(max_length) {
  KAKEYA_CHECK(max_length >= 1 && max_length <= kMaxLength);
}

NgramSource::Match NgramSource::find(std::span<const TokenId> tokens) {
  if (std::ssize(tokens) > kWindow) tokens = tokens.last(static_cast<std::size_t>(kWindow));
  const TokenId* data = tokens.data();
  const std::int64_t size = std::ssize(tokens);
  const TokenId* end = data + size;
  Match best;
  // `last`: where the second token of the pair at the end would stand before.
  std::int64_t last = size - 2;
  while (last >= std::max<std::int64_t>(1, best.length)) {
    if (last >= kBlock && !block_has_pair(data + last - kBlock, end[-2], end[-1])) {
      last -= kBlock;
      continue;
    }
    for (std::int64_t i = 0; i < kBlock && last >= std::max<std::int64_t>(1, best.length); ++i) {
      // A longer match must also hold where the best one ended.
      if (data[last] == end[-1] && data[last - best.length] == end[-1 - best.length]) {
        const std::int64_t length =
            common_suffix(end, data + last + 1, std::min(kMaxMatch, last + 1));
        if (length >= kMinMatch && length > best.length) best = {length, size - 1 - last};
        if (length == kMaxMatch) return best;
      }
      --last;
    }
  }
  return best;
}

std::int64_t NgramSource::match_length(std::span<const TokenId> tokens) {
  return find(tokens).length;
}

DraftOffer NgramSource::offer(std::span<const TokenId> tokens, Sampler& /*sampler*/) {
  match_ = find(tokens);
  matched_size_ = tokens.size();
  if (match_.length == 0) return {};
  return {
      .kind = DraftKind::kNgram, .length = max_length_, .long_match = match_.length >= kLongMatch};
}

Status NgramSource::draft(std::span<const TokenId> tokens,
                          Sampler& /*sampler*/,
                          std::span<TokenId> out) {
  KAKEYA_CHECK(match_.length > 0 && matched_size_ == tokens.size());
  const auto distance = static_cast<std::size_t>(match_.distance);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = i < distance ? tokens[tokens.size() - distance + i] : out[i - distance];
  }
  return {};
}

}  // namespace kakeya
