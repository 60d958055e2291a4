// How many tokens a request drafts in its next round, and who proposes them; 0 is a plain step.
// Affects time, never output.
//
//   value(n) = (1 + a_1 + a_1 a_2 + ...) / (1 + extra(n)),   value(0) = 1
//
// where a_d is how often draft d is right where those before it were, and extra(n) what n drafts
// cost beyond a plain step. Of all offers the best n is drafted that the request's ledger has room
// for; where nothing is thought to win, a block of three now and then finds out. A request's first
// blocks of a class are short: n is at most one more than twice what the request, or usually late
// rounds of others, had accepted at once.
//
// A draft is made only if what a drafter's drafts, or all others, have lost and extra(n) stay
// within a stake and half a percent of the tokens, and a round loses at most extra(n). So a request
// of n tokens takes at most n + n/200 + B plain steps for each kind, whatever ran before it. B is
// one block of three at first, and up to kMostBlocks where late requests gained. A drafter whose
// context has to be made first comes on top, once: it drafts if the rest of the request is
// thought to gain kReturn times that, by what other requests saw lately, or where none has asked it
// for long.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "decode/draft_costs.h"
#include "kakeya/session.h"

namespace kakeya {

// A round that is to be planned.
struct RoundFacts {
  std::span<const DraftOffer> offers;  // no longer than what could be committed
  std::int64_t remaining = 0;          // tokens that the request may still have
  Position context = 0;                // tokens before the round
};

// The plan of a round.
struct DraftPlan {
  std::size_t offer = 0;  // the index of the one that is taken, if any
  std::int64_t length = 0;
  DraftReason reason = DraftReason::kNoOffer;
};

// Plans a number of drafts that was asked for: forms first, long matches of n-grams, a drafter.
DraftPlan plan_fixed(std::span<const DraftOffer> offers, std::int64_t length);

// The policy of one request; one thread at a time. Nothing allocates.
class LengthPolicy {
 public:
  static constexpr std::int64_t kProbe = 3;   // tokens of a block that finds out
  static constexpr std::int64_t kFirst = 4;   // most tokens of the first block of a kind
  static constexpr double kMostBlocks = 4.0;  // of kProbe, in B
  static constexpr double kShare = 0.005;     // of the tokens
  static constexpr double kReturn = 1.5;      // of what a drafter's context costs
  static constexpr int kMostRounds = 64;      // that draft, between plain steps
  static constexpr int kFirstRounds = 3;      // the same while the plain step is hardly known

  // `costs` must outlive it.
  explicit LengthPolicy(DraftCosts& costs);

  // The plan of the next round, of at most `most` drafts. May be asked again for the same round.
  DraftPlan choose(const RoundFacts& facts, std::int64_t most, const PassShare& share = {});

  // Tells the result of the round that choose() was last asked about.
  void observe(const RoundRecord& round);

  // Plain steps that drafts of a kind have lost so far by the table, without a drafter's context;
  // below 0: gained.
  double spent(DraftKind kind) const { return spent_[ledger_of(kind)]; }

  // Ends the request: later ones may stake more where it gained.
  void end();

 private:
  struct Count {
    double reached = 0.0;
    double accepted = 0.0;
  };
  // Counts of one class of drafts.
  struct Class {
    std::array<Count, DraftOutlook::kMostDrafts> by_depth{};
    std::int64_t limit = kFirst;
  };
  struct Candidate {
    DraftPlan plan;
    double extra = 0.0;
    double context = 0.0;
    double cost = 1.0;  // plain steps a token
  };

  // Index into spent_: what drafters lose is counted for itself.
  static std::size_t ledger_of(DraftKind kind) { return kind == DraftKind::kDflash ? 1 : 0; }
  // The best length of one offer, or a block that finds out, if nothing is thought to win.
  Candidate best_of(const DraftOffer& offer,
                    std::int64_t most,
                    double remaining,
                    const DraftOutlook& outlook) const;
  // Tokens that are still expected.
  double expected(std::int64_t remaining) const;

  DraftCosts* costs_;
  double usual_length_;
  std::array<Class, kDraftClasses> classes_{};
  std::array<double, 2> spent_{};  // by ledger_of()
  std::int64_t tokens_ = 0;
  int rounds_since_plain_ = 0;
  bool has_drafted_ = false;
  // The present round's choice.
  Candidate chosen_;
  DraftOffer offer_;
};

// One of the requests that decode in a pass.
struct RoundChoice {
  LengthPolicy* policy = nullptr;  // null: `length` is what is wanted
  RoundFacts facts;
  std::int64_t length = 0;
  DraftPlan plan;  // what is drafted
};

// Chooses for all of them in turn, while the rows of the pass grow: at most `room` drafts.
void choose_together(std::span<RoundChoice> rounds, std::int64_t room);

}  // namespace kakeya
