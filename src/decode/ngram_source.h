#pragma once
#include "decode/draft_source.h"
namespace kakeya {
class NgramSource final : public DraftSource {
 public:
  explicit NgramSource(std::int64_t max_length) : max_length_(max_length) {}
  int num_lanes() const override { return 3; }
  DraftKind lane_kind(int) const override { return DraftKind::kNgram; }
  std::int64_t max_length() const override { return max_length_; }
  DraftOffer offer(std::span<const TokenId> tokens) override {
    const auto m = match_length(tokens);
    return {m < 4 ? 0 : m < 8 ? 1 : 2, m < 2 ? 0 : max_length_};
  }
  void draft(std::span<const TokenId> tokens, Sampler&, std::span<TokenId> out) override {
    match_length(tokens);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t at = end_ + i;
      out[i] = at < tokens.size() ? tokens[at] : out[at - tokens.size()];
    }
  }
  std::span<const float> draft_probabilities(std::int64_t) const override { return {}; }
  std::int64_t match_length(std::span<const TokenId> t) {
    std::int64_t best = 0;
    for (std::size_t e = t.size() - 1; e > 0; --e) {
      std::int64_t m = 0;
      while (m < 32 && static_cast<std::size_t>(m) < e &&
             t[e - 1 - static_cast<std::size_t>(m)] ==
                 t[t.size() - 1 - static_cast<std::size_t>(m)])
        ++m;
      if (m > best) {
        best = m;
        end_ = e;
      }
    }
    return best;
  }

 private:
  std::int64_t max_length_;
  std::size_t end_ = 0;
};
}  // namespace kakeya
