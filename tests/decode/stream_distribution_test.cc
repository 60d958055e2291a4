// Tokens that come out of the decoding loop follow the target's distribution, whatever drafts: the
// joint distribution of four tokens in a row, of which
// drafts of three rows with probabilities of their own were verified, against the exact one.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <ostream>
#include <vector>

#include "decode/generation.h"
#include "decode/scripted_decoder.h"

namespace kakeya::test {
namespace {

constexpr int kStreamVocabulary = 3;
constexpr int kTokens = 4;
constexpr int kStreams = 40000;

// Probabilities of the next token (column) behind the last one (row). No stream of four is rarer
// than 1 in 625, so that each is expected 64 times.
constexpr float kTarget[kStreamVocabulary][kStreamVocabulary] = {
    {0.2F, 0.5F, 0.3F}, {0.45F, 0.2F, 0.35F}, {0.25F, 0.2F, 0.55F}};
// Probabilities of the drafts in each row of a block: no two alike, and none like the target's.
constexpr float kDrafts[3][kStreamVocabulary] = {
    {0.8F, 0.15F, 0.05F}, {0.05F, 0.15F, 0.8F}, {0.3F, 0.6F, 0.1F}};

// Drafts that do not depend on the text. Certain ones, as n-grams are, have no probabilities.
class RowDrafts final : public DraftSource {
 public:
  explicit RowDrafts(bool certain) : certain_(certain) {}

  std::int64_t max_length() const override { return std::ssize(kDrafts); }
  DraftOffer offer(std::span<const TokenId> /*tokens*/, Sampler& /*sampler*/) override {
    return {DraftKind::kDflash, max_length()};
  }
  Status draft(std::span<const TokenId> tokens, Sampler& sampler, std::span<TokenId> out) override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (std::size_t j = 0; j < kStreamVocabulary; ++j) rows_[i][j] = std::log(kDrafts[i][j]);
      const auto drawn = sampler.draft(rows_[i], static_cast<Position>(tokens.size() + i));
      out[i] = certain_ ? static_cast<TokenId>(i) : drawn;
    }
    return {};
  }

 private:
  bool certain_;
  std::array<std::array<float, kStreamVocabulary>, std::size(kDrafts)> rows_{};
};

struct Way {
  const char* name;
  bool drafts = true;
  bool certain = false;
  int top_k = 0;
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

constexpr int kCells =
    kStreamVocabulary * kStreamVocabulary * kStreamVocabulary * kStreamVocabulary;

// How often each stream of four tokens came, by its digits to the base of the vocabulary.
std::vector<int> count_streams(const Way& way) {
  const ScriptedDecoder decoder(
      kStreamVocabulary, [](TokenId last, TokenId next) { return std::log(kTarget[last][next]); });
  ScriptedTarget target(decoder, {.context = 64, .max_rows = 8}, 4);
  RowDrafts source(way.certain);
  const std::array<DraftSource*, 1> sources = {&source};
  std::vector<int> counts(kCells);
  const TokenId prompt = 0;
  EXPECT_TRUE(target.timeline().push({&prompt, 1}).has_value());
  for (int seed = 0; seed < kStreams; ++seed) {
    EXPECT_TRUE(target.timeline().rewind(1).has_value());
    target.sampler().set_options(
        {.temperature = 1.0F, .top_k = way.top_k, .seed = static_cast<std::uint64_t>(seed)}, {});
    // One more than is looked at, for a last draft is only made where another token may follow.
    const DecodeRequest request{.max_tokens = kTokens + 1, .draft_length = 3};
    GenerateResult result;
    const std::span<DraftSource* const> used = std::span(sources).first(way.drafts ? 1 : 0);
    const Status done =
        decode(target.timeline(), target.sampler(), used, nullptr, request, {}, {}, result);
    EXPECT_TRUE(done.has_value());
    int cell = 0;
    for (std::size_t i = 0; i < kTokens; ++i) cell = cell * kStreamVocabulary + result.ids[i];
    ++counts[static_cast<std::size_t>(cell)];
  }
  return counts;
}

// The target's probabilities after `last`, of the `top_k` most likely tokens (0: all).
std::array<double, kStreamVocabulary> next_probabilities(int last, int top_k) {
  std::array<double, kStreamVocabulary> p{};
  double total = 0.0;
  for (std::size_t next = 0; next < kStreamVocabulary; ++next) {
    int before = 0;  // tokens that are more likely
    for (const float other : kTarget[last]) before += other > kTarget[last][next] ? 1 : 0;
    p[next] = top_k == 0 || before < top_k ? kTarget[last][next] : 0.0;
    total += p[next];
  }
  for (double& each : p) each /= total;
  return p;
}

std::vector<double> stream_probabilities(int top_k) {
  std::vector<double> all(kCells, 1.0);
  for (int cell = 0; cell < kCells; ++cell) {
    int last = 0;
    for (int unit = kCells / kStreamVocabulary; unit > 0; unit /= kStreamVocabulary) {
      const int next = cell / unit % kStreamVocabulary;
      all[static_cast<std::size_t>(cell)] *=
          next_probabilities(last, top_k)[static_cast<std::size_t>(next)];
      last = next;
    }
  }
  return all;
}

class StreamDistribution : public testing::TestWithParam<Way> {};

// Pearson's statistic against the 99.9 % point of chi square (Wilson and Hilferty). Streams are a
// fixed function of their seeds, so the test passes always or never.
TEST_P(StreamDistribution, IsTheTargets) {
  const std::vector<int> counts = count_streams(GetParam());
  const std::vector<double> expected = stream_probabilities(GetParam().top_k);
  double statistic = 0.0;
  double degrees = -1.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == 0.0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    const double mean = kStreams * expected[i];
    statistic += (counts[i] - mean) * (counts[i] - mean) / mean;
    degrees += 1.0;
  }
  const double spread = 2.0 / (9.0 * degrees);
  EXPECT_LT(statistic, degrees * std::pow(1.0 - spread + 3.09 * std::sqrt(spread), 3.0));
}

INSTANTIATE_TEST_SUITE_P(Ways,
                         StreamDistribution,
                         testing::Values(Way{.name = "plain", .drafts = false},
                                         Way{.name = "drafted"},
                                         Way{.name = "certain_drafts", .certain = true},
                                         Way{.name = "within_the_best_two", .top_k = 2}),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace kakeya::test
