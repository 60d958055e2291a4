// `kakeya eval kl`: rows of windows, what they add up to, intervals.
#include "eval/texts/divergence_eval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "model/test_model.h"

namespace kakeya::eval {
namespace {

std::unique_ptr<EngineImpl> open_demo(Compute compute, KvType kv = KvType::kAuto) {
  EngineOptions options{.model_dir = KAKEYA_DEMO_MODEL,
                        .compute = compute,
                        .num_threads = 2,
                        .draft = {.source = "none"}};
  options.session.kv_full = kv;
  options.session.kv_sliding = kv;
  return EngineImpl::open(options).value();
}

PromptSet golden_texts() {
  const auto file = SafetensorsFile::open(KAKEYA_DEMO_MODEL "/golden/rows.safetensors").value();
  PromptSet texts{.name = "golden", .prompts = {}};
  for (const char* name : {"0", "1", "2"}) {
    texts.prompts.push_back({.id = name,
                             .ids = test::golden_ids(file, std::string(name) + ".input_ids"),
                             .answer = {}});
  }
  return texts;
}

TEST(DivergenceEval, NothingDiffersFromItself) {
  const auto a = open_demo(Compute::kFast);
  const auto b = open_demo(Compute::kFast);
  const auto report = evaluate_divergence(*a, *b, golden_texts(), 16, {}).value();
  ASSERT_GE(report.windows.size(), 3U);
  EXPECT_EQ(report.most, 0.0);
  const DivergenceTotals totals = divergence_totals(report.windows);
  EXPECT_EQ(totals.mean, 0.0);
  EXPECT_EQ(totals.interval.high, 0.0);
  EXPECT_EQ(totals.top_agreement, 1.0);
  EXPECT_EQ(totals.perplexity, totals.reference_perplexity);
}

// Coarser keys and values are further away; the reference's perplexity is transformers' own.
TEST(DivergenceEval, CoarserKeysAndValuesAreFurtherAway) {
  const auto exact = open_demo(Compute::kF32);
  PromptSet text = golden_texts();
  text.prompts.resize(1);
  const std::int64_t length = std::ssize(text.prompts[0].ids);
  const auto file = SafetensorsFile::open(KAKEYA_DEMO_MODEL "/golden/rows.safetensors").value();
  double nll = 0.0;
  const auto logprobs = test::golden_floats(file, "0.token_logprobs");
  for (const float logprob : logprobs) nll -= static_cast<double>(logprob);
  double last = 0.0;
  for (const KvType kv : {KvType::kBf16, KvType::kInt8, KvType::kE8}) {
    const auto other = open_demo(Compute::kF32, kv);
    const auto report = evaluate_divergence(*exact, *other, text, length, {}).value();
    const DivergenceTotals totals = divergence_totals(report.windows);
    EXPECT_EQ(totals.tokens, length - 1);
    EXPECT_GT(totals.mean, last);
    EXPECT_LE(report.median, report.p99);
    EXPECT_LE(report.p99, report.most);
    // The tolerance of the goldens' log-probabilities.
    EXPECT_NEAR(totals.reference_perplexity / std::exp(nll / static_cast<double>(logprobs.size())),
                1.0, 1e-3);
    last = totals.mean;
  }
}

TEST(DivergenceEval, AddsWindowsUp) {
  const std::vector<WindowDivergence> windows = {{.text = "a",
                                                  .tokens = 3,
                                                  .divergence = 0.3,
                                                  .reference_nll = 3.0,
                                                  .nll = 6.0,
                                                  .same_top = 3},
                                                 {.text = "b",
                                                  .tokens = 1,
                                                  .divergence = 0.5,
                                                  .reference_nll = 1.0,
                                                  .nll = 2.0,
                                                  .same_top = 0}};
  const DivergenceTotals totals = divergence_totals(windows);
  EXPECT_EQ(totals.tokens, 4);
  EXPECT_DOUBLE_EQ(totals.mean, 0.2);
  EXPECT_DOUBLE_EQ(totals.top_agreement, 0.75);
  EXPECT_DOUBLE_EQ(totals.reference_perplexity, std::exp(1.0));
  EXPECT_DOUBLE_EQ(totals.perplexity, std::exp(2.0));
  // Each of two windows is drawn twice now and then.
  EXPECT_DOUBLE_EQ(totals.interval.low, 0.1);
  EXPECT_DOUBLE_EQ(totals.interval.high, 0.5);
}

TEST(DivergenceEval, SaysWhatGivesNoWindow) {
  const auto demo = open_demo(Compute::kFast);
  EXPECT_EQ(evaluate_divergence(*demo, *demo, golden_texts(), 1, {}).error().message(),
            "a window must have 2 tokens or more but has 1");
}

}  // namespace
}  // namespace kakeya::eval
