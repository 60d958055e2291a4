#pragma once
#include "decode/ngram_source.h"
namespace kakeya {
class ChainSource final : public DraftSource {
 public:
  ChainSource(NgramSource& a, DraftSource& b) : a_(a), b_(b) {}
  int num_lanes() const override { return 3 + b_.num_lanes(); }
  DraftKind lane_kind(int l) const override {
    return l < 3 ? DraftKind::kNgram : b_.lane_kind(l - 3);
  }
  std::int64_t max_length() const override { return std::max(a_.max_length(), b_.max_length()); }
  DraftOffer offer(std::span<const TokenId> t) override {
    use_ = a_.match_length(t) >= 8;
    if (use_) return a_.offer(t);
    auto o = b_.offer(t);
    o.lane += 3;
    return o;
  }
  void draft(std::span<const TokenId> t, Sampler& s, std::span<TokenId> out) override {
    if (use_)
      a_.draft(t, s, out);
    else
      b_.draft(t, s, out);
  }
  std::span<const float> draft_probabilities(std::int64_t i) const override {
    return use_ ? std::span<const float>{} : b_.draft_probabilities(i);
  }
  std::uint64_t bytes_read() const override { return b_.bytes_read(); }

 private:
  NgramSource& a_;
  DraftSource& b_;
  bool use_ = false;
};
}  // namespace kakeya
