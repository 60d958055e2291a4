#include "decode/length_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace kakeya {
namespace {

// Acceptance is a property of the passage being written, so evidence ages with the text and not
// with the rounds drafted: its weight halves every so many tokens. That is some 30 rounds of four
// tokens, which leaves an error of about 0.07 in an acceptance of 0.7, and in text that has drafted
// nothing for a while it makes room for a change.
constexpr double kHalfLifeTokens = 128.0;
double kHalfLifeRounds = 30.0, kSceptic = 0.5, kAlarm = 5, kKept = 2, kBoost = 3, kGrow = 2,
       kRefill = 1.5;

// Before anything is known: good drafters accept about this often at the first depth.
constexpr double kFirstGuess = 0.7;
// What that, or the shallower depth at a deeper one, counts for in observations.
constexpr double kPriorWeight = 1.5;

// Rounds that earlier text may count for.
constexpr double kSeedRounds = 8.0;

// Weight of one round in the correction of a cost table, and the most that its logarithm may count:
// a round ten times too slow moves a table by less than 3 %, a machine that has become twice as
// slow is followed within some 30 rounds.
constexpr double kCostWeight = 0.1;
constexpr double kMostSurprise = 0.25;

// A purse holds at most this many plain steps, or one round of the longest draft: how much can be
// lost at once in text that has turned bad.
constexpr double kPurseSteps = 3.0;

// The conditional acceptance at successive depths. A depth that few rounds reached borrows from the
// shallower ones; the first borrows from `guess`.
class Conditional {
 public:
  explicit Conditional(double guess, double weight = kPriorWeight)
      : value_(guess), weight_(weight) {}

  double next(double reached, double accepted) {
    value_ = (accepted + weight_ * value_) / (reached + weight_);
    return value_;
  }

 private:
  double value_;
  double weight_;
};

void correct(std::vector<double>& table, std::size_t index, double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0.0 || table[index] <= 0.0) return;
  const double surprise =
      std::clamp(std::log(seconds / table[index]), -kMostSurprise, kMostSurprise);
  const double factor = std::exp(kCostWeight * surprise);
  for (double& cost : table) cost *= factor;
}

}  // namespace

LengthPolicy::LengthPolicy(RoundCosts costs) : costs_(std::move(costs)) {
  KAKEYA_CHECK(!costs_.verify.empty());
  lanes_.resize(costs_.draft.size());
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    KAKEYA_CHECK(costs_.draft[i].size() + 1 == costs_.verify.size());
    lanes_[i].depths.resize(costs_.draft[i].size());
    if (lanes_.size() > 1) lanes_[i].purse = kLaneCredit * plain_seconds();
  }
  credit_ = kCredit * plain_seconds();
}

void LengthPolicy::seed(const LengthPolicy& other) {
  for (std::size_t i = 0; i < std::min(lanes_.size(), other.lanes_.size()); ++i) {
    const Lane& from = other.lanes_[i];
    if (from.depths.empty()) continue;
    const double weight = std::min(1.0, kSeedRounds / std::max(from.depths[0].reached, 1e-9));
    for (std::size_t d = 0; d < std::min(lanes_[i].depths.size(), from.depths.size()); ++d) {
      lanes_[i].depths[d] = {weight * from.depths[d].reached, weight * from.depths[d].accepted};
    }
    lanes_[i].purse = from.purse;
  }
  credit_ = other.credit_;
}

double LengthPolicy::round_seconds(int lane, std::int64_t length) const {
  const auto n = static_cast<std::size_t>(length);
  if (n == 0) return plain_seconds();
  return costs_.draft[static_cast<std::size_t>(lane)][n - 1] + costs_.verify[n];
}

// The shortest draft that pays for itself if all of it is accepted, so that while probes succeed
// the next can follow at once; 0: none does.
std::int64_t LengthPolicy::probe_length(int lane, std::int64_t limit) const {
  for (std::int64_t n = 1; n <= limit; ++n) {
    if (static_cast<double>(n + 1) * plain_seconds() >= round_seconds(lane, n)) return n;
  }
  return 0;
}

std::int64_t LengthPolicy::choose(int lane, std::int64_t most) const {
  const Lane& state = lane_at(lane);
  std::int64_t deepest = 0;
  while (deepest < max_length() && state.depths[static_cast<std::size_t>(deepest)].reached >= 0.3)
    ++deepest;
  const std::int64_t limit = std::min(
      {most, max_length(), std::max<std::int64_t>(4, std::int64_t(kGrow * double(deepest)) + 1)});
  const double plain_rate = 1.0 / plain_seconds();
  Conditional likely(kFirstGuess);
  Conditional certain(0.0, kSceptic);  // all that was not seen counts as rejected
  double likely_survival = 1.0;
  double certain_survival = 1.0;
  double likely_tokens = 1.0;
  double certain_tokens = 1.0;
  double best_rate = plain_rate;
  std::int64_t best = 0;
  bool any_wins = false;
  for (std::int64_t n = 1; n <= limit; ++n) {
    const Count& count = state.depths[static_cast<std::size_t>(n - 1)];
    likely_survival *= likely.next(count.reached, count.accepted);
    certain_survival *= certain.next(count.reached, count.accepted);
    likely_tokens += likely_survival;
    certain_tokens += certain_survival;
    const double seconds = round_seconds(lane, n);
    if (likely_tokens / seconds <= plain_rate) continue;
    any_wins = true;
    const bool allowed =
        certain_tokens / seconds > plain_rate || seconds - plain_seconds() <= affordable(lane);
    if (allowed && likely_tokens / seconds > best_rate) {
      best = n;
      best_rate = likely_tokens / seconds;
    }
  }
  if (any_wins) return best;
  const std::int64_t probe = probe_length(lane, limit);
  return round_seconds(lane, probe) - plain_seconds() <= affordable(lane) ? probe : 0;
}

