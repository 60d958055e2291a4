// The length policy in simulated rounds: drafts are accepted by a random sequence with a given
// acceptance at each depth, rounds take what a table of costs says. Bounds are on sums over seeds,
// which are fixed, so a test passes always or never.
#include "decode/length_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace kakeya::test {
namespace {

using Curve = std::vector<double>;  // [d - 1]: acceptance at depth d if it is reached; 0 beyond

// A part of a 26B mixture of experts: 15 drafts, passes between the measured sizes interpolated.
RoundCosts expert_costs() {
  const std::vector<std::pair<double, double>> measured = {
      {1, 0.081}, {2, 0.101}, {4, 0.125}, {8, 0.175}, {16, 0.257}};
  RoundCosts costs{.verify = {}, .draft = {{}}};
  for (std::size_t i = 1; i < measured.size(); ++i) {
    const auto [left, left_seconds] = measured[i - 1];
    const auto [right, right_seconds] = measured[i];
    for (double rows = left; rows < right; ++rows) {
      const double share = (rows - left) / (right - left);
      costs.verify.push_back(left_seconds + share * (right_seconds - left_seconds));
    }
  }
  costs.verify.push_back(measured.back().second);
  for (int n = 1; n <= 15; ++n) costs.draft[0].push_back(0.070 + 0.0015 * n);
  return costs;
}

RoundCosts tiny_costs() {
  RoundCosts costs{.verify = {}, .draft = {{}}};
  for (int rows = 1; rows <= 17; ++rows) costs.verify.push_back(1e-3 * (0.43 + 0.045 * (rows - 1)));
  for (int n = 1; n <= 16; ++n) costs.draft[0].push_back(1e-3 * (0.25 + 0.01 * n));
  return costs;
}

// What a drafter of a mixture of experts was like.
Curve expert_curve() {
  const Curve survival = {0.80, 0.66, 0.55, 0.46, 0.39, 0.33, 0.28, 0.24};
  Curve curve = {survival[0]};
  for (std::size_t d = 1; d < survival.size(); ++d) {
    curve.push_back(survival[d] / survival[d - 1]);
  }
  return curve;
}

double seconds_of(const RoundCosts& costs, std::size_t length) {
  return costs.verify[length] + (length == 0 ? 0.0 : costs.draft[0][length - 1]);
}

// Expected tokens a second of the best fixed length.
double best_fixed_rate(const RoundCosts& costs, const Curve& curve) {
  double best = 0.0;
  double survival = 1.0;
  double tokens = 1.0;
  for (std::size_t n = 0; n < costs.verify.size(); ++n) {
    if (n > 0) survival *= n <= curve.size() ? curve[n - 1] : 0.0;
    if (n > 0) tokens += survival;
    best = std::max(best, tokens / seconds_of(costs, n));
  }
  return best;
}

class Simulation {
 public:
  Simulation(const RoundCosts& costs, std::uint64_t seed)
      : truth_(costs), policy_(costs), rng_(seed) {}

  // The length of a round in text with this acceptance.
  std::int64_t round(const Curve& curve) {
    RoundRecord record;
    record.drafted = static_cast<std::int32_t>(policy_.choose(0, policy_.max_length()));
    while (record.accepted < record.drafted && accepts(curve, record.accepted)) ++record.accepted;
    record.committed = record.accepted + 1;
    const auto length = static_cast<std::size_t>(record.drafted);
    record.verify_seconds = truth_.verify[length];
    if (length > 0) record.draft_seconds = truth_.draft[0][length - 1];
    policy_.observe(0, record);
    tokens_ += record.committed;
    seconds_ += seconds_of(truth_, length);
    return record.drafted;
  }
  void run_tokens(const Curve& curve, std::int64_t tokens) {
    const std::int64_t end = tokens_ + tokens;
    while (tokens_ < end) round(curve);
  }

  LengthPolicy& policy() { return policy_; }
  std::int64_t tokens() const { return tokens_; }
  double seconds() const { return seconds_; }
  // In plain steps, against plain steps alone.
  double lost_steps() const { return seconds_ / truth_.verify[0] - static_cast<double>(tokens_); }

 private:
  bool accepts(const Curve& curve, std::int32_t depth) {
    const double p = depth < std::ssize(curve) ? curve[static_cast<std::size_t>(depth)] : 0.0;
    return static_cast<double>(rng_.below(1 << 30)) < p * (1 << 30);
  }

