#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"

namespace kakeya::test {
namespace {

constexpr std::int64_t kVocabulary = 12;

std::vector<float> some_logits() {
  return {1.2F, -0.3F, 0.8F, 2.0F, -1.5F, 0.0F, 1.9F, 0.4F, -4.0F, 1.1F, 0.8F, -0.9F};
}

class SamplerTest : public testing::Test {
 protected:
  SamplerTest() : sampler_(Sampler::create(kVocabulary, budget_).value()) {}

  TokenId draw(Position position, std::vector<float> logits = some_logits()) {
    return sampler_.sample(logits, position);
  }

  // Pearson's statistic of draws at many positions against `expected` probabilities, and the number
  // of cells minus one.
  std::pair<double, int> chi_square(const std::vector<double>& expected) {
    constexpr int kDraws = 100000;
    std::vector<int> counts(expected.size());
    for (int p = 0; p < kDraws; ++p) ++counts[static_cast<std::size_t>(draw(p))];
    double statistic = 0.0;
    int cells = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == 0.0) {
        EXPECT_EQ(counts[i], 0) << "token " << i << " must never be drawn";
        continue;
      }
      const double mean = kDraws * expected[i];
      statistic += (counts[i] - mean) * (counts[i] - mean) / mean;
      ++cells;
    }
    return {statistic, cells - 1};
  }

