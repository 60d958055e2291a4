#include "decode/length_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace kakeya {
namespace {

// The weight of a round halves every so many tokens that follow it. Acceptance is a property of the
// passage, so evidence ages with the text, in plain steps too, which makes room for a change after
// a while of those. Where rounds give few tokens it halves after so many rounds: enough to know an
// acceptance of 0.7 to 0.07.
constexpr double kHalfLifeTokens = 128.0;
constexpr double kHalfLifeRounds = 30.0;

// Before anything is known: good drafters accept about this often at the first depth.
constexpr double kFirstGuess = 0.7;
// What that, or the shallower depth at a deeper one, counts for in observations.
constexpr double kPriorWeight = 1.5;
// The same for the doubt that decides whether a length may be drafted freely.
constexpr double kDoubtWeight = 0.5;

// A draft is at most so long before it was ever tried; after that it may double.
constexpr std::int64_t kFirstLength = 4;
// Rounds that must have come to a depth for it to count as tried.
constexpr double kTried = 0.3;

// Forgetting by age alone would let prose after code lose a hundred steps. So the logarithm of the
// likelihood ratio is added up that acceptance has halved (Page, "Continuous inspection schemes",
// Biometrika 1954): useless drafts reach the alarm in four to eight rounds, chance reaches it once
// in exp(kAlarm), a thousand, judged drafts or later.
constexpr double kAlarm = 7.0;
// Rounds that remain of what was known before a change, at the first depth; deeper ones borrow
// again.
constexpr double kRoundsKept = 4.0;

// Rounds that earlier text may count for.
constexpr double kSeedRounds = 8.0;

// Weight of one round in the correction of a cost table, and the most that its logarithm may count:
// a round ten times too slow moves a table by less than 3 %, a machine that has become twice as
// slow is followed within some 30 rounds.
constexpr double kCostWeight = 0.1;
constexpr double kMostSurprise = 0.25;

// Drafting may be charged up to so many times its usual cost.
constexpr double kMostDraftCost = 8.0;

// A purse holds at most this many plain steps, or one round of the longest draft: how much can be
// lost at once in text that has turned bad.
constexpr double kPurseSteps = 4.0;

// The conditional acceptance at successive depths. A depth that few rounds reached borrows from the
// shallower ones; the first borrows from `guess`.
class Conditional {
 public:
  Conditional(double guess, double weight) : value_(guess), weight_(weight) {}

  double next(double reached, double accepted) {
    value_ = (accepted + weight_ * value_) / (reached + weight_);
    return value_;
  }

 private:
  double value_;
  double weight_;
};

// Expected tokens of a round, one depth after the other.
class Expectation {
 public:
  Expectation(double guess, double weight) : conditional_(guess, weight) {}

  double next(double reached, double accepted) {
    survival_ *= conditional_.next(reached, accepted);
    tokens_ += survival_;
    return tokens_;
  }
  double survival() const { return survival_; }

 private:
  Conditional conditional_;
  double survival_ = 1.0;
  double tokens_ = 1.0;
};

// Moves the whole table: what slows a machine slows passes of all sizes, and lengths that are not
// being drafted have no other news.
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

std::vector<double> LengthPolicy::numbers() const {
  std::vector<double> numbers = {credit_};
  numbers.insert(numbers.end(), costs_.verify.begin(), costs_.verify.end());
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    numbers.insert(numbers.end(), costs_.draft[i].begin(), costs_.draft[i].end());
    numbers.insert(numbers.end(), {lanes_[i].purse, lanes_[i].alarm});
    for (const Count& count : lanes_[i].depths) {
      numbers.insert(numbers.end(), {count.reached, count.accepted});
    }
  }
  return numbers;
}

