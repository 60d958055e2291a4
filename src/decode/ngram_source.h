// Prompt look-up: text repeats itself, so what followed the last tokens where they stood before is
// proposed to follow them again. Needs no model and no memory.
#pragma once

#include <cstdint>
#include <span>

#include "decode/draft_source.h"

namespace kakeya {

class NgramSource final : public DraftSource {
 public:
  // Longest proposal; shortest and longest match; tokens that are searched, the last ones.
  static constexpr std::int64_t kMaxLength = 63;
  static constexpr std::int64_t kMinMatch = 4;  // shorter ones are seldom right
  static constexpr std::int64_t kMaxMatch = 32;
  static constexpr std::int64_t kLongMatch = 8;  // from here on they are nearly always right
  static constexpr std::int64_t kWindow = 32768;

  // 1 <= max_length <= kMaxLength.
  explicit NgramSource(std::int64_t max_length);

  std::int64_t max_length() const override { return max_length_; }

  DraftOffer offer(std::span<const TokenId> tokens, Sampler& sampler) override;
  // Beyond the end of the tokens the proposal repeats itself, with the period of the match.
  Status draft(std::span<const TokenId> tokens, Sampler& sampler, std::span<TokenId> out) override;

  // Tokens at the end of `tokens` that also stand earlier, in one piece (which may overlap the
  // end): kMinMatch ... kMaxMatch, or 0.
  static std::int64_t match_length(std::span<const TokenId> tokens);

 private:
  struct Match {
    std::int64_t length = 0;
    std::int64_t distance =
        0;  // from the earlier occurrence to the end; of the longest the nearest
  };
  static Match find(std::span<const TokenId> tokens);

  std::int64_t max_length_;
  // The match of the last offer.
  Match match_;
  std::size_t matched_size_ = 0;
};

}  // namespace kakeya
