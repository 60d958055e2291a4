// `kakeya eval perplexity`: the numbers of another implementation, windows, intervals.
#include "eval/texts/perplexity_eval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "model/test_model.h"

namespace kakeya::eval {
namespace {

// transformers 5.23 in f32: i.token_logprobs of the golden file. The tolerance is that of the
// goldens' log-probabilities.
TEST(PerplexityEval, IsThatOfAnotherImplementation) {
  const auto engine =
      Engine::open({.model_dir = KAKEYA_DEMO_MODEL, .compute = Compute::kF32, .num_threads = 2})
          .value();
  const auto file = SafetensorsFile::open(KAKEYA_DEMO_MODEL "/golden/rows.safetensors").value();
  for (int i = 0; i < 3; ++i) {
    const std::string name = std::to_string(i);
    const std::vector<TokenId> ids = test::golden_ids(file, name + ".input_ids");
    ASSERT_EQ(ids.front(), engine->bos_id());
    const PromptSet text{.name = "golden", .prompts = {{.id = name, .ids = ids, .answer = {}}}};
    const auto report = evaluate_perplexity(*engine, text, {.window = std::ssize(ids)});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    double nll = 0.0;
    const auto logprobs = test::golden_floats(file, name + ".token_logprobs");
    for (const float logprob : logprobs) nll -= static_cast<double>(logprob);
    ASSERT_EQ(report->tokens(), std::ssize(logprobs));
    EXPECT_NEAR(report->perplexity() / std::exp(nll / static_cast<double>(logprobs.size())), 1.0,
                1e-3)
        << i;
    const auto half = evaluate_perplexity(
        *engine, text, {.window = std::ssize(ids), .counted = Counted::kSecondHalf});
    ASSERT_TRUE(half.has_value()) << half.error().message();
    double later = 0.0;
    const auto counted = std::span(logprobs).subspan(ids.size() / 2);
    for (const float logprob : counted) later -= static_cast<double>(logprob);
    ASSERT_EQ(half->tokens(), std::ssize(counted));
    EXPECT_NEAR(half->perplexity() / std::exp(later / static_cast<double>(counted.size())), 1.0,
                1e-3)
        << i;
  }
}

TEST(PerplexityEval, CutsWindowsThatBeginAlike) {
  const PromptSet texts{
      .name = "",
      .prompts = {{.id = "a", .ids = {2, 10, 11, 12, 13, 14, 15, 16}, .answer = {}},
                  {.id = "b", .ids = {20}, .answer = {}}}};
  const auto windows = cut_windows(texts, 2, 4);
  ASSERT_EQ(windows.size(), 2U);  // of the rest of one token it would take two
  EXPECT_EQ(windows[0].ids, (std::vector<TokenId>{2, 10, 11, 12}));
  EXPECT_EQ(windows[1].ids, (std::vector<TokenId>{2, 13, 14, 15}));
  const auto without = cut_windows(texts, -1, 4);
  ASSERT_EQ(without.size(), 2U);
  EXPECT_EQ(without[0].ids, (std::vector<TokenId>{2, 10, 11, 12}));
  EXPECT_EQ(without[1].ids, (std::vector<TokenId>{13, 14, 15, 16}));
}

// llama.cpp's rule: the rest of a text is left out, and no token is pushed back by the first one.
TEST(PerplexityEval, CutsWholeWindowsAsLlamaPerplexityDoes) {
  const PromptSet texts{
      .name = "",
      .prompts = {{.id = "a", .ids = {2, 10, 11, 12, 13, 14, 15, 16, 17}, .answer = {}}}};
  const auto windows = cut_whole_windows(texts, 2, 4);
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(windows[0].ids, (std::vector<TokenId>{2, 10, 11, 12}));
  EXPECT_EQ(windows[1].ids, (std::vector<TokenId>{2, 14, 15, 16}));
  EXPECT_EQ(cut_whole_windows(texts, -1, 4)[1].ids, (std::vector<TokenId>{13, 14, 15, 16}));
  EXPECT_FALSE(windows_of(texts, 2, 3, Counted::kSecondHalf).has_value());
}

// Windows that are all alike leave nothing open; the interval holds the whole's perplexity.
TEST(PerplexityEval, AnIntervalHoldsWhatWasMeasured) {
  const std::vector<WindowScore> alike(9, {.text = "", .tokens = 10, .nll = 20.0});
  const Interval none = perplexity_interval(alike);
  EXPECT_DOUBLE_EQ(none.low, std::exp(2.0));
  EXPECT_DOUBLE_EQ(none.high, std::exp(2.0));
  PerplexityReport report;
  for (int i = 0; i < 40; ++i)
    report.windows.push_back({.text = "", .tokens = 10, .nll = 10.0 + i});
  const Interval interval = perplexity_interval(report.windows);
  EXPECT_LT(interval.low, report.perplexity());
  EXPECT_GT(interval.high, report.perplexity());
  // The mean of 40 numbers that are even between 1 and 4.9 has a deviation of 0.18.
  EXPECT_NEAR(std::log(interval.high / interval.low), 4 * 0.18, 0.1);
}

TEST(PerplexityEval, SaysWhatGivesNoWindow) {
  const auto engine = Engine::open({.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 1}).value();
  const PromptSet texts{.name = "short", .prompts = {{.id = "a", .ids = {2, 10}, .answer = {}}}};
  EXPECT_EQ(evaluate_perplexity(*engine, texts, {.window = 1}).error().message(),
            "a window must have 2 tokens or more but has 1");
  EXPECT_EQ(evaluate_perplexity(*engine, texts, {.window = 100}).error().message(),
            "short: expected texts of half a window of 100 tokens or more, got none");
}

}  // namespace
}  // namespace kakeya::eval
