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
// acceptance of 0.7 to 0.05.
constexpr double kHalfLifeTokens = 256.0;
constexpr double kHalfLifeRounds = 60.0;

// Before anything is known: good drafters accept about this often at the first depth.
constexpr double kFirstGuess = 0.7;
// What that, or the shallower depth at a deeper one, counts for in observations.
constexpr double kPriorWeight = 1.5;
// The same for the doubt that decides whether a length may be drafted freely.
constexpr double kDoubtWeight = 0.5;

// A draft is at most so long before it was ever tried, or as long as costs little more; after that
// it may double.
constexpr std::int64_t kFirstLength = 4;
constexpr double kLittleMore = 1.6;
// Rounds that must have come to a depth for it to count as tried.
constexpr double kTried = 0.3;

// Forgetting by age alone would let prose after code lose a hundred steps. So the logarithm of the
// likelihood ratio is added up that acceptance has halved (Page, "Continuous inspection schemes",
// Biometrika 1954): useless drafts reach the alarm in five to ten rounds, chance reaches it once
// in exp(kAlarm), eight thousand, judged drafts or later.
constexpr double kAlarm = 9.0;
// Rounds that remain of what was known before a change, at the first depth; deeper ones borrow
// again.
constexpr double kRoundsKept = 4.0;

// Rounds that earlier text may count for.
constexpr double kSeedRounds = 8.0;

// A length is drafted freely only if it wins though it took so many standard deviations longer.
constexpr double kCostDoubt = 1.0;
// Among lengths that win, one may be taken for so many standard deviations faster than it is
// thought to be, or wrong costs of lengths that are not drafted would never be found out.
constexpr double kHope = 0.25;
// A plain step that is due is left out while drafting wins by so many standard deviations.
constexpr double kSure = 3.0;

// Drafting may be charged up to so many times its usual cost, and the pass behind it.
constexpr double kMostDraftCost = 8.0;
constexpr double kMostVerifyCost = 1.5;

// A purse holds at most this many plain steps, or one round of the longest draft: how much can be
// lost at once in text that has turned bad.
constexpr double kPurseSteps = 8.0;
// What is put by of gains that it cannot hold, and goes into it at an alarm: if that was chance,
// guesses bring drafting back at once.
constexpr double kMostReserve = 4.0;

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

// No costs, where a lane drafts in no time.
std::span<const double> estimable(const std::vector<double>& table) {
  const bool positive = std::all_of(table.begin(), table.end(), [](double x) { return x > 0.0; });
  return positive ? std::span<const double>(table) : std::span<const double>();
}

}  // namespace

LengthPolicy::LengthPolicy(RoundCosts costs) : costs_(std::move(costs)), verify_(costs_.verify) {
  KAKEYA_CHECK(!costs_.verify.empty());
  lanes_.resize(costs_.draft.size());
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    KAKEYA_CHECK(costs_.draft[i].size() + 1 == costs_.verify.size());
    lanes_[i].depths.resize(costs_.draft[i].size());
    if (lanes_.size() > 1) lanes_[i].purse = kLaneCredit;
    draft_.emplace_back(estimable(costs_.draft[i]));
  }
  credit_ = kCredit;
  advance_ = kCredit;
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
    lanes_[i].reserve = from.reserve;
  }
  credit_ = other.credit_;
  advance_ = other.advance_;
  first_plain_ = other.first_plain_;
  rounds_until_plain_ = other.rounds_until_plain_;
  pause_ = other.pause_;
  if (verify_.size() == other.verify_.size()) verify_.resume(other.verify_);
  for (std::size_t i = 0; i < std::min(draft_.size(), other.draft_.size()); ++i) {
    if (draft_[i].size() == other.draft_[i].size()) draft_[i].resume(other.draft_[i]);
  }
  take_costs();
}

void LengthPolicy::take_costs() {
  std::copy(verify_.seconds().begin(), verify_.seconds().end(), costs_.verify.begin());
  for (std::size_t i = 0; i < draft_.size(); ++i) {
    std::copy(draft_[i].seconds().begin(), draft_[i].seconds().end(), costs_.draft[i].begin());
  }
}

