// Choosing from the largest logits of a row, against choosing from the whole row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "sampling/sampler.h"

namespace kakeya::test {
namespace {

constexpr std::int64_t kNumTokens = 3001;
constexpr std::size_t kBins = 96;
constexpr std::size_t kOfBin = 4;

// Allows each token whose id leaves `rest` when divided by `every`.
class EveryTokenOf final : public Constraint {
 public:
  EveryTokenOf(TokenId every, TokenId rest) : every_(every), rest_(rest) {}
  bool fill_mask(std::span<std::uint32_t> mask) override {
    for (TokenId id = rest_; id < kNumTokens; id += every_) {
      mask[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
    }
    return true;
  }
  bool advance(TokenId id) override { return id % every_ == rest_; }
  void roll_back(std::int64_t /*count*/) override {}

 private:
  TokenId every_;
  TokenId rest_;
};

class LargestLogitsTest : public testing::Test {
 protected:
  // Normal, in steps so that some are equal.
  std::vector<float> logits(float steps) {
    std::normal_distribution<float> normal(0.0F, 4.0F);
    std::vector<float> row(kNumTokens);
    for (float& logit : row) logit = std::round(normal(random_) * steps) / steps;
    return row;
  }
  // The largest of each bin, as a device lists them.
  static LargestLogits list(const std::vector<float>& row, std::vector<TokenLogit>& listed) {
    listed.clear();
    float others = kNever;
    for (std::size_t bin = 0; bin < kBins; ++bin) {
      std::vector<TokenLogit> of_bin;
      for (std::size_t i = bin; i < row.size(); i += kBins) {
        of_bin.push_back({static_cast<TokenId>(i), row[i]});
      }
      std::ranges::sort(of_bin, IsBetter());
      others = std::max(others, of_bin[kOfBin].logit);
      // A device may list whichever it likes of equal ones.
      if (of_bin[kOfBin - 1].logit == of_bin[kOfBin].logit) {
        std::swap(of_bin[kOfBin - 1], of_bin[kOfBin]);
      }
      listed.insert(listed.end(), of_bin.begin(), of_bin.begin() + kOfBin);
    }
    return {listed, others};
  }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  SamplingOptions some_options(const std::vector<float>& row) {
    SamplingOptions options;
    options.temperature = one_of({0.0F, 0.3F, 1.0F, 1.6F});
    options.top_k = one_of({0, 1, 5, 40});
    options.top_p = one_of({1.0F, 0.9F});
    options.min_p = one_of({0.0F, 0.1F});
    options.presence_penalty = one_of({0.0F, 0.0F, 2.0F, -1.0F});
    options.frequency_penalty = one_of({0.0F, 0.0F, 0.5F});
    options.repetition_penalty = one_of({1.0F, 1.0F, 1.4F, 0.8F});
    options.seed = random_();
    const TokenId best = argmax(row);
    const float bias = one_of({0.0F, 0.0F, -3.0F, kNever, 2.0F});
    if (bias != 0.0F) options.logit_bias = {{best, bias}, {17, bias}};
    return options;
  }