std::optional<LengthPolicy> LengthPolicy::from_numbers(std::span<const double> numbers,
                                                       int num_lanes,
                                                       std::int64_t max_length) {
  const auto lanes = static_cast<std::size_t>(num_lanes);
  const auto length = static_cast<std::size_t>(max_length);
  if (numbers.size() != 2 + length + lanes * (3 * length + 2)) return std::nullopt;
  const auto finite = [](double x) { return std::isfinite(x); };
  if (!std::all_of(numbers.begin(), numbers.end(), finite)) return std::nullopt;
  const double credit = numbers[0];
  std::size_t next = 1;
  const auto take = [&](std::size_t count) {
    const auto piece = numbers.subspan(next, count);
    next += count;
    return std::vector<double>(piece.begin(), piece.end());
  };
  const auto least = [](const std::vector<double>& values) {
    return values.empty() ? 0.0 : *std::min_element(values.begin(), values.end());
  };
  RoundCosts costs{.verify = take(length + 1), .draft = {}};
  if (credit < 0.0 || least(costs.verify) <= 0.0) return std::nullopt;
  std::vector<Lane> found(lanes);
  for (Lane& lane : found) {
    costs.draft.push_back(take(length));
    const std::vector<double> purse_and_alarm = take(2);
    lane.purse = purse_and_alarm[0];  // or a debt
    lane.alarm = purse_and_alarm[1];
    if (least(costs.draft.back()) < 0.0 || lane.alarm < 0.0) return std::nullopt;
    for (std::size_t d = 0; d < length; ++d) {
      const std::vector<double> count = take(2);
      if (count[1] < 0.0 || count[1] > count[0]) return std::nullopt;
      lane.depths.push_back({count[0], count[1]});
    }
  }
  LengthPolicy policy(std::move(costs));
  policy.lanes_ = std::move(found);
  policy.credit_ = credit;
  return policy;
}

double LengthPolicy::round_seconds(int lane, std::int64_t length) const {
  const auto n = static_cast<std::size_t>(length);
  if (n == 0) return plain_seconds();
  return costs_.draft[static_cast<std::size_t>(lane)][n - 1] + costs_.verify[n];
}

// Against a plain step, which gives the one token that the round gives at least.
double LengthPolicy::most_lost(int lane, std::int64_t length) const {
  return round_seconds(lane, length) - plain_seconds();
}

std::int64_t LengthPolicy::longest_worth_trying(int lane) const {
  std::int64_t tried = 0;
  for (const Count& count : lane_at(lane).depths) {
    if (count.reached < kTried) break;
    ++tried;
  }
  return std::max(kFirstLength, 2 * tried + 1);
}

// The shortest draft that pays for itself if all of it is accepted, so that while probes succeed
// the next can follow at once; 0: none does.
std::int64_t LengthPolicy::probe_length(int lane, std::int64_t limit) const {
  for (std::int64_t n = 1; n <= limit; ++n) {
    if (static_cast<double>(n) * plain_seconds() >= most_lost(lane, n)) return n;
  }
  return 0;
}

std::int64_t LengthPolicy::choose(int lane, std::int64_t most) const {
  const Lane& state = lane_at(lane);
  const std::int64_t limit = std::min({most, max_length(), longest_worth_trying(lane)});
  const double affordable = state.purse + credit_;
  const double plain_rate = 1.0 / plain_seconds();
  Expectation likely(kFirstGuess, kPriorWeight);
  Expectation certain(0.0, kDoubtWeight);
  double best_rate = plain_rate;
  std::int64_t best = 0;
  bool any_wins = false;
  for (std::int64_t n = 1; n <= limit; ++n) {
    const Count& count = state.depths[static_cast<std::size_t>(n - 1)];
    const double seconds = round_seconds(lane, n);
    const double likely_rate = likely.next(count.reached, count.accepted) / seconds;
    const double certain_rate = certain.next(count.reached, count.accepted) / seconds;
    any_wins = any_wins || likely_rate > plain_rate;
    const bool allowed = certain_rate > plain_rate || most_lost(lane, n) <= affordable;
    if (allowed && likely_rate > best_rate) {
      best = n;
      best_rate = likely_rate;
    }
  }
  if (any_wins) return best;
  const std::int64_t probe = probe_length(lane, limit);
  return most_lost(lane, probe) <= affordable ? probe : 0;
}

void LengthPolicy::observe(int lane, const RoundRecord& round) {
  if (round.drafted < 0 || round.drafted > max_length()) return;
  observe_costs(lane, round);
  if (round.drafted > 0) heed_change(lane, round);
  observe_acceptance(lane, round);
  settle(lane, round);
}

void LengthPolicy::observe_costs(int lane, const RoundRecord& round) {
  const auto n = static_cast<std::size_t>(round.drafted);
  correct(costs_.verify, n, round.verify_seconds);
  if (n > 0) correct(costs_.draft[static_cast<std::size_t>(lane)], n - 1, round.draft_seconds);
}

bool LengthPolicy::drafting_wins(int lane) const {
  Expectation likely(kFirstGuess, kPriorWeight);
  std::int64_t n = 0;
  for (const Count& count : lane_at(lane).depths) {
    const double tokens = likely.next(count.reached, count.accepted);
    if (tokens * plain_seconds() > round_seconds(lane, ++n)) return true;
  }
  return false;
}

