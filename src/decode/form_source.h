// Drafts of what a form (schema, grammar, call of a tool) leaves no choice about: braces, keys,
// quotes. They are right where the model divides them into tokens as the tokenizer does.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "decode/draft_source.h"

namespace kakeya {

class FormSource final : public DraftSource {
 public:
  static constexpr std::int64_t kMaxLength = 15;

  std::int64_t max_length() const override { return kMaxLength; }
  DraftOffer offer(std::span<const TokenId> /*tokens*/, Sampler& sampler) override {
    return {.kind = DraftKind::kForm, .length = sampler.propose(proposed_)};
  }
  Status draft(std::span<const TokenId> /*tokens*/,
               Sampler& /*sampler*/,
               std::span<TokenId> out) override {
    std::copy_n(proposed_.begin(), out.size(), out.begin());
    return {};
  }

 private:
  std::array<TokenId, kMaxLength> proposed_{};  // of the last offer
};

}  // namespace kakeya
