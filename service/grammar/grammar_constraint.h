// The constraint that a compiled grammar makes.
#pragma once

#include <xgrammar/xgrammar.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kakeya/constraint.h"
#include "service/thought_markers.h"

namespace kakeya::service {

// Thoughts are free: whatever lies between markers, and a line's end that parts a thought from its
// answer. Behind them, or without them, tokens are what the grammar allows, and a stop id where it
// may end.
class GrammarConstraint final : public Constraint {
 public:
  GrammarConstraint(const xgrammar::CompiledGrammar& grammar,
                    std::optional<ThoughtMarkers> markers,
                    bool in_thought,
                    std::int64_t vocab_size);

  bool fill_mask(std::span<std::uint32_t> mask) override;
  bool advance(TokenId id) override;
  void roll_back(std::int64_t count) override;

 private:
  enum class Phase : std::uint8_t { kBefore, kThought, kBehindThought, kAnswer, kEnded };

  bool is_stop_id(TokenId id) const;
  bool is_line_end(TokenId id) const;

  xgrammar::GrammarMatcher matcher_;
  const std::optional<ThoughtMarkers> markers_;
  const std::int64_t vocab_size_;
  std::vector<Phase> phases_;  // now at the end; before each token that was told
};

}  // namespace kakeya::service
