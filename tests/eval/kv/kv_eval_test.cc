// Checks what `kakeya eval kv` computes: distributions worked out by hand, the demo model's golden
// perplexities, and that a worse cache is seen while the same one is not.
#include "eval/kv/kv_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "formats/safetensors.h"
#include "model/test_model.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

// Logits are rounded to f32: about 1e-8 of a half.
constexpr double kLogitRounding = 1e-7;

// Probabilities 1/2, 1/4, 1/4; logits have any offset.
std::vector<float> half_and_quarters(float offset = 0.0F) {
  return {offset + std::log(0.5F), offset + std::log(0.25F), offset + std::log(0.25F)};
}

// 1/3 each.
const std::vector<float> kUniform = {7.0F, 7.0F, 7.0F};

TEST(CompareLogits, GivesTheDivergenceOfTwoDistributionsOfThreeTokens) {
  const PositionDifference forward = compare_logits(half_and_quarters(), kUniform, 1);
  // 1/2 ln(3/2) + 2 * 1/4 ln(3/4)
  EXPECT_NEAR(forward.divergence, 0.5 * std::log(1.5) + 0.5 * std::log(0.75), kLogitRounding);
  EXPECT_NEAR(forward.reference_nll, std::log(4.0), kLogitRounding);
  EXPECT_NEAR(forward.nll, std::log(3.0), kLogitRounding);
  EXPECT_TRUE(forward.same_top) << "of equal logits the lowest id, which is 0 in both";
  const PositionDifference backward = compare_logits(kUniform, half_and_quarters(), 0);
  // 1/3 ln(2/3) + 2 * 1/3 ln(4/3): which of the two is the reference matters.
  EXPECT_NEAR(backward.divergence, std::log(2.0 / 3.0) / 3.0 + 2.0 * std::log(4.0 / 3.0) / 3.0,
              kLogitRounding);
  EXPECT_NEAR(backward.reference_nll, std::log(3.0), kLogitRounding);
  EXPECT_NEAR(backward.nll, std::log(2.0), kLogitRounding);
}

TEST(CompareLogits, IsExactlyZeroForEqualLogitsAndAboutThatForAnotherOffset) {
  const std::vector<float> logits = {3.7F, -29.1F, 12.25F, 0.1F, -7.3F};
  const PositionDifference same = compare_logits(logits, logits, 3);
  EXPECT_EQ(same.divergence, 0.0);
  EXPECT_EQ(same.nll, same.reference_nll);
  // An offset changes the logits and not the distribution; 8 f32 digits of 30 are left.
  EXPECT_NEAR(compare_logits(half_and_quarters(), half_and_quarters(30.0F), 0).divergence, 0.0,
              1e-5);
  EXPECT_GE(compare_logits(half_and_quarters(), half_and_quarters(30.0F), 0).divergence, 0.0);
}

TEST(CompareLogits, HoldsForLogitsWhoseExponentialsOverflow) {
  const std::vector<float> high = {1000.0F, 0.0F};
  const std::vector<float> low = {-1000.0F, 0.0F};
  const PositionDifference difference = compare_logits(high, low, 1);
  EXPECT_EQ(difference.divergence, 1000.0);
  EXPECT_EQ(difference.reference_nll, 1000.0);
  EXPECT_EQ(difference.nll, 0.0);
  EXPECT_FALSE(difference.same_top);
  EXPECT_TRUE(difference.finite());
}

TEST(CompareLogits, SaysWhenALogitIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity}) {
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<float> logits = half_and_quarters();
      logits[place] = bad;
      EXPECT_FALSE(compare_logits(kUniform, logits, 2).finite()) << bad << " at " << place;
      EXPECT_FALSE(compare_logits(logits, kUniform, 2).finite()) << bad << " at " << place;
    }
  }
}