// Forgets most of what was known when late rounds contradict it: many rejections where drafting
// won, or a probe that paid.
void LengthPolicy::heed_change(int lane, const RoundRecord& round) {
  Lane& state = lanes_[static_cast<std::size_t>(lane)];
  bool changed = false;
  if (drafting_wins(lane)) {
    Conditional conditional(kFirstGuess, kPriorWeight);
    for (std::int32_t d = 0; d < std::min(round.drafted, round.committed); ++d) {
      const Count& count = state.depths[static_cast<std::size_t>(d)];
      const double p = std::min(0.98, conditional.next(count.reached, count.accepted));
      state.alarm += d < round.accepted ? -std::log(2.0) : std::log((1.0 - 0.5 * p) / (1.0 - p));
      state.alarm = std::max(0.0, state.alarm);
    }
    changed = state.alarm > kAlarm;
    // If it was chance, guesses bring drafting back at once.
    if (changed) state.purse = std::max(state.purse, kPurseSteps * plain_seconds());
  } else {
    changed = round.committed * plain_seconds() > round_seconds(lane, round.drafted);
  }
  if (!changed) return;
  state.alarm = 0.0;
  const Count first = state.depths[0];
  const double weight = std::min(1.0, kRoundsKept / std::max(first.reached, 1e-9));
  std::fill(state.depths.begin(), state.depths.end(), Count{});
  state.depths[0] = {weight * first.reached, weight * first.accepted};
}

void LengthPolicy::observe_acceptance(int lane, const RoundRecord& round) {
  std::vector<Count>& depths = lanes_[static_cast<std::size_t>(lane)].depths;
  const double half_lives =
      std::max(round.committed / kHalfLifeTokens, round.drafted > 0 ? 1.0 / kHalfLifeRounds : 0.0);
  const double decay = std::exp2(-half_lives);
  for (Count& count : depths) count = {decay * count.reached, decay * count.accepted};
  // A round that was stopped commits no token after its accepted drafts: the rest was never judged.
  for (std::int32_t d = 0; d < std::min(round.drafted, round.committed); ++d) {
    Count& count = depths[static_cast<std::size_t>(d)];
    count.reached += 1.0;
    if (d < round.accepted) count.accepted += 1.0;
  }
}

// By the tables, but for what drafting really took: a draft after many plain steps first brings the
// drafter's context up to date, and finds its weights gone from the caches. A round that the
// machine interrupted says nothing about drafting, so that counts up to kMostDraftCost only.
void LengthPolicy::settle(int lane, const RoundRecord& round) {
  Lane& state = lanes_[static_cast<std::size_t>(lane)];
  double seconds = round_seconds(lane, round.drafted);
  if (round.drafted > 0 && round.draft_seconds > 0.0) {
    const double usual = seconds - costs_.verify[static_cast<std::size_t>(round.drafted)];
    seconds += std::clamp(round.draft_seconds - usual, 0.0, (kMostDraftCost - 1.0) * usual);
  }
  double share = kProbeShare;
  if (!state.depths.empty()) {
    const Count& first = state.depths[0];
    share += (kMostProbeShare - kProbeShare) * first.accepted / (first.reached + kDoubtWeight);
  }
  state.purse += share * seconds;
  if (round.drafted > 0) state.purse += round.committed * plain_seconds() - seconds;
  if (state.purse < 0.0) {
    const double paid = std::min(credit_, -state.purse);
    credit_ -= paid;
    state.purse += paid;
  }
  // A draft that cost more than was known beforehand leaves a debt.
  const double most = std::max(kPurseSteps * plain_seconds(), most_lost(lane, max_length()));
  state.purse = std::clamp(state.purse, -most, most);
}

double LengthPolicy::survival(int lane, std::int64_t depth) const {
  const std::vector<Count>& depths = lane_at(lane).depths;
  Expectation likely(kFirstGuess, kPriorWeight);
  for (std::int64_t d = 0; d < std::min(depth, max_length()); ++d) {
    const Count& count = depths[static_cast<std::size_t>(d)];
    likely.next(count.reached, count.accepted);
  }
  return likely.survival();
}

double LengthPolicy::rate(int lane, std::int64_t length) const {
  double tokens = 1.0;
  for (std::int64_t d = 1; d <= length; ++d) tokens += survival(lane, d);
  return tokens / round_seconds(lane, length);
}

}  // namespace kakeya
