// How many tokens to draft in the next round: the length with the most expected tokens a second, by
// measured costs and the acceptance seen so far; 0 is a plain step. Affects time, never output.
//
//   rate(n) = (1 + s_1 + ... + s_n) / (draft(n) + verify(n + 1)),   rate(0) = 1 / verify(1)
//
// where s_d is the estimated probability that the first d drafts are all accepted. A length that
// wins even if whatever was not yet seen were rejected is drafted freely. Everything else, first
// guesses and probes while plain steps win, is paid from a purse: it starts with kCredit plain
// steps, earns a share of the decoding time and what drafted rounds gain, and must cover what the
// round loses if nothing is accepted. The purse is charged with the time that rounds really took,
// against plain steps that were really run: the first few, and one now and then.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/cost_estimate.h"
#include "kakeya/session.h"

namespace kakeya {

// Seconds of the phases of a round with this model on this machine.
struct RoundCosts {
  std::vector<double> verify;              // [i]: a target pass of i + 1 rows; size max_length + 1
  std::vector<std::vector<double>> draft;  // [lane][i]: drafting i + 1 tokens; size max_length each
};

class NumberReader;

// One a session, one thread at a time. Nothing allocates after construction.
class LengthPolicy {
 public:
  // Share of the decoding time that probes and first guesses may lose against plain steps where
  // no draft is accepted, and where all are; in between, in proportion.
  static constexpr double kProbeShare = 0.005;
  static constexpr double kMostProbeShare = 0.012;

  // What they may lose beforehand, in plain steps: for all lanes together, and for each lane where
  // there are several, so that one useless lane does not take the first guess of the others. The
  // credit is an advance: what acceptance adds to the share repays it first. So n tokens of which
  // no draft is ever accepted take the time of at most n + kCredit + kProbeShare n plain steps with
  // one lane, to the first order: 1.8 % more for n = 400. Sessions of an engine hand it on, so it
  // is spent once. It pays for four or five blocks that fail one after the other: with less, one
  // start in five would hold a good drafter for a useless one.
  static constexpr double kCredit = 5.3;
  static constexpr double kLaneCredit = 0.5;

  // So many plain steps come first. After so many rounds without one the next is due, first sooner;
  // it is left out while drafting wins beyond doubt.
  static constexpr int kFirstPlainSteps = 2;
  static constexpr int kFirstRoundsBetween = 8;
  static constexpr int kMostRoundsBetween = 64;

  // Every cost positive (draft: at least 0) and every table of the documented size.
  explicit LengthPolicy(RoundCosts costs);

  // Starts from the acceptance that earlier text gave `other`, as if a few rounds had been seen,
  // and from what its purse holds, so that many short texts may not lose more than one long one.
  // Lanes that only one of the two has are left alone.
  void seed(const LengthPolicy& other);

  // All that it knows, as numbers; and a policy that knows it. Nothing for numbers that no policy
  // of so many lanes and such drafts can have.
  std::vector<double> numbers() const;
  static std::optional<LengthPolicy> from_numbers(std::span<const double> numbers,
                                                  int num_lanes,
                                                  std::int64_t max_length);

  // The length of the next round of `lane`, 0 ... min(most, max length).
  std::int64_t choose(int lane, std::int64_t most) const;

  // What happened in a round (of choose() or not), also in plain steps: updates acceptance and
  // costs. `lane`: the one on offer.
  void observe(int lane, const RoundRecord& round);

  // The same of a round whose time says nothing of its own, for it shared its passes with others:
  // updates acceptance alone.
  void observe_shared(int lane, const RoundRecord& round) { observe_acceptance(lane, round); }

  // Estimated probability that the first `depth` drafts of `lane` are all accepted, depth >= 1;
  // beyond the longest draft as for it.
  double survival(int lane, std::int64_t depth) const;

  // Expected tokens a second of rounds of `length` drafts, 0 ... max_length().
  double rate(int lane, std::int64_t length) const;

  // Present estimates, corrected by what rounds took.
  const RoundCosts& costs() const { return costs_; }

  int num_lanes() const { return static_cast<int>(lanes_.size()); }
  std::int64_t max_length() const { return static_cast<std::int64_t>(costs_.verify.size()) - 1; }

 private:
  // Rounds that came to a depth, and those accepted there; both decayed.
  struct Count {
    double reached = 0.0;
    double accepted = 0.0;
  };
  struct Lane {
    std::vector<Count> depths;  // [d - 1]: depth d
    double purse = 0.0;         // plain steps that guesses may still lose
    double alarm = 0.0;         // how strongly late rounds say that acceptance has fallen
    double reserve = 0.0;       // plain steps that were gained, for the purse after an alarm
  };

  struct Choice {
    std::int64_t length = 0;
    double rate = 0.0;  // expected tokens a second
    bool wins = false;  // a length is likely to beat plain steps, though perhaps not this one
  };

  const Lane& lane_at(int lane) const { return lanes_[static_cast<std::size_t>(lane)]; }
  double plain_seconds() const { return costs_.verify[0]; }
  double round_seconds(int lane, std::int64_t length) const;
  double careful_seconds(int lane, std::int64_t length) const;
  double cost_doubt(std::int64_t length, std::int64_t base) const;
  double most_lost(int lane, std::int64_t length) const;
  std::int64_t longest_worth_trying(int lane) const;
  Choice best_of(int lane, std::int64_t limit, std::optional<std::int64_t> base) const;
  bool drafting_wins(int lane) const;
  void heed_change(int lane, const RoundRecord& round);
  void observe_acceptance(int lane, const RoundRecord& round);
  void observe_costs(int lane, const RoundRecord& round);
  void settle(int lane, const RoundRecord& round);
  void take_costs();
  bool read_lane(NumberReader& reader);

  RoundCosts costs_;  // what the estimates say
  CostEstimate verify_;
  std::vector<CostEstimate> draft_;  // of each lane; empty for one that drafts in no time
  std::vector<Lane> lanes_;
  double credit_ = 0.0;                 // plain steps, of all lanes
  double advance_ = 0.0;                // of the credit, not yet repaid
  int first_plain_ = kFirstPlainSteps;  // that are still to come
  int rounds_until_plain_ = 0;
  int pause_ = kFirstRoundsBetween;  // rounds from the next plain step to one that is due
};

}  // namespace kakeya
