// The length policy and what it knows of costs, in small; tests/decode/length_policy_grid_test.cc
// has the machines.
#include "decode/length_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "decode/simulated_machine.h"

namespace kakeya::test {
namespace {

TEST(DraftCosts, LearnsWhatAMachineTakes) {
  for (const char* kind : {"dense", "experts", "gpu", "demo"}) {
    const SimulatedCosts truth(kind);
    DraftCosts costs;
    SimulatedMachine machine("steady", 3);
    EXPECT_FALSE(costs.table(15).has_value());
    EXPECT_EQ(costs.plain_seconds(), 0.0);
    for (int i = 0; i < 400; ++i) {
      const std::int64_t n = i % 4 == 0 ? 0 : 1 + i % 15;
      costs.learn_drafts(n, 0.02 * truth.draft(n) * machine.noise());
      costs.learn(n + 1, 0.02 * truth.verify(n + 1) * machine.noise());
    }
    const CostTable table = costs.table(15).value();
    EXPECT_NEAR(costs.plain_seconds(), 0.02, 0.002) << kind;
    for (std::int64_t n = 1; n <= 15; ++n) {
      const auto i = static_cast<std::size_t>(n);
      EXPECT_NEAR(table.verify[i] / table.verify[0] / truth.verify(n + 1), 1.0, 0.15) << kind << n;
      EXPECT_NEAR(table.draft[i - 1] / table.verify[0] / truth.draft(n), 1.0, 0.15) << kind << n;
    }
  }
}

TEST(DraftCosts, SlowMomentsCountLittle) {
  DraftCosts costs;
  for (int i = 0; i < 20; ++i) costs.learn(1, 0.01);
  for (int i = 0; i < 4; ++i) costs.learn(1, 1.0);
  EXPECT_LT(costs.plain_seconds(), 0.0112);
  for (int i = 0; i < 40; ++i) costs.learn(1, 0.005);
  EXPECT_NEAR(costs.plain_seconds(), 0.005, 0.0005);
  costs.learn(0, 1.0);
  costs.learn(1, 0.0);
  EXPECT_NEAR(costs.plain_seconds(), 0.005, 0.0005);
}

// A slope that passes of two sizes suggest would lead below zero.
TEST(DraftCosts, PassesBeyondTheLargestKnownSizeCostMore) {
  DraftCosts costs;
  for (int i = 0; i < 200; ++i) costs.learn(768, 1.0);
  for (int i = 0; i < 200; ++i) costs.learn(1024, 0.2);
  const CostTable table = costs.table(4000).value();
  EXPECT_GT(table.verify[3999], table.verify[1023]);
}

// In a pass that others fill, a row costs all of them, in parts of a pass.
TEST(DraftCosts, RowsOfASharedPassCostEverybody) {
  const DraftCosts costs;
  const double alone = costs.outlook(DraftKind::kDflash, 3, {}).extra[3];
  EXPECT_NEAR(alone, 0.36 + 0.66, 1e-9);
  EXPECT_NEAR(costs.outlook(DraftKind::kNgram, 3, {}).extra[3], 0.36, 1e-9);
  const DraftOutlook shared =
      costs.outlook(DraftKind::kDflash, 3, {.rows = 8, .requests = 8, .drafting = 4});
  EXPECT_NEAR(shared.extra[3], (0.36 + (0.6 + 0.02 * 12) / 4) / (1.84 / 8), 1e-9);
}

TEST(LengthPolicy, TriesAtOnceAndGrowsWithSuccess) {
  DraftCosts costs;
  LengthPolicy policy(costs);
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 6; ++i) {
    const std::int64_t n = policy.choose(DraftKind::kDflash, 15);
    lengths.push_back(n);
    policy.observe({.drafted = static_cast<std::int32_t>(n),
                    .accepted = static_cast<std::int32_t>(n),
                    .committed = static_cast<std::int32_t>(n + 1)});
  }
  EXPECT_GE(lengths.front(), 1);
  EXPECT_EQ(lengths.back(), 15);
  EXPECT_LT(policy.spent(), 0.0);
  EXPECT_EQ(policy.choose(DraftKind::kDflash, 4), 4);
  EXPECT_EQ(policy.choose(DraftKind::kDflash, 0), 0);
}

TEST(LengthPolicy, RunsAPlainStepNowAndThen) {
  DraftCosts costs;
  for (int i = 0; i < 4; ++i) costs.learn(1, 0.01);  // or more are run, to know what one takes
  LengthPolicy policy(costs);
  int plain = 0;
  for (int i = 0; i < 260; ++i) {
    const auto n = static_cast<std::int32_t>(policy.choose(DraftKind::kNgram, 15));
    plain += n == 0 ? 1 : 0;
    policy.observe({.drafted = n, .accepted = n, .committed = n + 1});
  }
  EXPECT_EQ(plain, 4);
}

// The losses of others take away what may be staked, down to one block, and not the try.
TEST(LengthPolicy, EveryRequestMayTry) {
  DraftCosts costs;
  for (int request = 0; request < 50; ++request) {
    LengthPolicy policy(costs);
    int tries = 0;
    for (int i = 0; i < 20; ++i) {
      const auto n = static_cast<std::int32_t>(policy.choose(DraftKind::kDflash, 15));
      tries += n > 0 ? 1 : 0;
      policy.observe({.drafted = n, .accepted = 0, .committed = 1});
    }
    EXPECT_GE(tries, 1);
    EXPECT_LE(tries, request < 10 ? 5 : 1) << request;
    policy.end();
  }
}

// Requests that decode side by side, each with a policy of its own.
class SharedPasses {
 public:
  SharedPasses(const SimulatedCosts& truth, std::vector<double> acceptances)
      : truth_(truth), acceptances_(std::move(acceptances)), lost_(acceptances_.size()) {
    for (std::size_t i = 0; i < acceptances_.size(); ++i) policies_.emplace_back(costs_);
  }