TEST(DistributionStatistics, AddsUpPositions) {
  DistributionStatistics statistics;
  statistics.add(compare_logits(half_and_quarters(), kUniform, 0));
  statistics.add(compare_logits(half_and_quarters(), half_and_quarters(), 1));
  const std::vector<float> other_top = {0.0F, 1.0F, 0.0F};
  statistics.add(compare_logits(kUniform, other_top, 1));
  statistics.add(compare_logits(kUniform, kUniform, 2));
  EXPECT_EQ(statistics.positions(), 4);
  EXPECT_EQ(statistics.top_agreement(), 0.75);
  // The third: ln((2 + e) / 3) - 1/3.
  const double third = std::log((2.0 + std::exp(1.0)) / 3.0) - 1.0 / 3.0;
  const double first = 0.5 * std::log(1.5) + 0.5 * std::log(0.75);
  EXPECT_NEAR(statistics.mean_divergence(), (first + third) / 4.0, kLogitRounding);
  EXPECT_NEAR(statistics.divergence_percentile(75.0), first, kLogitRounding);
  EXPECT_NEAR(statistics.divergence_percentile(99.0), third, kLogitRounding);
  // Next tokens had 1/2, 1/4, 1/3, 1/3 and 1/3, 1/4, e / (2 + e), 1/3.
  EXPECT_NEAR(statistics.reference_perplexity(), std::pow(2.0 * 4.0 * 3.0 * 3.0, 0.25), 1e-6);
  EXPECT_NEAR(statistics.perplexity(),
              std::pow(3.0 * 4.0 * (2.0 + std::exp(1.0)) / std::exp(1.0) * 3.0, 0.25), 1e-6);
}

TEST(DistributionStatistics, TakesPercentilesByNearestRank) {
  DistributionStatistics statistics;
  // 1 to 200 in another order: 77 and 200 have no common factor.
  for (int i = 0; i < 200; ++i) statistics.add({.divergence = 1.0 + (i * 77) % 200});
  EXPECT_EQ(statistics.divergence_percentile(99.0), 198.0);
  EXPECT_EQ(statistics.divergence_percentile(50.0), 100.0);
  EXPECT_EQ(statistics.divergence_percentile(100.0), 200.0);
  EXPECT_EQ(statistics.divergence_percentile(0.1), 1.0);
  DistributionStatistics hundred;
  for (int i = 1; i <= 100; ++i) hundred.add({.divergence = static_cast<double>(i)});
  EXPECT_EQ(hundred.divergence_percentile(99.0), 99.0);
  DistributionStatistics ten;
  for (int i = 1; i <= 10; ++i) ten.add({.divergence = static_cast<double>(i)});
  EXPECT_EQ(ten.divergence_percentile(99.0), 10.0);
}

TEST(DistributionStatistics, IsDefinedWithoutAnyPosition) {
  const DistributionStatistics statistics;
  EXPECT_EQ(statistics.positions(), 0);
  EXPECT_EQ(statistics.mean_divergence(), 0.0);
  EXPECT_EQ(statistics.divergence_percentile(99.0), 0.0);
  EXPECT_EQ(statistics.top_agreement(), 0.0);
  EXPECT_EQ(statistics.perplexity(), 0.0);
}

TEST(KvModes, AreUniqueAndTheirControlsExist) {
  std::set<std::string> names;
  for (const KvMode& mode : kv_modes()) EXPECT_TRUE(names.insert(mode.name).second) << mode.name;
  for (const KvMode& mode : kv_modes()) {
    if (!mode.control.empty()) {
      EXPECT_TRUE(names.contains(mode.control)) << mode.name;
    }
    EXPECT_NE(mode.name, mode.control);
  }
  EXPECT_TRUE(names.contains(std::string(kExactMode)));
}

TEST(KvModes, AreChosenInTheOrderOfTheTable) {
  const auto chosen = choose_kv_modes({"bf16", "exact"});
  ASSERT_OK(chosen);
  ASSERT_EQ(chosen->size(), 2U);
  EXPECT_EQ((*chosen)[0].name, "exact");
  EXPECT_EQ((*chosen)[1].name, "bf16");
  const std::vector<KvMode> all = choose_kv_modes({}).value();
  EXPECT_EQ(std::ssize(all), std::ssize(kv_modes()) - 1);
  EXPECT_TRUE(std::ranges::none_of(all, &KvMode::slow));
  EXPECT_EQ(choose_kv_modes({"recompute"})->back().name, "recompute");
  EXPECT_THAT(choose_kv_modes({"f64"}).error().message(), HasSubstr("no mode 'f64'"));
}