  RoundCosts truth_;
  LengthPolicy policy_;
  SequenceRng rng_;
  std::int64_t tokens_ = 0;
  double seconds_ = 0.0;
};

// Tokens a second over so many rounds, for many seeds, against the best fixed length.
double efficiency(const RoundCosts& costs, const Curve& curve, int rounds = 2000) {
  double tokens = 0.0;
  double seconds = 0.0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Simulation simulation(costs, seed * 7919);
    for (int i = 0; i < rounds; ++i) simulation.round(curve);
    tokens += static_cast<double>(simulation.tokens());
    seconds += simulation.seconds();
  }
  return tokens / seconds / best_fixed_rate(costs, curve);
}

RoundRecord record(std::int32_t drafted, std::int32_t accepted, const RoundCosts& costs) {
  const auto length = static_cast<std::size_t>(drafted);
  return {.draft_seconds = length == 0 ? 0.0 : costs.draft[0][length - 1],
          .verify_seconds = costs.verify[length],
          .drafted = drafted,
          .accepted = accepted,
          .committed = accepted + 1};
}

TEST(LengthPolicy, ComesNearTheBestFixedLength) {
  EXPECT_GE(efficiency(expert_costs(), expert_curve()), 0.97);
  EXPECT_GE(efficiency(tiny_costs(), Curve(15, 0.95)), 0.97);
  EXPECT_GE(efficiency(tiny_costs(), Curve(15, 0.7)), 0.97);
  EXPECT_GE(efficiency(tiny_costs(), Curve(15, 0.3)), 0.97);
  EXPECT_GE(efficiency(tiny_costs(), {}), 0.97);
}

// A few unlucky blocks at the start must not hold a good drafter for a useless one.
TEST(LengthPolicy, ComesNearItSoonAndWhateverTheFirstBlocksGive) {
  EXPECT_GE(efficiency(expert_costs(), expert_curve(), 60), 0.90);
  EXPECT_GE(efficiency(expert_costs(), expert_curve(), 300), 0.95);
  EXPECT_GE(efficiency(tiny_costs(), Curve(15, 0.7), 60), 0.90);
}

TEST(LengthPolicy, LosesAtMostItsPurseWhereNothingIsAccepted) {
  for (const RoundCosts& costs : {expert_costs(), tiny_costs()}) {
    Simulation simulation(costs, 1);
    bool drafted = false;
    for (int i = 1; i <= 5000; ++i) {
      drafted = simulation.round({}) > 0 || drafted;
      // The share is of the time with what was lost, hence the last factor.
      const double bound =
          (LengthPolicy::kProbeShare * i + LengthPolicy::kCredit) * (1 + LengthPolicy::kProbeShare);
      ASSERT_LE(simulation.lost_steps(), bound) << "after " << i << " tokens";
    }
    EXPECT_TRUE(drafted) << "a policy that never drafts loses nothing, and wins nothing";
  }
}

// A draft after many plain steps takes longer than the table says, by its context that waited. What
// that costs beyond the purse is owed, so that the share holds in the long run.
TEST(LengthPolicy, OwesWhatALateDraftCostMore) {
  const RoundCosts costs = tiny_costs();
  const double plain = costs.verify[0];
  LengthPolicy policy(costs);
  double lost = 0.0;
  double dearest = 0.0;
  for (int i = 1; i <= 20000; ++i) {
    const auto length = static_cast<std::int32_t>(policy.choose(0, 16));
    RoundRecord round = record(length, 0, costs);
    round.draft_seconds *= 6.0;
    const double loss = round.draft_seconds + round.verify_seconds - plain;
    lost += loss;
    dearest = std::max(dearest, loss);
    policy.observe(0, round);
    // Four steps: what an alarm puts into the purse, once.
    const double bound = LengthPolicy::kProbeShare * i + LengthPolicy::kCredit + 4.0;
    ASSERT_LE(lost / plain, bound * (1 + LengthPolicy::kProbeShare) + dearest / plain)
        << "after " << i << " tokens";
  }
  EXPECT_GT(dearest, 0.0);
}

TEST(LengthPolicy, DraftsAgainWhenTextTurnsPredictable) {
  std::vector<std::int64_t> waits;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Simulation simulation(tiny_costs(), seed);
    // Different places between two probes.
    simulation.run_tokens({}, 200 + static_cast<std::int64_t>(seed));
    const std::int64_t turned = simulation.tokens();
    std::int64_t long_drafts = 0;  // in a row
    while (long_drafts < 3 && simulation.tokens() < turned + 5000) {
      long_drafts = simulation.round(Curve(16, 0.95)) >= 4 ? long_drafts + 1 : 0;
    }
    waits.push_back(simulation.tokens() - turned);
  }
  std::sort(waits.begin(), waits.end());
  EXPECT_LE(waits[waits.size() / 2], 150);
  EXPECT_LE(waits[waits.size() * 9 / 10], 230);
}

