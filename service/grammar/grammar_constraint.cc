#include "service/grammar/grammar_constraint.h"

#include <algorithm>
#include <utility>

namespace kakeya::service {
namespace {

void set(std::span<std::uint32_t> mask, TokenId id, bool allowed) {
  const std::uint32_t bit = std::uint32_t{1} << (static_cast<std::uint32_t>(id) % 32);
  std::uint32_t& word = mask[static_cast<std::size_t>(id) / 32];
  word = allowed ? word | bit : word & ~bit;
}

}  // namespace

GrammarConstraint::GrammarConstraint(const xgrammar::CompiledGrammar& grammar,
                                     std::optional<ThoughtMarkers> markers,
                                     bool in_thought,
                                     std::int64_t vocab_size)
    : matcher_(grammar),
      markers_(std::move(markers)),
      vocab_size_(vocab_size),
      phases_{in_thought ? Phase::kThought : Phase::kBefore} {}

bool GrammarConstraint::is_stop_id(TokenId id) const {
  return std::ranges::find(matcher_.GetStopTokenIds(), id) != matcher_.GetStopTokenIds().end();
}

bool GrammarConstraint::is_line_end(TokenId id) const {
  return std::ranges::find(markers_->line_ends, id) != markers_->line_ends.end();
}

bool GrammarConstraint::fill_mask(std::span<std::uint32_t> mask) {
  const Phase phase = phases_.back();
  if (phase == Phase::kEnded) return false;
  if (phase == Phase::kThought) {
    // An answer that ended here would have none of what was asked for.
    std::ranges::fill(mask, ~std::uint32_t{0});
    for (const int id : matcher_.GetStopTokenIds()) set(mask, id, false);
    return true;
  }
  auto words = static_cast<std::int64_t>(mask.size());
  DLTensor tensor = {};
  tensor.data = mask.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = 1;
  tensor.dtype = xgrammar::GetBitmaskDLType();
  tensor.shape = &words;
  const bool masked = matcher_.FillNextTokenBitmask(&tensor);
  if (!masked || !markers_ || phase == Phase::kAnswer) return masked;
  set(mask, markers_->begin, true);
  if (phase == Phase::kBehindThought) {
    for (const TokenId id : markers_->line_ends) set(mask, id, true);
  }
  return true;
}

bool GrammarConstraint::advance(TokenId id) {
  if (id < 0 || id >= vocab_size_) return false;
  Phase phase = phases_.back();
  if (phase == Phase::kThought) {
    if (is_stop_id(id)) return false;
    if (id == markers_->end) phase = Phase::kBehindThought;
  } else if (markers_ && id == markers_->begin && phase != Phase::kAnswer &&
             phase != Phase::kEnded) {
    phase = Phase::kThought;
  } else if (phase == Phase::kBehindThought && is_line_end(id)) {
    phase = Phase::kBefore;
  } else if (phase != Phase::kEnded) {
    if (!matcher_.AcceptToken(id)) return false;
    phase = matcher_.IsTerminated() ? Phase::kEnded : Phase::kAnswer;
  }
  phases_.push_back(phase);
  return true;
}

void GrammarConstraint::roll_back(std::int64_t count) {
  for (; count > 0; --count) {
    const Phase after = phases_.back();
    phases_.pop_back();
    const bool was_told =
        after == Phase::kAnswer || (after == Phase::kEnded && phases_.back() != Phase::kEnded);
    if (was_told) matcher_.Rollback(1);
  }
}

}  // namespace kakeya::service