void LengthPolicy::observe(int lane, const RoundRecord& round) {
  observe_costs(lane, round);
  observe_acceptance(lanes_[static_cast<std::size_t>(lane)], round);
  settle(lane, round);
}

void LengthPolicy::forget(Lane& lane) const {
  const double weight = std::min(1.0, kKept / std::max(lane.depths[0].reached, 1e-9));
  for (Count& count : lane.depths) count = {weight * count.reached, weight * count.accepted};
  lane.alarm = 0.0;
}

void LengthPolicy::observe_acceptance(Lane& lane, const RoundRecord& round) {
  Conditional conditional(kFirstGuess);
  for (std::int32_t d = 0; d < std::min<std::int64_t>(round.drafted, max_length()); ++d) {
    const Count& count = lane.depths[static_cast<std::size_t>(d)];
    const double p = std::min(0.98, conditional.next(count.reached, count.accepted));
    lane.alarm = std::max(
        0.0,
        lane.alarm + (d < round.accepted ? std::log(0.5) : std::log((1.0 - 0.5 * p) / (1.0 - p))));
    if (d >= round.accepted) break;
  }
  bool wins = lane.depths[0].reached < 1e-9;
  if (round.drafted > 0 && !wins) {
    for (std::int64_t n = 1; n <= max_length() && !wins; ++n)
      wins = rate(0, n) * plain_seconds() > 1.0;
    const double gain = round.committed * plain_seconds() -
                        round_seconds(0, std::min<std::int64_t>(round.drafted, max_length()));
    if (wins && lane.alarm > kAlarm) lane.purse = std::max(lane.purse, kRefill * plain_seconds());
    if (wins ? lane.alarm > kAlarm : gain > 0.0) forget(lane);
  }
  const double lives =
      std::max(round.committed / kHalfLifeTokens, round.drafted > 0 ? 1.0 / kHalfLifeRounds : 0.0);
  const double decay = std::exp2(-lives);
  for (Count& count : lane.depths) {
    count.reached *= decay;
    count.accepted *= decay;
  }
  for (std::int32_t d = 0; d < std::min<std::int64_t>(round.drafted, max_length()); ++d) {
    Count& count = lane.depths[static_cast<std::size_t>(d)];
    count.reached += 1.0;
    if (d >= round.accepted) break;
    count.accepted += 1.0;
  }
}

void LengthPolicy::observe_costs(int lane, const RoundRecord& round) {
  if (round.drafted < 0 || round.drafted > max_length()) return;
  const auto n = static_cast<std::size_t>(round.drafted);
  correct(costs_.verify, n, round.verify_seconds);
  if (n > 0) correct(costs_.draft[static_cast<std::size_t>(lane)], n - 1, round.draft_seconds);
}

void LengthPolicy::settle(int lane, const RoundRecord& round) {
  const std::int64_t n = std::clamp<std::int64_t>(round.drafted, 0, max_length());
  // By the tables and not by the clock: a round that the machine interrupted says nothing about
  // drafting.
  const double seconds = round_seconds(lane, n);
  double& purse = lanes_[static_cast<std::size_t>(lane)].purse;
  const Count& first = lanes_[static_cast<std::size_t>(lane)].depths[0];
  purse += kProbeShare * seconds * (1.0 + kBoost * first.accepted / (first.reached + 0.5));
  if (n > 0) purse += round.committed * plain_seconds() - seconds;
  if (purse < 0.0) {
    credit_ = std::max(0.0, credit_ + purse);
    purse = 0.0;
  }
  const double most =
      std::max(kPurseSteps * plain_seconds(), round_seconds(lane, max_length()) - plain_seconds());
  purse = std::min(purse, most);
}

double LengthPolicy::survival(int lane, std::int64_t depth) const {
  const std::vector<Count>& depths = lane_at(lane).depths;
  Conditional conditional(kFirstGuess);
  double result = 1.0;
  for (std::int64_t d = 0; d < std::min(depth, max_length()); ++d) {
    const Count& count = depths[static_cast<std::size_t>(d)];
    result *= conditional.next(count.reached, count.accepted);
  }
  return result;
}

double LengthPolicy::rate(int lane, std::int64_t length) const {
  double tokens = 1.0;
  for (std::int64_t d = 1; d <= length; ++d) tokens += survival(lane, d);
  return tokens / round_seconds(lane, length);
}

}  // namespace kakeya