TEST(LengthPolicy, StopsDraftingWhenTextTurnsUnpredictable) {
  for (const RoundCosts& costs : {expert_costs(), tiny_costs()}) {
    double lost = 0.0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      Simulation simulation(costs, seed);
      simulation.run_tokens(Curve(15, 0.9), 1000);
      const double before = simulation.lost_steps();
      simulation.run_tokens({}, 300);
      lost += simulation.lost_steps() - before;
    }
    // Some ten rounds of the longest draft; without the alarm it is over 70 steps.
    EXPECT_LE(lost / 100, 30.0);
  }
}

TEST(LengthPolicy, GoesOnFromItsNumbersAsIfItHadNeverStopped) {
  const RoundCosts costs = tiny_costs();
  LengthPolicy policy(costs);
  SequenceRng random(5);
  const auto round = [&](std::int64_t length) {
    return record(static_cast<std::int32_t>(length),
                  static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(length + 1))),
                  costs);
  };
  for (int i = 0; i < 100; ++i) policy.observe(0, round(policy.choose(0, 16)));
  auto copy = LengthPolicy::from_numbers(policy.numbers(), 1, 16);
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->numbers(), policy.numbers());
  for (int i = 0; i < 200; ++i) {
    const std::int64_t length = policy.choose(0, 16);
    ASSERT_EQ(copy->choose(0, 16), length);
    const RoundRecord same = round(length);
    policy.observe(0, same);
    copy->observe(0, same);
  }
  EXPECT_EQ(copy->numbers(), policy.numbers());
}

TEST(LengthPolicy, RefusesNumbersThatNoPolicyHas) {
  const std::vector<double> numbers = LengthPolicy(tiny_costs()).numbers();
  EXPECT_TRUE(LengthPolicy::from_numbers(numbers, 1, 16).has_value());
  EXPECT_FALSE(LengthPolicy::from_numbers(numbers, 2, 16).has_value());
  EXPECT_FALSE(LengthPolicy::from_numbers(numbers, 1, 15).has_value());
  const std::size_t far_passes = 5;
  const std::size_t far_drafts = far_passes + CostEstimate::count_numbers(17) + 16;
  const std::size_t purse = far_drafts + CostEstimate::count_numbers(16);
  const std::size_t first_depth = purse + 3;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    for (const double value : {-1.0, HUGE_VAL, std::nan("")}) {
      std::vector<double> edited = numbers;
      edited[i] = value;
      const bool may_be_negative = i == purse || i == far_passes || i == far_drafts;
      EXPECT_EQ(LengthPolicy::from_numbers(edited, 1, 16).has_value(),
                may_be_negative && value == -1.0)
          << i << ", " << value;
    }
  }
  std::vector<double> more_accepted = numbers;
  more_accepted[first_depth + 1] = 1.0;
  EXPECT_FALSE(LengthPolicy::from_numbers(more_accepted, 1, 16).has_value());
}

TEST(LengthPolicy, KeepsToTheMostThatCanBeDrafted) {
  Simulation simulation(tiny_costs(), 3);
  simulation.run_tokens(Curve(16, 0.95), 500);
  LengthPolicy& policy = simulation.policy();
  EXPECT_GE(policy.choose(0, 100), 10);
  EXPECT_LE(policy.choose(0, 100), 16);
  EXPECT_LE(policy.choose(0, 3), 3);
  EXPECT_EQ(policy.choose(0, 0), 0);
}

TEST(LengthPolicy, EstimatesTheSurvivalOfEachDepth) {
  const Curve curve = expert_curve();
  LengthPolicy policy(expert_costs());
  EXPECT_DOUBLE_EQ(policy.survival(0, 1), 0.7);
  SequenceRng rng(5);
  double sums[8] = {};
  constexpr int kRounds = 20000;
  for (int i = 0; i < kRounds; ++i) {
    std::int32_t accepted = 0;
    while (accepted < 8 && static_cast<double>(rng.below(1000000)) <
                               1e6 * curve[static_cast<std::size_t>(accepted)]) {
      ++accepted;
    }
    policy.observe(0, record(8, accepted, expert_costs()));
    for (int d = 1; d <= 15; ++d) EXPECT_LE(policy.survival(0, d + 1), policy.survival(0, d));
    for (int d = 1; d <= 8; ++d) sums[d - 1] += policy.survival(0, d);
  }
  const double expected[] = {0.80, 0.66, 0.55, 0.46, 0.39, 0.33, 0.28, 0.24};
  // The mean over time; borrowing from shallower depths and forgetting after unlucky rounds bend it
  // by less than this.
  for (int d = 0; d < 8; ++d)
    EXPECT_NEAR(sums[d] / kRounds, expected[d], 0.04) << "depth " << d + 1;
}