  MemoryBudget budget_;
  Sampler sampler_;
};

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  for (const float logit : logits) p.push_back(std::exp(logit / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= total;
  return p;
}

// Keeps the given tokens and renormalises.
std::vector<double> only(std::vector<double> p, const std::vector<std::size_t>& kept) {
  std::vector<double> result(p.size());
  double total = 0.0;
  for (const std::size_t i : kept) total += p[i];
  for (const std::size_t i : kept) result[i] = p[i] / total;
  return result;
}

// The 99.9 % point of chi square with `degrees` of freedom (Wilson and Hilferty's approximation).
// The draws are a fixed function of the seed, so a test passes always or never.
double limit(int degrees) {
  const double k = degrees;
  const double z = 3.09;
  return k * std::pow(1.0 - 2.0 / (9.0 * k) + z * std::sqrt(2.0 / (9.0 * k)), 3.0);
}

#define EXPECT_DRAWS_FOLLOW(expected)                                         \
  do {                                                                        \
    const auto [statistic, degrees] = chi_square(expected);                   \
    EXPECT_LT(statistic, limit(degrees)) << degrees << " degrees of freedom"; \
  } while (false)

TEST_F(SamplerTest, IsGreedyAtTemperatureZeroAndPrefersTheLowerIdOnTies) {
  sampler_.set_options({}, {});
  EXPECT_EQ(draw(0), 3);
  EXPECT_EQ(draw(0, std::vector<float>(kVocabulary, 1.0F)), 0);
}

TEST_F(SamplerTest, DrawsFromTheSoftmax) {
  sampler_.set_options({.temperature = 1.0F, .seed = 11}, {});
  EXPECT_DRAWS_FOLLOW(softmax(some_logits(), 1.0));
}

TEST_F(SamplerTest, DrawsFromTheSoftmaxAtATemperature) {
  sampler_.set_options({.temperature = 0.6F, .seed = 12}, {});
  EXPECT_DRAWS_FOLLOW(softmax(some_logits(), 0.6));
  // And not from another one: the test has power.
  const auto [statistic, degrees] = chi_square(softmax(some_logits(), 0.63));
  EXPECT_GT(statistic, 2.0 * limit(degrees));
}

TEST_F(SamplerTest, KeepsTheTopK) {
  sampler_.set_options({.temperature = 1.0F, .top_k = 4, .seed = 13}, {});
  EXPECT_DRAWS_FOLLOW(only(softmax(some_logits(), 1.0), {3, 6, 0, 9}));
}

TEST_F(SamplerTest, BreaksATieAtTheTopKBorderByTheLowerId) {
  // Tokens 2 and 10 have the same logit; the fifth place goes to 2.
  sampler_.set_options({.temperature = 1.0F, .top_k = 5, .seed = 14}, {});
  EXPECT_DRAWS_FOLLOW(only(softmax(some_logits(), 1.0), {3, 6, 0, 9, 2}));
}

TEST_F(SamplerTest, KeepsTheSmallestSetThatReachesTopP) {
  // Sorted: 3, 6, 0, 9 make .733 and with 2 .825 of the whole.
  const auto p = softmax(some_logits(), 1.0);
  ASSERT_LT(p[3] + p[6] + p[0] + p[9], 0.75);
  ASSERT_GT(p[3] + p[6] + p[0] + p[9] + p[2], 0.75);
  sampler_.set_options({.temperature = 1.0F, .top_p = 0.75F, .seed = 15}, {});
  EXPECT_DRAWS_FOLLOW(only(p, {3, 6, 0, 9, 2}));
}

TEST_F(SamplerTest, AppliesTopPWithinTheTopK) {
  const auto p = only(softmax(some_logits(), 1.0), {3, 6, 0});
  ASSERT_LT(p[3], 0.5);
  ASSERT_GT(p[3] + p[6], 0.7);
  sampler_.set_options({.temperature = 1.0F, .top_k = 3, .top_p = 0.7F, .seed = 16}, {});
  EXPECT_DRAWS_FOLLOW(only(p, {3, 6}));
}

TEST_F(SamplerTest, DropsWhatIsLessLikelyThanMinPTimesTheBest) {
  // 0.35 times the best: logits of at least 2.0 + log 0.35 = 0.95.
  sampler_.set_options({.temperature = 1.0F, .min_p = 0.35F, .seed = 17}, {});
  EXPECT_DRAWS_FOLLOW(only(softmax(some_logits(), 1.0), {3, 6, 0, 9}));
}

// Applies the filters to a row by their definitions: everything sorted.
std::vector<TokenLogit> filtered(std::span<const float> logits, const SamplingOptions& options) {
  std::vector<TokenLogit> kept;
  for (const float logit : logits) kept.push_back({static_cast<TokenId>(kept.size()), logit});
  std::ranges::sort(kept, IsBetter());
  if (options.top_k > 0) kept.resize(std::min(kept.size(), std::size_t(options.top_k)));
  const double best = kept[0].logit;
  double total = 0.0;
  for (const TokenLogit& token : kept) total += std::exp(token.logit - best);
  double sum = 0.0;
  std::size_t count = 0;
  while (count < kept.size() && (options.top_p == 1.0F || sum < options.top_p * total)) {
    sum += std::exp(kept[count++].logit - best);
  }
  kept.resize(count);
  std::erase_if(
      kept, [&](const TokenLogit& token) { return token.logit < best + std::log(options.min_p); });
  return kept;
}

// Long rows are not sorted: peaked and flat ones, where many logits are equal, and numbers of
// tokens at which the ways to find them change.
TEST(SamplerFilters, LeaveOfLongRowsWhatTheirDefinitionsDo) {
  constexpr std::int64_t kLong = 9001;
  MemoryBudget budget;
  Sampler sampler = Sampler::create(kLong, budget).value();
  SequenceRng random(5);
  for (const float spread : {0.5F, 4.0F, 24.0F}) {
    std::vector<float> logits(kLong);
    for (float& x : logits) x = std::round(8.0F * spread * random.symmetric()) / 8.0F;
    for (const int top_k : {0, 1, 3, 64, 256, 257, 9001}) {
      for (const float top_p : {1.0F, 0.999F, 0.8F, 0.01F}) {
        const SamplingOptions options = {.temperature = 1.0F,
                                         .top_k = top_k,
                                         .top_p = top_p,
                                         .min_p = top_k % 2 == 0 ? 0.0F : 0.01F,
                                         .seed = 3};
        sampler.set_options(options, {});
        const std::vector<TokenLogit> kept = filtered(logits, options);
        for (Position position = 0; position < 20; ++position) {
          const auto value = [&](const TokenLogit& token) {
            return token.logit + gumbel_noise(options.seed, position, token.id);
          };
          const TokenId expected = std::ranges::max_element(kept, {}, value)->id;
          std::vector<float> row = logits;
          ASSERT_EQ(sampler.sample(row, position), expected)
              << "spread " << spread << ", top_k " << top_k << ", top_p " << top_p;
        }
      }
    }
  }
}

TEST_F(SamplerTest, PenalisesWhatWasSeen) {
  sampler_.set_options({.temperature = 1.0F,
                        .repetition_penalty = 2.0F,
                        .presence_penalty = 0.5F,
                        .frequency_penalty = 0.25F,
                        .seed = 18},
                       {});
  sampler_.add_prompt_token(3);  // repetition only
  ASSERT_TRUE(sampler_.add_output_token(6).has_value());
  ASSERT_TRUE(sampler_.add_output_token(6).has_value());
  ASSERT_TRUE(sampler_.add_output_token(4).has_value());
  auto logits = some_logits();
  logits[3] /= 2.0F;
  logits[6] = logits[6] / 2.0F - 0.5F - 2 * 0.25F;
  logits[4] = logits[4] * 2.0F - 0.5F - 0.25F;  // negative logits are multiplied
  EXPECT_DRAWS_FOLLOW(softmax(logits, 1.0));
  sampler_.clear_history();
  EXPECT_DRAWS_FOLLOW(softmax(some_logits(), 1.0));
}

TEST_F(SamplerTest, AddsTheLogitBiasAndNeverDrawsSuppressedTokens) {
  const std::vector<TokenId> suppressed = {3};
  sampler_.set_options({.temperature = 1.0F, .logit_bias = {{8, 5.0F}}, .seed = 19}, suppressed);
  auto logits = some_logits();
  logits[8] += 5.0F;
  auto p = softmax(logits, 1.0);
  EXPECT_DRAWS_FOLLOW(only(p, {0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11}));
}

std::vector<float> other_logits() {
  return {0.2F, 0.9F, 0.8F, 1.2F, -0.5F, 1.5F, 1.1F, -1.4F, 0.3F, 1.0F, -0.8F, -2.9F};
}

// Drafts from other_logits(), verified against some_logits(), at many positions.
struct Verified {
  std::vector<int> counts;
  double accepted = 0.0;  // share
};
Verified verify_many(Sampler& sampler) {
  constexpr int kDraws = 100000;
  Verified verified{std::vector<int>(kVocabulary), 0.0};
  for (int p = 0; p < kDraws; ++p) {
    std::vector<float> q = other_logits();
    const TokenId drafted = sampler.draft(q, p);
    std::vector<float> logits = some_logits();
    const TokenId id = sampler.sample(logits, p);
    ++verified.counts[static_cast<std::size_t>(id)];
    verified.accepted += id == drafted ? 1.0 / kDraws : 0.0;
  }
  return verified;
}

double pearson(const std::vector<int>& counts, const std::vector<double>& expected) {
  const int draws = std::accumulate(counts.begin(), counts.end(), 0);
  double statistic = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == 0.0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    const double mean = draws * expected[i];
    statistic += (counts[i] - mean) * (counts[i] - mean) / mean;
  }
  return statistic;
}