TEST(KvModes, RemovedOnesAreKnownToReportsAlone) {
  for (const char* name : {"int4", "int4r", "d4", "int4r-full", "restore-token", "identity"}) {
    EXPECT_THAT(choose_kv_modes({name}).error().message(), HasSubstr(" was removed")) << name;
    EXPECT_TRUE(choose_kv_modes({name}, former_kv_modes()).has_value()) << name;
  }
  EXPECT_EQ(choose_kv_modes({"e8"})->size(), 1U);
  EXPECT_EQ(choose_kv_modes({"e8"}, former_kv_modes())->size(), 2U);  // beside its control
}

PromptSet set_of(std::vector<TokenId> ids) {
  return {.name = "set", .prompts = {{.id = "text", .ids = std::move(ids), .answer = {}}}};
}

TEST(CutTexts, KeepsTheBeginningsOfThoseThatAreLongEnough) {
  PromptSet texts = set_of({5, 6, 7});
  texts.prompts.push_back({.id = "short", .ids = {8, 9}, .answer = {}});
  const auto cut = cut_texts(texts, 3);
  ASSERT_OK(cut);
  ASSERT_EQ(cut->prompts.size(), 1U);
  EXPECT_EQ(cut->prompts[0].id, "text");
  const auto both = cut_texts(texts, 2);
  ASSERT_EQ(both->prompts.size(), 2U);
  EXPECT_EQ(both->prompts[0].ids, (std::vector<TokenId>{5, 6}));
  const auto none = cut_texts(texts, 4);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message(), "set: expected texts of 4 tokens, the longest has 3");
}

class KvEval : public testing::Test {
 protected:
  static std::unique_ptr<EngineImpl> open(Compute compute) {
    auto engine =
        EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL, .compute = compute, .num_threads = 2});
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return std::move(engine).value();
  }

  static std::vector<TokenId> golden_text(int index) {
    const auto file =
        SafetensorsFile::open(std::string(KAKEYA_DEMO_MODEL) + "/golden/rows.safetensors").value();
    return test::golden_ids(file, std::to_string(index) + ".input_ids");
  }

  // The golden text of 300 tokens.
  static KvTextReport run(EngineImpl& engine, const KvEvalOptions& options = {}) {
    const auto modes = choose_kv_modes({"exact", "f32", "bf16"}).value();
    const PromptSet texts = set_of(golden_text(1));
    auto report = evaluate_kv_texts(
        engine, modes, texts, static_cast<std::int64_t>(texts.prompts[0].ids.size()), options);
    EXPECT_TRUE(report.has_value()) << report.error().message();
    return std::move(report).value();
  }

  static const KvTextResult& of(const KvTextReport& report, const std::string& mode) {
    for (const KvTextResult& result : report.modes) {
      if (result.mode == mode) return result;
    }
    ADD_FAILURE() << "no mode " << mode;
    return report.modes.front();
  }
};

// transformers 5.23 in f32: i.token_logprobs of the golden file; models/demo/README.md has the
// means. The tolerance is that of the goldens' log-probabilities.
TEST_F(KvEval, GivesTheGoldenPerplexitiesOfThreeTexts) {
  constexpr double kTolerance = 1e-3;
  const double published[] = {4.2856, 3.9823, 3.5608};
  const auto engine = open(Compute::kF32);
  const auto file =
      SafetensorsFile::open(std::string(KAKEYA_DEMO_MODEL) + "/golden/rows.safetensors").value();
  const std::vector<KvMode> modes = choose_kv_modes({"exact"}).value();
  for (int i = 0; i < 3; ++i) {
    const PromptSet texts = set_of(golden_text(i));
    const auto length = static_cast<std::int64_t>(texts.prompts[0].ids.size());
    const auto report = evaluate_kv_texts(*engine, modes, texts, length, {});
    ASSERT_OK(report);
    const auto logprobs = test::golden_floats(file, std::to_string(i) + ".token_logprobs");
    double golden = 0.0;
    for (const float logprob : logprobs) golden -= logprob / static_cast<double>(logprobs.size());
    const DistributionStatistics& statistics = report->modes[0].statistics;
    EXPECT_EQ(statistics.positions(), length - 1);
    EXPECT_NEAR(statistics.reference_nll(), golden, kTolerance) << "text " << i;
    EXPECT_NEAR(statistics.reference_nll(), published[i], kTolerance) << "text " << i;
    EXPECT_EQ(statistics.nll(), statistics.reference_nll());
  }
}

