// How many tokens a request drafts in its next round; 0 is a plain step. Affects time, never
// output.
//
//   value(n) = (1 + a_1 + a_1 a_2 + ...) / (1 + extra(n)),   value(0) = 1
//
// where a_d is how often draft d is right where those before it were, and extra(n) what n drafts
// cost beyond a plain step. The best n is drafted that the request's ledger has room for; where
// nothing is thought to win, a block of three now and then finds out.
//
// A draft is made only if what drafting has lost and extra(n) stay within a stake and half a
// percent of the tokens, and a round loses at most extra(n). So a request of n tokens takes at most
// n + n/200 + B plain steps, whatever ran before it. B is kMostBlocks blocks of three at most, one
// where drafting has not paid lately.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "decode/draft_costs.h"
#include "kakeya/session.h"

namespace kakeya {

// The policy of one request; one thread at a time. Nothing allocates.
class LengthPolicy {
 public:
  static constexpr std::int64_t kProbe = 3;   // tokens of a block that finds out
  static constexpr double kMostBlocks = 4.0;  // of kProbe, in B
  static constexpr double kShare = 0.005;     // of the tokens
  static constexpr int kMostRounds = 64;      // that draft, between plain steps
  static constexpr int kFirstRounds = 3;      // the same while the plain step is hardly known

  // `costs` must outlive it.
  explicit LengthPolicy(DraftCosts& costs) : costs_(&costs) {}

  // The length of the next round, 0 ... most, of what `kind` offers. May be asked again for the
  // same round.
  std::int64_t choose(DraftKind kind, std::int64_t most, const PassShare& share = {});

  // Tells the result of the round that choose() was last asked about.
  void observe(const RoundRecord& round);

  // Plain steps that its drafts have lost so far by the table; below 0: gained.
  double spent() const { return spent_; }

  // Ends the request: later ones may stake more where it gained.
  void end();

 private:
  struct Count {
    double reached = 0.0;
    double accepted = 0.0;
  };
  using Counts = std::array<Count, DraftOutlook::kMostDrafts>;

  Counts& counts_of(DraftKind kind) { return counts_[kind == DraftKind::kNgram ? 0 : 1]; }

  DraftCosts* costs_;
  std::array<Counts, 2> counts_{};  // of n-grams and of drafters, by depth
  double spent_ = 0.0;
  std::int64_t tokens_ = 0;
  int rounds_since_plain_ = 0;
  bool has_drafted_ = false;
  // The present round's kind, length and cost.
  DraftKind kind_ = DraftKind::kNone;
  std::int64_t length_ = 0;
  double extra_ = 0.0;
};

// One of the requests that decode in a pass.
struct RoundChoice {
  LengthPolicy* policy = nullptr;  // null: `length` is what is wanted
  DraftKind kind = DraftKind::kNone;
  std::int64_t most = 0;
  std::int64_t length = 0;  // what is drafted
};

// Chooses for all of them in turn, while the rows of the pass grow: at most `room` drafts.
void choose_together(std::span<RoundChoice> rounds, std::int64_t room);

}  // namespace kakeya
