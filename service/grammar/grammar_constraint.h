// The constraint that a compiled grammar makes.
#pragma once

#include <xgrammar/xgrammar.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kakeya/constraint.h"
#include "service/answer_splitter.h"

namespace kakeya::service {

// Thoughts are free: whatever lies between markers. Behind them, or without them, tokens are what
// the grammar allows, and a stop id where it may end.
class GrammarConstraint final : public Constraint {
 public:
  GrammarConstraint(const xgrammar::CompiledGrammar& grammar,
                    std::optional<ChannelMarkers> markers,
                    bool in_channel,
                    std::int64_t vocab_size);

  bool fill_mask(std::span<std::uint32_t> mask) override;
  bool advance(TokenId id) override;
  void roll_back(std::int64_t count) override;

 private:
  enum class Phase : std::uint8_t { kBefore, kThought, kAnswer, kEnded };

  bool is_stop_id(TokenId id) const;

  xgrammar::GrammarMatcher matcher_;
  const std::optional<ChannelMarkers> markers_;
  const std::int64_t vocab_size_;
  std::vector<Phase> phases_;  // now at the end; before each token that was told
};

}  // namespace kakeya::service