TEST_F(KvEval, FindsNoDifferenceOfTheSameCacheAndALittleOfARoundedOne) {
  const auto engine = open(Compute::kF32);
  std::int64_t last = 0;
  KvEvalOptions options;
  options.on_progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 4 * 300);  // the reference and three modes
    last = done;
  };
  const KvTextReport report = run(*engine, options);
  EXPECT_EQ(last, 4 * 300);
  EXPECT_EQ(report.length, 300);
  EXPECT_EQ(report.texts, 1);
  for (const char* same : {"exact", "f32"}) {
    const DistributionStatistics& statistics = of(report, same).statistics;
    EXPECT_EQ(statistics.positions(), 299);
    EXPECT_EQ(statistics.divergence_percentile(100.0), 0.0) << same;
    EXPECT_EQ(statistics.top_agreement(), 1.0) << same;
    EXPECT_EQ(statistics.perplexity(), statistics.reference_perplexity()) << same;
  }
  // Rounding keys and values to 8 bits of mantissa is seen, and is little.
  const DistributionStatistics& rounded = of(report, "bf16").statistics;
  EXPECT_GT(rounded.mean_divergence(), 0.0);
  EXPECT_LT(rounded.mean_divergence(), 1e-3);
  EXPECT_GE(rounded.divergence_percentile(99.0), rounded.mean_divergence());
  EXPECT_GT(rounded.top_agreement(), 0.97);
  EXPECT_NE(rounded.perplexity(), rounded.reference_perplexity());
}

TEST_F(KvEval, ComparesWithTheComputeModesOwnCache) {
  const auto engine = open(Compute::kFast);
  const KvTextReport report = run(*engine);
  EXPECT_EQ(of(report, "exact").statistics.divergence_percentile(100.0), 0.0);
  EXPECT_EQ(of(report, "bf16").statistics.divergence_percentile(100.0), 0.0);
  EXPECT_GT(of(report, "f32").statistics.mean_divergence(), 0.0);
}

TEST_F(KvEval, DoesNotDependOnTheChunkForModesThatForgetNothing) {
  const auto engine = open(Compute::kF32);
  const KvTextReport one = run(*engine, {.chunk = 37});
  const KvTextReport other = run(*engine, {.chunk = 300});
  for (std::size_t i = 0; i < one.modes.size(); ++i) {
    EXPECT_EQ(one.modes[i].statistics.mean_divergence(),
              other.modes[i].statistics.mean_divergence());
    EXPECT_EQ(one.modes[i].statistics.nll(), other.modes[i].statistics.nll());
  }
}

// The demo model has two full layers of 2 heads of 64, of which one vector is stored for key and
// value, and four sliding ones of 4 heads of 32 with a window of 128, of which both are.
TEST_F(KvEval, CountsTheBytesOfTheCache) {
  const auto engine = open(Compute::kF32);
  const KvTextReport report = run(*engine);
  constexpr std::uint64_t kFullRow = 2 * 2 * 64;
  constexpr std::uint64_t kSlidingRow = 4 * 2 * 4 * 32;
  const KvTextResult& f32 = of(report, "f32");
  EXPECT_EQ(f32.bytes.full, 300 * kFullRow * 4);
  // Rings of 128 + 64 - 1 slots, in three blocks of 64.
  EXPECT_EQ(f32.bytes.sliding, 3 * 64 * kSlidingRow * 4);
  // Rings are full long before 2,048 tokens, so that only the full layers grow.
  EXPECT_EQ(f32.bytes_per_token, kFullRow * 4);
  const KvTextResult& bf16 = of(report, "bf16");
  EXPECT_EQ(bf16.bytes.total() * 2, f32.bytes.total());
  EXPECT_EQ(bf16.bytes_per_token, kFullRow * 2);
}