std::vector<double> LengthPolicy::numbers() const {
  std::vector<double> numbers = {credit_, advance_, static_cast<double>(first_plain_),
                                 static_cast<double>(rounds_until_plain_),
                                 static_cast<double>(pause_)};
  verify_.append_numbers(numbers);
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    numbers.insert(numbers.end(), costs_.draft[i].begin(), costs_.draft[i].end());
    if (draft_[i].size() > 0) draft_[i].append_numbers(numbers);
    numbers.insert(numbers.end(), {lanes_[i].purse, lanes_[i].alarm, lanes_[i].reserve});
    for (const Count& count : lanes_[i].depths) {
      numbers.insert(numbers.end(), {count.reached, count.accepted});
    }
  }
  return numbers;
}

// Takes pieces of numbers that may end too soon.
class NumberReader {
 public:
  explicit NumberReader(std::span<const double> numbers) : left_(numbers) {}

  std::optional<std::span<const double>> take(std::size_t count) {
    if (left_.size() < count) return std::nullopt;
    const auto piece = left_.first(count);
    left_ = left_.subspan(count);
    return piece;
  }
  std::optional<CostEstimate> take_estimate(std::size_t size) {
    const auto piece = take(CostEstimate::count_numbers(size));
    if (!piece) return std::nullopt;
    return CostEstimate::from_numbers(*piece, size);
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::span<const double> left_;
};

namespace {

bool is_count(double number, int most) {
  return number >= 0.0 && number <= most && number == std::floor(number);
}

}  // namespace

bool LengthPolicy::read_lane(NumberReader& reader) {
  const std::size_t lane = draft_.size();
  const std::size_t length = costs_.verify.size() - 1;
  const auto table = reader.take(length);
  if (!table || std::any_of(table->begin(), table->end(), [](double x) { return x < 0.0; })) {
    return false;
  }
  costs_.draft[lane].assign(table->begin(), table->end());
  std::optional<CostEstimate> estimate(std::in_place, std::span<const double>());
  if (!estimable(costs_.draft[lane]).empty()) estimate = reader.take_estimate(length);
  const auto state = reader.take(3 + 2 * length);
  if (!estimate || !state) return false;
  draft_.push_back(std::move(*estimate));
  lanes_[lane].purse = (*state)[0];  // or a debt
  lanes_[lane].alarm = (*state)[1];
  lanes_[lane].reserve = (*state)[2];
  if (lanes_[lane].alarm < 0.0 || lanes_[lane].reserve < 0.0) return false;
  for (std::size_t d = 0; d < length; ++d) {
    const Count count{.reached = (*state)[3 + 2 * d], .accepted = (*state)[4 + 2 * d]};
    if (count.accepted < 0.0 || count.accepted > count.reached) return false;
    lanes_[lane].depths[d] = count;
  }
  return true;
}

std::optional<LengthPolicy> LengthPolicy::from_numbers(std::span<const double> numbers,
                                                       int num_lanes,
                                                       std::int64_t max_length) {
  const auto finite = [](double x) { return std::isfinite(x); };
  if (!std::all_of(numbers.begin(), numbers.end(), finite)) return std::nullopt;
  const auto length = static_cast<std::size_t>(max_length);
  NumberReader reader(numbers);
  const auto head = reader.take(5);
  if (!head || (*head)[0] < 0.0 || (*head)[1] < 0.0 || !is_count((*head)[2], kFirstPlainSteps) ||
      !is_count((*head)[3], kMostRoundsBetween) || !is_count((*head)[4], kMostRoundsBetween) ||
      (*head)[4] < 1.0) {
    return std::nullopt;
  }
  auto verify = reader.take_estimate(length + 1);
  if (!verify) return std::nullopt;
  const std::vector<double> rows(verify->seconds().begin(), verify->seconds().end());
  LengthPolicy policy(
      {.verify = rows,
       .draft = {static_cast<std::size_t>(num_lanes), std::vector<double>(length)}});
  policy.verify_ = std::move(*verify);
  policy.draft_.clear();
  for (int lane = 0; lane < num_lanes; ++lane) {
    if (!policy.read_lane(reader)) return std::nullopt;
  }
  if (!reader.at_end()) return std::nullopt;
  policy.credit_ = (*head)[0];
  policy.advance_ = (*head)[1];
  policy.first_plain_ = static_cast<int>((*head)[2]);
  policy.rounds_until_plain_ = static_cast<int>((*head)[3]);
  policy.pause_ = static_cast<int>((*head)[4]);
  policy.take_costs();
  return policy;
}

double LengthPolicy::round_seconds(int lane, std::int64_t length) const {
  const auto n = static_cast<std::size_t>(length);
  if (n == 0) return plain_seconds();
  return costs_.draft[static_cast<std::size_t>(lane)][n - 1] + costs_.verify[n];
}

// What it may well take, against a plain step that takes its usual time.
double LengthPolicy::careful_seconds(int lane, std::int64_t length) const {
  const auto n = static_cast<std::size_t>(length);
  const CostEstimate& draft = draft_[static_cast<std::size_t>(lane)];
  const double drafting = costs_.draft[static_cast<std::size_t>(lane)][n - 1];
  const double draft_doubt = draft.size() == 0 ? 0.0 : draft.doubt(n - 1);
  return costs_.verify[n] * std::exp(kCostDoubt * cost_doubt(length, 0)) +
         drafting * std::exp(kCostDoubt * draft_doubt);
}

double LengthPolicy::cost_doubt(std::int64_t length, std::int64_t base) const {
  return verify_.doubt(static_cast<std::size_t>(length), static_cast<std::size_t>(base));
}

// In plain steps, against one of these, which gives the one token that the round gives at least.
double LengthPolicy::most_lost(int lane, std::int64_t length) const {
  return round_seconds(lane, length) / plain_seconds() - 1.0;
}

std::int64_t LengthPolicy::longest_worth_trying(int lane) const {
  std::int64_t tried = 0;
  for (const Count& count : lane_at(lane).depths) {
    if (count.reached < kTried) break;
    ++tried;
  }
  std::int64_t longest = std::min(std::max(kFirstLength, 2 * tried + 1), max_length());
  const double most = kLittleMore * most_lost(lane, std::min(kFirstLength, max_length()));
  while (longest < max_length() && most_lost(lane, longest + 1) <= most) ++longest;
  return longest;
}

// The best of the lengths that may be drafted, if any wins by what is likely. Otherwise a probe:
// the best of those that pay for themselves if all of it is accepted, so that while probes succeed
// the next can follow at once.
LengthPolicy::Choice LengthPolicy::best_of(int lane,
                                           std::int64_t limit,
                                           std::optional<std::int64_t> base) const {
  const Lane& state = lane_at(lane);
  const double affordable = state.purse + credit_;
  const double plain_rate = 1.0 / plain_seconds();
  Expectation likely(kFirstGuess, kPriorWeight);
  Expectation certain(0.0, kDoubtWeight);
  Choice best{.length = 0, .rate = plain_rate, .wins = false};
  Choice probe{.length = 0, .rate = 0.0, .wins = false};
  for (std::int64_t n = 1; n <= limit; ++n) {
    const Count& count = state.depths[static_cast<std::size_t>(n - 1)];
    double rate = likely.next(count.reached, count.accepted) / round_seconds(lane, n);
    if (base) rate *= std::exp(kHope * cost_doubt(n, *base));
    const double certain_rate =
        certain.next(count.reached, count.accepted) / careful_seconds(lane, n);
    const bool allowed = certain_rate > plain_rate || most_lost(lane, n) <= affordable;
    best.wins = best.wins || rate > plain_rate;
    if (allowed && rate > best.rate) {
      best.length = n;
      best.rate = rate;
    }
    if (static_cast<double>(n) >= most_lost(lane, n) && rate > probe.rate) {
      probe.length = n;
      probe.rate = rate;
    }
  }
  if (best.wins) return best;
  if (most_lost(lane, probe.length) > affordable) probe.length = 0;
  return probe;
}

std::int64_t LengthPolicy::choose(int lane, std::int64_t most) const {
  if (first_plain_ > 0) return 0;
  const std::int64_t limit = std::min({most, max_length(), longest_worth_trying(lane)});
  const Choice likely = best_of(lane, limit, std::nullopt);
  if (!likely.wins) return likely.length;
  const Choice hoped = best_of(lane, limit, likely.length);
  const double gain = std::log(hoped.rate * plain_seconds());
  const bool sure = gain >= kSure * cost_doubt(hoped.length, 0);
  return rounds_until_plain_ <= 0 && !sure ? 0 : hoped.length;
}

void LengthPolicy::observe(int lane, const RoundRecord& round) {
  if (round.drafted < 0 || round.drafted > max_length()) return;
  observe_costs(lane, round);
  if (round.drafted > 0) heed_change(lane, round);
  observe_acceptance(lane, round);
  settle(lane, round);
}

// A plain step is run again at once where it was far from what was expected, or where drafted
// rounds were for long: ratios of costs decide, and both sides of them must be of the same machine.
void LengthPolicy::observe_costs(int lane, const RoundRecord& round) {
  const auto n = static_cast<std::size_t>(round.drafted);
  const CostEstimate::News news = verify_.observe(n, round.verify_seconds);
  const bool changed = news == CostEstimate::News::kChanged;
  if (changed) {
    for (CostEstimate& draft : draft_) draft.doubt_level();
  }
  if (n > 0) draft_[static_cast<std::size_t>(lane)].observe(n - 1, round.draft_seconds);
  take_costs();
  if (n == 0) {
    first_plain_ = std::max(0, first_plain_ - 1);
    rounds_until_plain_ = pause_;
    pause_ = std::min(kMostRoundsBetween, 2 * pause_);
  } else {
    rounds_until_plain_ = changed ? 0 : std::max(0, rounds_until_plain_ - 1);
  }
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
    if (changed) state.purse += std::exchange(state.reserve, 0.0);
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

// By what the round took. A draft after many plain steps first brings the drafter's context up to
// date, and finds its weights gone from the caches, so that drafting counts up to kMostDraftCost.
// The pass behind it finds the target's gone too; more than kMostVerifyCost is an interruption, of
// which drafting is not to blame.
void LengthPolicy::settle(int lane, const RoundRecord& round) {
  Lane& state = lanes_[static_cast<std::size_t>(lane)];
  const auto n = static_cast<std::size_t>(round.drafted);
  double seconds = round_seconds(lane, round.drafted);
  if (n > 0 && round.verify_seconds > 0.0) {
    const double drafting = costs_.draft[static_cast<std::size_t>(lane)][n - 1];
    seconds =
        std::min(round.verify_seconds, kMostVerifyCost * costs_.verify[n]) +
        std::clamp(round.draft_seconds, 0.0, kMostDraftCost * std::max(drafting, plain_seconds()));
  }
  const double steps = seconds / plain_seconds();
  double extra = 0.0;
  if (!state.depths.empty()) {
    const Count& first = state.depths[0];
    extra =
        (kMostProbeShare - kProbeShare) * steps * first.accepted / (first.reached + kDoubtWeight);
  }
  const double repaid = std::min(advance_, extra);
  advance_ -= repaid;
  state.purse += kProbeShare * steps + extra - repaid;
  if (round.drafted > 0) state.purse += round.committed - steps;
  if (state.purse < 0.0) {
    const double paid = std::min(credit_, -state.purse);
    credit_ -= paid;
    state.purse += paid;
  }
  // A draft that cost more than was known beforehand leaves a debt.
  const double most = std::max(kPurseSteps, most_lost(lane, max_length()));
  state.reserve = std::min(kMostReserve, state.reserve + std::max(0.0, state.purse - most));
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