  MemoryBudget budget_;
  std::mt19937 random_{7};
  Sampler sampler_ = Sampler::create(kNumTokens, budget_).value();
};

TEST_F(LargestLogitsTest, GiveTheTokenOfTheWholeRow) {
  EveryTokenOf half(2, 1);
  EveryTokenOf few(1000, 3);
  std::vector<TokenLogit> listed;
  int asked = 0;
  int told = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::vector<float> row = logits(one_of({8.0F, 1e6F}));
    const LargestLogits largest = list(row, listed);
    const SamplingOptions options = some_options(row);
    std::vector<TokenId> suppressed;
    if (one_of({0, 1}) == 1) suppressed = {argmax(row), 5, 96};
    sampler_.set_options(options, suppressed);
    sampler_.set_constraint(one_of<Constraint*>({nullptr, nullptr, &half, &few}));
    sampler_.clear_history();
    for (const TokenId id : {argmax(row), TokenId{3}, TokenId{3}, listed[9].id}) {
      sampler_.add_prompt_token(id);
      static_cast<void>(sampler_.add_output_token(id));
    }
    const auto id = sampler_.sample(largest, round);
    asked += sampler_.chooses_from_largest() ? 1 : 0;
    if (!id) continue;
    ++told;
    ASSERT_TRUE(sampler_.chooses_from_largest());
    std::vector<float> whole = row;
    ASSERT_TRUE(sampler_.constrain(whole, round));
    ASSERT_EQ(*id, sampler_.sample(whole, round)) << "round " << round;
  }
  // Few allowed tokens, and equal ones at a border, take the whole row.
  EXPECT_GT(asked, 400);
  EXPECT_GT(told, asked / 2);
}

TEST_F(LargestLogitsTest, AreEnoughForOrdinaryOptions) {
  std::vector<TokenLogit> listed;
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 0.0F}, SamplingOptions{.temperature = 1.0F, .top_k = 20},
        SamplingOptions{.temperature = 0.7F, .top_k = 20, .top_p = 0.95F},
        SamplingOptions{.temperature = 0.7F, .min_p = 0.2F},
        SamplingOptions{.temperature = 0.0F, .repetition_penalty = 1.1F}}) {
    sampler_.set_options(options, {});
    int told = 0;
    for (int round = 0; round < 50; ++round) {
      const LargestLogits largest = list(logits(1e6F), listed);
      told += sampler_.sample(largest, round) ? 1 : 0;
    }
    EXPECT_GE(told, 48) << "top_k " << options.top_k << ", min_p " << options.min_p;
  }
}

TEST_F(LargestLogitsTest, AreNotEnoughForSums) {
  std::vector<TokenLogit> listed;
  const LargestLogits largest = list(logits(1e6F), listed);
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1.0F}, SamplingOptions{.temperature = 1.0F, .top_p = 0.9F},
        SamplingOptions{.repetition_penalty = 0.9F}, SamplingOptions{.logit_bias = {{7, 1.0F}}}}) {
    sampler_.set_options(options, {});
    EXPECT_FALSE(sampler_.chooses_from_largest());
    EXPECT_FALSE(sampler_.sample(largest, 1).has_value());
  }
}

// The lower id of equal ones is kept, which is perhaps not listed.
TEST_F(LargestLogitsTest, AreNotEnoughWhereOthersMayBeEqual) {
  const std::vector<TokenLogit> listed = {{100, 5.0F}, {200, 4.0F}, {300, 3.0F}};
  const auto told = [&](const SamplingOptions& options, float others) {
    sampler_.set_options(options, {});
    return sampler_.sample({listed, others}, 1).has_value();
  };
  EXPECT_TRUE(told({.temperature = 1.0F, .top_k = 2}, 3.9F));
  EXPECT_FALSE(told({.temperature = 1.0F, .top_k = 2}, 4.0F));
  EXPECT_TRUE(told({.temperature = 0.0F}, 4.9F));
  EXPECT_FALSE(told({.temperature = 0.0F}, 5.0F));
}

// Drafts under a constraint: each counts for the next one, until end_drafts().
TEST_F(LargestLogitsTest, GiveTheDraftsOfTheWholeRows) {
  EveryTokenOf half(2, 1);
  std::vector<TokenLogit> listed;
  sampler_.set_options({.temperature = 0.8F, .top_k = 10}, {});
  sampler_.set_constraint(&half);
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> row = logits(1e6F);
    std::vector<float> whole = row;
    const TokenId expected = sampler_.draft(whole, round);
    sampler_.end_drafts();
    const auto id = sampler_.draft(list(row, listed), round);
    sampler_.end_drafts();
    if (id) {
      EXPECT_EQ(*id, expected);
    }
  }
}

}  // namespace
}  // namespace kakeya::test