TEST_F(KvEval, FindsNeedlesWithEveryModeAndMissesAnswersThatAreNotThere) {
  const auto engine = open(Compute::kF32);
  const std::vector<PromptText> prompts = {
      {.id = "there",
       .prompt = "The secret code for the red door is 4821. My brother went to the "
                 "market and bought bread.\n\nWhat is the secret code for the red "
                 "door?",
       .answer = "4821"},
      // It stands within another number only.
      {.id = "within",
       .prompt = "The secret code for the red door is 4821. My brother went to the "
                 "market and bought bread.\n\nWhat is the secret code for the red "
                 "door?",
       .answer = "482"},
      {.id = "never", .prompt = "Count from 3 to 6.", .answer = "no such words"}};
  const auto set = encode_prompts(*engine, "needle", prompts, PromptForm::kChat).value();
  const std::vector<KvMode> modes = choose_kv_modes({"exact", "f32", "bf16"}).value();
  const auto report = evaluate_kv_needles(*engine, modes, set, 512, {});
  ASSERT_OK(report);
  EXPECT_EQ(report->prompts, 3);
  EXPECT_EQ(report->reference_found, 1);
  ASSERT_EQ(report->modes.size(), 3U);
  for (const KvNeedleResult& mode : report->modes) EXPECT_EQ(mode.found, 1) << mode.mode;
  EXPECT_EQ(report->modes[0].same_output, 3);
}

TEST_F(KvEval, RefusesWhatItCannotRunWithOneLine) {
  const auto engine = open(Compute::kFast);
  const std::vector<KvMode> modes = choose_kv_modes({"exact"}).value();
  const auto message = [&](const PromptSet& texts, std::int64_t length,
                           const KvEvalOptions& options) {
    const auto report = evaluate_kv_texts(*engine, modes, texts, length, options);
    return report ? "accepted" : report.error().message();
  };
  EXPECT_THAT(message(set_of({2, 4096}), 2, {}), HasSubstr("set text: token id must be 0 to 4095"));
  EXPECT_THAT(message(set_of({2}), 1, {}), HasSubstr("length must be at least 2"));
  EXPECT_THAT(message(set_of({2, 3}), 3, {}), HasSubstr("set text: expected 3 tokens, got 2"));
  EXPECT_THAT(message(set_of({2, 3}), 2, {.chunk = 0}), HasSubstr("chunk must be at least 1"));
}

TEST_F(KvEval, LeavesTheSpellingOfSpecialTokensInPlainTexts) {
  const auto engine = open(Compute::kFast);
  const std::vector<PromptText> text = {{.id = "a", .prompt = "one <unk> two", .answer = {}}};
  const auto plain = encode_prompts(*engine, "a", text, PromptForm::kPlain).value();
  const auto raw = encode_prompts(*engine, "a", text, PromptForm::kRaw).value();
  EXPECT_EQ(plain.prompts[0].ids.front(), engine->bos_id());
  EXPECT_GT(plain.prompts[0].ids.size(), raw.prompts[0].ids.size());
  EXPECT_THAT(plain.prompts[0].ids, testing::Not(testing::Contains(3)));
}

// Every published text is long enough for every default length, and each length has its needles.
TEST_F(KvEval, HasTextsAndNeedlesOfEveryLength) {
  const auto engine = open(Compute::kFast);
  const auto read = [](const std::string& name) {
    std::ifstream file(std::string(KAKEYA_SOURCE_DIR) + "/eval/data/" + name, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return parse_prompts(text, name).value();
  };
  for (const char* name : {"wikitext2.jsonl", "code.jsonl", "prose.jsonl"}) {
    const auto set = encode_prompts(*engine, name, read(name), PromptForm::kPlain).value();
    const auto cut = cut_texts(set, 4096);
    ASSERT_OK(cut);
    EXPECT_EQ(cut->prompts.size(), 4U) << name;
  }
  std::map<std::int64_t, int> counts;
  for (const PromptText& prompt : read("needle_long.jsonl")) {
    ++counts[prompt.length];
    EXPECT_THAT(prompt.prompt, HasSubstr(prompt.answer));
    const auto set = encode_prompts(*engine, "n", {&prompt, 1}, PromptForm::kChat).value();
    // Lengths are made from a mean number of characters of a token.
    EXPECT_NEAR(static_cast<double>(set.prompts[0].ids.size()), static_cast<double>(prompt.length),
                0.15 * static_cast<double>(prompt.length))
        << prompt.id;
  }
  EXPECT_EQ(counts, (std::map<std::int64_t, int>{{512, 8}, {1024, 8}, {2048, 8}, {4096, 8}}));
}

}  // namespace
}  // namespace kakeya::eval
