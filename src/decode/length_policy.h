// How many tokens to draft in the next round: the length with the most expected tokens a second, by
// measured costs and the acceptance seen so far; 0 is a plain step. Affects time, never output.
//
//   rate(n) = (1 + s_1 + ... + s_n) / (draft(n) + verify(n + 1)),   rate(0) = 1 / verify(1)
//
// where s_d is the estimated probability that the first d drafts are all accepted. When plain steps
// win, a round is drafted now and then all the same (a probe), so that drafting can come back; what
// probes and first guesses may cost is bounded to a share of the time spent (kProbeShare).
#pragma once

#include <cstdint>
#include <vector>

#include "kakeya/session.h"

namespace kakeya {

// Seconds of the phases of a round with this model on this machine.
struct RoundCosts {
  std::vector<double> verify;              // [i]: a target pass of i + 1 rows; size max_length + 1
  std::vector<std::vector<double>> draft;  // [lane][i]: drafting i + 1 tokens; size max_length each
};

// One a session, one thread at a time. Nothing allocates after construction.
class LengthPolicy {
 public:
  // Share of the decoding time that probes and first guesses may lose against plain steps.
  static constexpr double kProbeShare = 0.005;

  // Every cost positive (draft: at least 0) and every table of the documented size.
  explicit LengthPolicy(RoundCosts costs);

  // The length of the next round of `lane`, 0 ... min(most, max length).
  std::int64_t choose(int lane, std::int64_t most);

  // What happened in a round (of choose() or not): updates acceptance and costs.
  void observe(int lane, const RoundRecord& round);

  // Estimated probability that the first `depth` drafts of `lane` are all accepted, depth >= 1.
  double survival(int lane, std::int64_t depth) const;

  // Present estimates, corrected by what rounds took.
  const RoundCosts& costs() const { return costs_; }

 private:
  RoundCosts costs_;
};

}  // namespace kakeya