TEST(LengthPolicy, IgnoresWhatAStoppedRoundDidNotJudge) {
  LengthPolicy stopped(tiny_costs());
  RoundRecord round = record(4, 2, tiny_costs());
  round.committed = 2;  // the second draft was a stop id
  stopped.observe(0, round);
  LengthPolicy rejected(tiny_costs());
  rejected.observe(0, record(4, 2, tiny_costs()));
  EXPECT_GT(stopped.survival(0, 3), rejected.survival(0, 3));
  EXPECT_NEAR(stopped.survival(0, 2), rejected.survival(0, 2), 0.01);  // ages differ by one token
}

TEST(LengthPolicy, KeepsItsChoiceAfterOneSlowRound) {
  for (const double factor : {0.1, 10.0}) {
    Simulation simulation(expert_costs(), 4);
    simulation.run_tokens(Curve(15, 0.85), 500);
    LengthPolicy& policy = simulation.policy();
    const std::int64_t before = policy.choose(0, 15);
    ASSERT_GT(before, 0);
    const double plain_before = policy.costs().verify[0];
    RoundRecord slow = record(static_cast<std::int32_t>(before), 3, expert_costs());
    slow.verify_seconds *= factor;
    slow.draft_seconds *= factor;
    policy.observe(0, slow);
    // It may have been the machine: plain steps tell.
    for (int i = 0; i < 2; ++i) policy.observe(0, record(0, 0, expert_costs()));
    EXPECT_NEAR(static_cast<double>(policy.choose(0, 15)), static_cast<double>(before), 2.0);
    EXPECT_NEAR(policy.costs().verify[0] / plain_before, 1.0, 0.03);
  }
}

TEST(LengthPolicy, FollowsAMachineThatBecomesSlower) {
  RoundCosts slower = expert_costs();
  for (double& seconds : slower.verify) seconds *= 2.0;
  LengthPolicy policy(expert_costs());
  for (int i = 0; i < 100; ++i) policy.observe(0, record(0, 0, slower));
  EXPECT_NEAR(policy.costs().verify[0] / slower.verify[0], 1.0, 0.01);
  // All sizes go with it, though only plain steps were seen. Part of so large an error may be the
  // table's shape, hence the tolerance.
  for (std::size_t i = 0; i < slower.verify.size(); ++i) {
    EXPECT_NEAR(policy.costs().verify[i] / slower.verify[i], 1.0, 0.15);
  }
  EXPECT_EQ(policy.costs().draft, expert_costs().draft);
}

TEST(LengthPolicy, KeepsWhatItKnowsOfEachLaneApart) {
  RoundCosts costs = tiny_costs();
  costs.draft.emplace_back(costs.draft[0].size(), 0.0);
  LengthPolicy policy(costs);
  const double untouched = policy.survival(1, 4);
  for (int i = 0; i < 3; ++i) policy.observe(0, record(0, 0, costs));
  for (int i = 0; i < 50; ++i) policy.observe(0, record(4, 0, costs));
  EXPECT_LT(policy.survival(0, 1), 0.1);
  EXPECT_EQ(policy.survival(1, 4), untouched);
  EXPECT_EQ(policy.choose(0, 16), 0);
  EXPECT_GT(policy.choose(1, 16), 0) << "a useless lane must not take the other's first guess";
  for (int i = 0; i < 50; ++i) policy.observe(1, record(16, 16, costs));
  EXPECT_GE(policy.choose(1, 16), 15);
  EXPECT_LE(policy.choose(0, 16), 1);
}

TEST(LengthPolicy, StartsFromWhatEarlierTextTaught) {
  Simulation good(tiny_costs(), 1);
  good.run_tokens(Curve(16, 0.95), 1000);
  LengthPolicy hopeful(tiny_costs());
  hopeful.seed(good.policy());
  EXPECT_GE(hopeful.choose(0, 16), 8);

  Simulation bad(tiny_costs(), 1);
  bad.run_tokens({}, 100);
  LengthPolicy sober(tiny_costs());
  sober.seed(bad.policy());
  EXPECT_EQ(sober.choose(0, 16), 0) << "each of many short texts would pay for the same guess";

  // The weight is limited: what follows decides soon.
  for (int i = 0; i < 2; ++i) hopeful.observe(0, record(4, 0, tiny_costs()));
  EXPECT_NEAR(hopeful.survival(0, 1), 0.95 * (8 + 1.5) / (8 + 1.5 + 2), 0.05);
  for (int i = 0; i < 20; ++i) {
    const auto length = static_cast<std::int32_t>(hopeful.choose(0, 16));
    hopeful.observe(0, record(length, 0, tiny_costs()));
  }
  EXPECT_EQ(hopeful.choose(0, 16), 0);
}

}  // namespace
}  // namespace kakeya::test