double total_variation(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::fabs(p[i] - q[i]);
  return 0.5 * sum;
}

TEST_F(SamplerTest, SharedNoiseAgreesAtLeastAsOftenAsItsBound) {
  sampler_.set_options({.temperature = 0.8F, .seed = 23}, {});
  const double distance =
      total_variation(softmax(some_logits(), 0.8), softmax(other_logits(), 0.8));
  const Verified drawn = verify_many(sampler_);
  EXPECT_LT(pearson(drawn.counts, softmax(some_logits(), 0.8)), limit(kVocabulary - 1));
  EXPECT_GT(drawn.accepted, (1.0 - distance) / (1.0 + distance) - 0.006);
  EXPECT_LT(drawn.accepted, 1.0 - distance);  // what rejection sampling would reach
}

TEST_F(SamplerTest, IsAFunctionOfSeedAndPositionAlone) {
  sampler_.set_options({.temperature = 1.0F, .seed = 5}, {});
  std::vector<TokenId> forward;
  std::vector<TokenId> backward;
  for (Position p = 0; p < 100; ++p) forward.push_back(draw(p));
  for (Position p = 99; p >= 0; --p) backward.insert(backward.begin(), draw(p));
  EXPECT_EQ(forward, backward);
  sampler_.set_options({.temperature = 1.0F, .seed = 6}, {});
  std::vector<TokenId> other;
  for (Position p = 0; p < 100; ++p) other.push_back(draw(p));
  EXPECT_NE(forward, other);
}

