#include "service/thought_budget.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/token_mask.h"

namespace kakeya::service {
namespace {

class ThoughtBudget final : public Constraint {
 public:
  ThoughtBudget(std::shared_ptr<Constraint> rules,
                ThoughtMarkers markers,
                bool in_thought,
                std::int64_t budget,
                std::int64_t vocab_size)
      : rules_(std::move(rules)),
        markers_(std::move(markers)),
        budget_(budget),
        vocab_size_(vocab_size),
        states_{{.in_thought = in_thought}} {}

  bool fill_mask(std::span<std::uint32_t> mask) override {
    const State& now = states_.back();
    if (must_end(now)) {
      std::ranges::fill(mask, 0U);
      set_allowed(mask, markers_.end, true);
      return true;
    }
    const bool is_masked = rules_ != nullptr && rules_->fill_mask(mask);
    if (!must_not_begin(now)) return is_masked;
    if (!is_masked) std::ranges::fill(mask, ~std::uint32_t{0});
    set_allowed(mask, markers_.begin, false);
    return true;
  }

  bool advance(TokenId id) override {
    if (id < 0 || id >= vocab_size_) return false;
    State state = states_.back();
    if (must_end(state) && id != markers_.end) return false;
    if (must_not_begin(state) && id == markers_.begin) return false;
    if (rules_ != nullptr && !rules_->advance(id)) return false;
    states_.push_back(behind(state, id));
    return true;
  }

  std::int64_t propose(std::span<TokenId> out) override {
    const State& now = states_.back();
    if (must_end(now)) {
      out.front() = markers_.end;
      return 1;
    }
    return rules_ == nullptr ? 0 : rules_->propose(out);
  }

  Pace pace() override { return rules_ == nullptr ? Pace::kAtOnce : rules_->pace(); }

  void roll_back(std::int64_t count) override {
    states_.resize(states_.size() - static_cast<std::size_t>(count));
    if (rules_ != nullptr) rules_->roll_back(count);
  }

 private:
  struct State {
    bool in_thought = false;
    bool behind_thought = false;  // one has just ended
    bool has_spoken = false;      // markers are text from here on
    std::int64_t thought = 0;     // tokens
  };

  bool must_end(const State& state) const { return state.in_thought && state.thought >= budget_; }
  bool must_not_begin(const State& state) const {
    return !state.in_thought && !state.has_spoken && state.thought >= budget_;
  }
  State behind(State state, TokenId id) const {
    const bool was_behind = std::exchange(state.behind_thought, false);
    if (state.in_thought) {
      state.in_thought = id != markers_.end;
      state.behind_thought = !state.in_thought;
      if (state.in_thought) ++state.thought;
    } else if (id == markers_.begin && !state.has_spoken) {
      state.in_thought = true;
    } else if (markers_.style == ThoughtStyle::kThink && !(was_behind && is_line_end(id))) {
      state.has_spoken = true;
    }
    return state;
  }
  bool is_line_end(TokenId id) const {
    return std::ranges::find(markers_.line_ends, id) != markers_.line_ends.end();
  }

  const std::shared_ptr<Constraint> rules_;
  const ThoughtMarkers markers_;
  const std::int64_t budget_;
  const std::int64_t vocab_size_;
  std::vector<State> states_;  // now at the end; before each token that was told
};

}  // namespace

std::shared_ptr<Constraint> with_thought_budget(std::shared_ptr<Constraint> rules,
                                                const ThoughtMarkers& markers,
                                                bool in_thought,
                                                std::int64_t budget,
                                                std::int64_t vocab_size) {
  return std::make_shared<ThoughtBudget>(std::move(rules), markers, in_thought, budget, vocab_size);
}

}  // namespace kakeya::service
