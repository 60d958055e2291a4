// The length policy and what it knows of costs, in small; tests/decode/length_policy_grid_test.cc
// has the machines.
#include "decode/length_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "decode/simulated_machine.h"

namespace kakeya::test {
namespace {

DraftOffer offer_of(DraftKind kind, std::int64_t length) {
  return {.kind = kind, .length = length};
}

RoundRecord round_of(std::int64_t drafted, std::int64_t accepted) {
  return {.drafted = static_cast<std::int32_t>(drafted),
          .accepted = static_cast<std::int32_t>(accepted),
          .committed = static_cast<std::int32_t>(accepted + 1)};
}

// The length of a round of a request that may go on for long.
std::int64_t choose(LengthPolicy& policy, DraftKind kind, std::int64_t most) {
  const DraftOffer offer = offer_of(kind, most);
  return policy.choose({.offers = {&offer, 1}, .remaining = 1000}, most).length;
}

TEST(DraftCosts, LearnsWhatAMachineTakes) {
  for (const char* kind : {"dense", "experts", "gpu", "demo"}) {
    const SimulatedCosts truth(kind);
    DraftCosts costs;
    SimulatedMachine machine("steady", 3);
    EXPECT_FALSE(costs.table(15).has_value());
    EXPECT_EQ(costs.plain_seconds(0), 0.0);
    for (int i = 0; i < 400; ++i) {
      const std::int64_t n = i % 4 == 0 ? 0 : 1 + i % 15;
      costs.learn_drafts(n, 0, 0.02 * truth.draft(n) * machine.noise());
      costs.learn(n + 1, 0, 0.02 * truth.verify(n + 1) * machine.noise());
    }
    const CostTable table = costs.table(15).value();
    EXPECT_NEAR(costs.plain_seconds(0), 0.02, 0.002) << kind;
    for (std::int64_t n = 1; n <= 15; ++n) {
      const auto i = static_cast<std::size_t>(n);
      EXPECT_NEAR(table.verify[i] / table.verify[0] / truth.verify(n + 1), 1.0, 0.15) << kind << n;
      EXPECT_NEAR(table.draft[i - 1] / table.verify[0] / truth.draft(n), 1.0, 0.15) << kind << n;
    }
  }
}

TEST(DraftCosts, SlowMomentsCountLittle) {
  DraftCosts costs;
  for (int i = 0; i < 20; ++i) costs.learn(1, 0, 0.01);
  for (int i = 0; i < 4; ++i) costs.learn(1, 0, 1.0);
  EXPECT_LT(costs.plain_seconds(0), 0.0112);
  for (int i = 0; i < 40; ++i) costs.learn(1, 0, 0.005);
  EXPECT_NEAR(costs.plain_seconds(0), 0.005, 0.0005);
  costs.learn(0, 0, 1.0);
  costs.learn(1, 0, 0.0);
  EXPECT_NEAR(costs.plain_seconds(0), 0.005, 0.0005);
}

// Other work makes each third pass longer, in all sizes.
TEST(DraftCosts, ABusyCoreChangesRatiosLittle) {
  DraftCosts costs;
  for (int i = 0; i < 200; ++i) {
    const double slow = i % 3 == 0 ? 2.5 : 1.0;
    costs.learn(i % 2 == 0 ? 1 : 8, 0, slow * (i % 2 == 0 ? 0.01 : 0.02));
  }
  const DraftOffer offer = offer_of(DraftKind::kNgram, 15);
  EXPECT_NEAR(costs.outlook(offer, 15, 0, {}).extra[7], 1.0, 0.1);
}

// Rows over a long context cost more, and say nothing of those over a short one.
TEST(DraftCosts, LengthsOfContextAreToldApart) {
  DraftCosts costs;
  const DraftOffer offer = offer_of(DraftKind::kNgram, 15);
  for (int i = 0; i < 100; ++i) {
    costs.learn(1, 300, 0.01);
    costs.learn(8, 300, 0.02);
  }
  EXPECT_NEAR(costs.outlook(offer, 15, 9000, {}).extra[7], 1.0, 0.05);  // the nearest known
  for (int i = 0; i < 100; ++i) {
    costs.learn(1, 300, 0.01);
    costs.learn(1, 9000, 0.02);
    costs.learn(8, 9000, 0.06);
  }
  EXPECT_NEAR(costs.outlook(offer, 15, 9000, {}).extra[7], 2.0, 0.1);
  EXPECT_NEAR(costs.outlook(offer, 15, 400, {}).extra[7], 1.0, 0.2);
  EXPECT_NEAR(costs.plain_seconds(9000), 0.02, 0.001);
}

// A slope that passes of two sizes suggest would lead below zero.
TEST(DraftCosts, PassesBeyondTheLargestKnownSizeCostMore) {
  DraftCosts costs;
  for (int i = 0; i < 200; ++i) costs.learn(768, 0, 1.0);
  for (int i = 0; i < 200; ++i) costs.learn(1024, 0, 0.2);
  const CostTable table = costs.table(4000).value();
  EXPECT_GT(table.verify[3999], table.verify[1023]);
}

// In a pass that others fill, a row costs all of them, in parts of a pass.
TEST(DraftCosts, RowsOfASharedPassCostEverybody) {
  const DraftCosts costs;
  const DraftOffer drafter = offer_of(DraftKind::kDflash, 3);
  const DraftOffer ngram = offer_of(DraftKind::kNgram, 3);
  EXPECT_NEAR(costs.outlook(drafter, 3, 0, {}).extra[3], 0.36 + 0.66, 1e-9);
  EXPECT_NEAR(costs.outlook(ngram, 3, 0, {}).extra[3], 0.36, 1e-9);
  const DraftOutlook shared =
      costs.outlook(drafter, 3, 0, {.rows = 8, .requests = 8, .drafting = 4});
  EXPECT_NEAR(shared.extra[3], (0.36 + (0.6 + 0.02 * 12) / 4) / (1.84 / 8), 1e-9);
}

// A block is at most twice as long as what was accepted at once.
TEST(LengthPolicy, TriesAtOnceAndGrowsWithSuccess) {
  DraftCosts costs;
  LengthPolicy policy(costs);
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 6; ++i) {
    const std::int64_t n = choose(policy, DraftKind::kDflash, 15);
    lengths.push_back(n);
    policy.observe(round_of(n, n));
  }
  EXPECT_EQ(lengths.front(), LengthPolicy::kProbe);  // more than a try would be beyond the stake
  EXPECT_EQ(lengths[1], 7);
  EXPECT_EQ(lengths.back(), 15);
  EXPECT_LT(policy.spent(DraftKind::kDflash), 0.0);
  EXPECT_EQ(choose(policy, DraftKind::kDflash, 4), 4);
  EXPECT_EQ(choose(policy, DraftKind::kDflash, 0), 0);
}

TEST(LengthPolicy, RunsAPlainStepNowAndThen) {
  DraftCosts costs;
  for (int i = 0; i < 4; ++i) costs.learn(1, 0, 0.01);  // or more are run, to know what one takes
  LengthPolicy policy(costs);
  int plain = 0;
  for (int i = 0; i < 260; ++i) {
    const std::int64_t n = choose(policy, DraftKind::kNgram, 15);
    plain += n == 0 ? 1 : 0;
    policy.observe(round_of(n, n));
  }
  EXPECT_EQ(plain, 4);
}

// A clock that other work disturbs does not stop drafts that are always right.
TEST(LengthPolicy, CountsDecideBeforeCostsDo) {
  DraftCosts costs;
  LengthPolicy policy(costs);
  for (int i = 0; i < 8; ++i) costs.learn(1, 0, 0.01);
  for (int i = 0; i < 20; ++i) {
    const std::int64_t n = choose(policy, DraftKind::kNgram, 15);
    EXPECT_TRUE(n > 0 || i == 0) << i;
    policy.observe(round_of(n, n));
    costs.learn(n + 1, 0, 5.0);
  }
}

// Each round is the offer's that gains more: what it says of itself does not count.
TEST(LengthPolicy, TakesTheOfferThatGainsMore) {
  for (const bool ngrams_are_right : {false, true}) {
    DraftCosts costs;
    LengthPolicy policy(costs);
    for (int i = 0; i < 4; ++i) costs.learn(1, 0, 0.01);
    const DraftOffer offers[] = {offer_of(DraftKind::kNgram, 15), offer_of(DraftKind::kDflash, 15)};
    std::array<int, 2> drafted{};
    for (int i = 0; i < 60; ++i) {
      const DraftPlan plan = policy.choose({.offers = offers, .remaining = 500}, 15);
      const bool right = (plan.offer == 0) == ngrams_are_right;
      if (i >= 20 && plan.length > 0) ++drafted[plan.offer];
      policy.observe(round_of(plan.length, right ? plan.length : 0));
    }
    EXPECT_GT(drafted[ngrams_are_right ? 0 : 1], 30);
    EXPECT_LT(drafted[ngrams_are_right ? 1 : 0], 4);
  }
}

// Short matches that are wrong say nothing of long ones.
TEST(LengthPolicy, CountsShortAndLongMatchesApart) {
  DraftCosts costs;
  LengthPolicy policy(costs);
  DraftOffer offer = offer_of(DraftKind::kNgram, 15);
  for (int i = 0; i < 40; ++i) {
    const DraftPlan plan = policy.choose({.offers = {&offer, 1}, .remaining = 500}, 15);
    policy.observe(round_of(plan.length, 0));
  }
  EXPECT_EQ(policy.choose({.offers = {&offer, 1}, .remaining = 500}, 15).length, 0);
  offer.long_match = true;
  LengthPolicy next(costs);
  EXPECT_EQ(next.choose({.offers = {&offer, 1}, .remaining = 500}, 15).reason, DraftReason::kGain);
}

// A context of 500 rows costs five plain steps by the first table.
TEST(LengthPolicy, ADraftersContextIsMadeWhereTheRestPaysForIt) {
  DraftCosts costs;
  const DraftOffer offer{.kind = DraftKind::kDflash, .length = 15, .context_rows = 500};
  for (const std::int64_t remaining : {4, 12, 200}) {
    LengthPolicy policy(costs);
    const auto most = std::min<std::int64_t>(15, remaining - 1);
    const DraftPlan plan = policy.choose({.offers = {&offer, 1}, .remaining = remaining}, most);
    EXPECT_EQ(plan.length > 0, remaining == 200) << remaining;
  }
}

TEST(LengthPolicy, AskedForLengthsTakeLongMatchesFirstAndShortOnesLast) {
  DraftOffer offers[] = {offer_of(DraftKind::kNgram, 15), offer_of(DraftKind::kDflash, 7)};
  EXPECT_EQ(plan_fixed(offers, 9).offer, 1U);
  EXPECT_EQ(plan_fixed(offers, 9).length, 7);
  offers[0].long_match = true;
  EXPECT_EQ(plan_fixed(offers, 9).offer, 0U);
  EXPECT_EQ(plan_fixed(offers, 9).length, 9);
  EXPECT_EQ(plan_fixed(std::span(offers).first(1), -2).length, 0);
  EXPECT_EQ(plan_fixed({}, 3).length, 0);
}

// The losses of others take away what may be staked, down to one block, and not the try.
TEST(LengthPolicy, EveryRequestMayTry) {
  DraftCosts costs;
  for (int request = 0; request < 50; ++request) {
    LengthPolicy policy(costs);
    int tries = 0;
    for (int i = 0; i < 20; ++i) {
      const std::int64_t n = choose(policy, DraftKind::kDflash, 15);
      tries += n > 0 ? 1 : 0;
      policy.observe(round_of(n, 0));
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
      costs_.learn_drafts(1 + i % 16, 0, truth_.draft(1 + i % 16));
      costs_.learn(1 + i % 32, 0, truth_.verify(1 + i % 32));
    }
  }

  void step() {
    const DraftOffer offer = offer_of(DraftKind::kDflash, kMostSimulated);
    std::vector<RoundChoice> choices;
    for (LengthPolicy& policy : policies_) {
      choices.push_back(
          {.policy = &policy, .facts = {.offers = {&offer, 1}, .remaining = 1000}, .plan = {}});
    }
    choose_together(choices, 128);
    const auto requests = std::ssize(choices);
    const auto drafting = std::count_if(choices.begin(), choices.end(),
                                        [](const auto& choice) { return choice.plan.length > 0; });
    PassShare share{.rows = requests, .requests = requests, .drafting = drafting};
    std::int64_t drafted = 0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const std::int64_t n = choices[i].plan.length;
      RoundRecord round{.drafted = static_cast<std::int32_t>(n)};
      while (round.accepted < n && machine_.uniform() < acceptances_[i]) ++round.accepted;
      round.committed = round.accepted + 1;
      if (drafting > 0) {
        const DraftOutlook outlook = costs_.outlook(offer, kMostSimulated, 0, share);
        bound_ = std::max(bound_, LengthPolicy::kMostBlocks * outlook.extra[3]);
        lost_[i] += outlook.extra[static_cast<std::size_t>(n)] - round.accepted;
      }
      policies_[i].observe(round);
      tokens_ += round.committed;
      share.rows += n;
      drafted += n;
    }
    costs_.learn_drafts(drafted, 0, truth_.draft(drafted) * machine_.noise());
    costs_.learn(share.rows, 0, truth_.verify(share.rows) * machine_.noise());
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
  const DraftOffer fifteen = offer_of(DraftKind::kDflash, 15);
  const DraftOffer nine = offer_of(DraftKind::kNgram, 9);
  const DraftOffer two = offer_of(DraftKind::kDflash, 2);
  std::vector<RoundChoice> choices = {
      {.facts = {.offers = {&fifteen, 1}}, .length = 5, .plan = {}},
      {.policy = &policy, .facts = {.offers = {&nine, 1}, .remaining = 100}, .plan = {}},
      {.facts = {}, .length = 7, .plan = {}},
      {.facts = {.offers = {&two, 1}}, .length = 5, .plan = {}}};
  choose_together(choices, 6);
  EXPECT_EQ(choices[0].plan.length, 5);
  EXPECT_EQ(choices[1].plan.length, 1);
  EXPECT_EQ(choices[2].plan.length, 0);
  EXPECT_EQ(choices[3].plan.length, 0);
  choose_together(choices, -3);
  for (const RoundChoice& choice : choices) EXPECT_EQ(choice.plan.length, 0);
}

}  // namespace
}  // namespace kakeya::test
