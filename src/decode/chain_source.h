// Two sources in a row: n-grams where the text repeats itself at length, which costs nothing and is
// nearly always right, else another source.
#pragma once

#include <cstdint>
#include <span>

#include "decode/draft_source.h"
#include "decode/ngram_source.h"

namespace kakeya {

class ChainSource final : public DraftSource {
 public:
  // Shortest match for which n-grams draft.
  static constexpr std::int64_t kLongMatch = 8;

  // Both must outlive the chain.
  ChainSource(NgramSource& ngram, DraftSource& other) : ngram_(ngram), other_(other) {}

  std::int64_t max_length() const override;
  DraftOffer offer(std::span<const TokenId> tokens) override;
  Status draft(std::span<const TokenId> tokens, Sampler& sampler, std::span<TokenId> out) override;
  DflashSource* drafter() override { return by_ngram_ ? nullptr : other_.drafter(); }
  std::uint64_t bytes_read() const override { return ngram_.bytes_read() + other_.bytes_read(); }

 private:
  NgramSource& ngram_;
  DraftSource& other_;
  bool by_ngram_ = false;  // who made the last offer
};

}  // namespace kakeya