TEST_F(SamplerTest, SurvivesLogitsThatAreNotNumbers) {
  sampler_.set_options({.temperature = 1.0F, .top_k = 3, .top_p = 0.5F, .min_p = 0.1F}, {});
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {kNan, kInfinity, -kInfinity}) {
    const TokenId id = draw(3, std::vector<float>(kVocabulary, value));
    EXPECT_GE(id, 0);
    EXPECT_LT(id, kVocabulary);
  }
}

TEST(SamplingOptions, AreRefusedOutOfRangeByName) {
  const auto message = [](const SamplingOptions& options) {
    const Status status = validate_sampling(options, 100);
    return status ? std::string("accepted") : status.error().message();
  };
  EXPECT_EQ(message({}), "accepted");
  EXPECT_EQ(message({.temperature = -1.0F}),
            "SamplingOptions::temperature must be from 0 to 100 but is -1");
  EXPECT_EQ(message({.top_k = -1}), "SamplingOptions::top_k must be 0 (off) or more but is -1");
  EXPECT_EQ(message({.top_p = 0.0F}),
            "SamplingOptions::top_p must be above 0 and at most 1 but is 0");
  EXPECT_EQ(message({.min_p = 1.5F}), "SamplingOptions::min_p must be from 0 to 1 but is 1.5");
  EXPECT_EQ(message({.logit_bias = {{100, 1.0F}}}),
            "SamplingOptions::logit_bias names token 100 but the vocabulary has 100");
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(message({.temperature = kNan}), "accepted");
  EXPECT_NE(message({.top_p = kNan}), "accepted");
}

// Known answers of the generator's authors: Random123, kat_vectors (philox4x32, 10 rounds).
TEST(Philox, GivesThePublishedKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(0xffffffffffffffffU, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822U, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CheckLogits, RefusesWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t place : {0U, 17U, 39U}) {
      std::vector<float> logits(40, -3e38F);
      EXPECT_TRUE(check_logits(logits, 7).has_value());
      logits[place] = bad;
      const Status checked = check_logits(logits, 7);
      ASSERT_FALSE(checked.has_value());
      EXPECT_EQ(checked.error().code(), StatusCode::kDataLoss);
      EXPECT_NE(checked.error().message().find("position 7"), std::string::npos);
    }
  }
}

// Colder and colder is greedier and greedier, whatever the division does.
TEST_F(SamplerTest, TinyTemperaturesAreGreedy) {
  for (const float temperature : {1e-6F, 1e-36F, 1e-38F, 1e-45F}) {
    sampler_.set_options({.temperature = temperature, .seed = 5}, {});
    for (Position p = 0; p < 50; ++p) EXPECT_EQ(draw(p), argmax(some_logits())) << temperature;
  }
}

TEST_F(SamplerTest, AnInfiniteBiasLeavesOnlyItsTokens) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bias : {kInfinity, 3e38F}) {
    sampler_.set_options({.temperature = 0.5F, .logit_bias = {{4, bias}, {9, bias}}, .seed = 5},
                         {});
    std::map<TokenId, int> counts;
    for (Position p = 0; p < 400; ++p) ++counts[draw(p)];
    EXPECT_EQ(counts.size(), 2U);
    EXPECT_GT(counts[4], 100);
    EXPECT_GT(counts[9], 100);
  }
}

}  // namespace
}  // namespace kakeya::test