  void learn_costs() {
    for (int i = 0; i < 400; ++i) {
      costs_.learn_drafts(1 + i % 16, truth_.draft(1 + i % 16));
      costs_.learn(1 + i % 32, truth_.verify(1 + i % 32));
    }
  }

  void step() {
    std::vector<RoundChoice> choices;
    for (LengthPolicy& policy : policies_) {
      choices.push_back({.policy = &policy, .kind = DraftKind::kDflash, .most = kMostSimulated});
    }
    choose_together(choices, 128);
    const auto requests = std::ssize(choices);
    const auto drafting = std::count_if(choices.begin(), choices.end(),
                                        [](const auto& choice) { return choice.length > 0; });
    PassShare share{.rows = requests, .requests = requests, .drafting = drafting};
    std::int64_t drafted = 0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const std::int64_t n = choices[i].length;
      RoundRecord round{.drafted = static_cast<std::int32_t>(n)};
      while (round.accepted < n && machine_.uniform() < acceptances_[i]) ++round.accepted;
      round.committed = round.accepted + 1;
      if (drafting > 0) {
        const DraftOutlook outlook = costs_.outlook(DraftKind::kDflash, kMostSimulated, share);
        bound_ = std::max(bound_, LengthPolicy::kMostBlocks * outlook.extra[3]);
        lost_[i] += outlook.extra[static_cast<std::size_t>(n)] - round.accepted;
      }
      policies_[i].observe(round);
      tokens_ += round.committed;
      share.rows += n;
      drafted += n;
    }
    costs_.learn_drafts(drafted, truth_.draft(drafted) * machine_.noise());
    costs_.learn(share.rows, truth_.verify(share.rows) * machine_.noise());
    seconds_ += truth_.draft(drafted) + truth_.verify(share.rows);
    ++passes_;
  }

  double lost(std::size_t request) const { return lost_[request]; }
  double bound() const { return bound_; }
  double passes() const { return static_cast<double>(passes_); }
  // Against plain passes for as many tokens.
  double to_plain() const {
    const auto requests = static_cast<double>(policies_.size());
    return seconds_ / (truth_.verify(std::ssize(policies_)) * tokens_ / requests);
  }

 private:
  const SimulatedCosts& truth_;
  std::vector<double> acceptances_;
  DraftCosts costs_;
  std::vector<LengthPolicy> policies_;
  SimulatedMachine machine_{"steady", 5};
  std::vector<double> lost_;  // in shares of a pass without drafts, by the table
  double bound_ = 0.0;
  double seconds_ = 0.0;
  double tokens_ = 0.0;
  std::int64_t passes_ = 0;
};

TEST(SharedPasses, UselessDraftsCostAtMostTheBound) {
  for (const char* kind : {"dense", "experts", "gpu"}) {
    for (const std::size_t requests : {1U, 2U, 8U, 32U}) {
      const SimulatedCosts truth(kind);
      SharedPasses passes(truth, std::vector<double>(requests, 0.0));
      for (int i = 0; i < 1000; ++i) passes.step();
      for (std::size_t i = 0; i < requests; ++i) {
        EXPECT_LE(passes.lost(i), LengthPolicy::kShare * 1000 + passes.bound() + 1e-9)
            << kind << ", " << requests << " requests";
      }
      EXPECT_LE(passes.to_plain(), 1.04) << kind << ", " << requests << " requests";
    }
  }
}

TEST(SharedPasses, GoodDraftsPayWhereRowsAreCheap) {
  for (const std::size_t requests : {1U, 2U, 4U, 8U}) {
    const SimulatedCosts truth("gpu");
    SharedPasses passes(truth, std::vector<double>(requests, 0.9));
    for (int i = 0; i < 200; ++i) passes.step();
    EXPECT_LT(passes.to_plain(), 0.45) << requests << " requests";
  }
  // Beside useless ones too, where costs are known.
  const SimulatedCosts truth("gpu");
  std::vector<double> acceptances(8, 0.0);
  acceptances[3] = 0.9;
  SharedPasses passes(truth, acceptances);
  passes.learn_costs();
  for (int i = 0; i < 300; ++i) passes.step();
  EXPECT_LT(passes.lost(3), -30.0);
}

TEST(SharedPasses, FixedLengthsAndRoomAreKept) {
  DraftCosts costs;
  LengthPolicy policy(costs);
  std::vector<RoundChoice> choices = {{.kind = DraftKind::kDflash, .most = 15, .length = 5},
                                      {.policy = &policy, .kind = DraftKind::kNgram, .most = 9},
                                      {.kind = DraftKind::kNone, .most = 0, .length = 7},
                                      {.kind = DraftKind::kDflash, .most = 2, .length = 5}};
  choose_together(choices, 6);
  EXPECT_EQ(choices[0].length, 5);
  EXPECT_EQ(choices[1].length, 1);
  EXPECT_EQ(choices[2].length, 0);
  EXPECT_EQ(choices[3].length, 0);
  choose_together(choices, -3);
  for (const RoundChoice& choice : choices) EXPECT_EQ(choice.length, 0);
}

}  // namespace
}  // namespace kakeya::test
