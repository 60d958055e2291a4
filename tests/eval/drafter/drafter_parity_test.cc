// The demo model's drafter on two backends.
#include "eval/drafter/drafter_parity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "eval/report/made_reports.h"
#include "model/test_model.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

std::unique_ptr<EngineImpl> open_on(const std::string& backend,
                                    Compute compute,
                                    const std::string& draft = "auto") {
  EngineOptions options = {
      .model_dir = KAKEYA_DEMO_MODEL, .backend = backend, .compute = compute, .num_threads = 1};
  options.draft.source = draft;
  return EngineImpl::open(options).value();
}

EvalPrompt prompt() {
  return {.id = "p", .ids = test::random_ids(20, 3), .answer = {}};
}

TEST(DrafterParity, PlainLoopsAndUnitsProposeTheSame) {
  const auto reference = open_on("ref", Compute::kF32);
  const auto cpu = open_on("cpu", Compute::kF32);
  const DrafterParityOptions options{.blocks = 2, .block_tokens = 6};
  const auto itself = compare_drafters(*cpu, *cpu, prompt(), options).value();
  ASSERT_EQ(itself.size(), 2U);
  EXPECT_EQ(itself[1].context, 26);
  for (const ParityBlock& block : itself) {
    EXPECT_EQ(block.difference, 0.0);
    EXPECT_EQ(block.reference.size(), 5U);
    EXPECT_EQ(block.equal(), 5);
  }
  const auto blocks = compare_drafters(*reference, *cpu, prompt(), options).value();
  EXPECT_EQ(parity_totals(blocks).agreement(), 1.0);
  for (const ParityBlock& block : blocks) {
    // Sums of some hundred f32 products in another order.
    EXPECT_LT(block.difference, 1e-4);
    // Backends continue a prompt alike, so features are the same.
    EXPECT_EQ(block.reference, itself[static_cast<std::size_t>(&block - blocks.data())].reference);
  }
  const auto fast = open_on("cpu", Compute::kFast);
  const auto rounded = compare_drafters(*cpu, *fast, prompt(), options).value();
  EXPECT_GT(parity_totals(rounded).largest_difference, 1e-4);
}

TEST(DrafterParity, RefusesWhatCannotBeCompared) {
  const auto cpu = open_on("cpu", Compute::kF32);
  const auto none = open_on("cpu", Compute::kF32, "none");
  EXPECT_EQ(compare_drafters(*cpu, *none, prompt(), {}).error().code(),
            StatusCode::kFailedPrecondition);
  const auto refusal = [&](const EvalPrompt& prompt, const DrafterParityOptions& options) {
    return compare_drafters(*cpu, *cpu, prompt, options).error().message();
  };
  EXPECT_THAT(refusal(prompt(), {.block_tokens = 64}), HasSubstr("a block has at most"));
  EXPECT_THAT(refusal({.id = "empty", .ids = {}, .answer = {}}, {}), HasSubstr("empty: "));
  EXPECT_THAT(refusal(prompt(), {.blocks = std::int64_t{1} << 40}), HasSubstr("p: "));
}

TEST(DrafterParity, AddsUp) {
  const std::vector<ParityBlock> blocks = {
      {.reference = {1, 2, 3}, .drafted = {1, 2, 4}, .difference = 0.5},
      {.reference = {1, 2, 3}, .drafted = {3, 2, 1}, .difference = 0.25}};
  const ParityTotals totals = parity_totals(blocks);
  EXPECT_EQ(totals.blocks, 2);
  EXPECT_EQ(totals.tokens, 6);
  EXPECT_EQ(totals.equal, 3);
  EXPECT_EQ(totals.agreement(), 0.5);
  EXPECT_EQ(totals.largest_difference, 0.5);
  EXPECT_EQ(parity_totals({}).agreement(), 0.0);
}

TEST(DrafterParityRules, EachRejectsADoctoredReport) {
  const std::vector<DoctoredReport> doctored = {
      {"fields", [](Report& r) { r["reference"].erase("backend"); }},
      {"fields", [](Report& r) { r["rows"][2]["drafted"][1] = "2"; }},
      {"samples",
       [](Report& r) {
         while (r["rows"].size() > 4) r["rows"].erase(0);
       }},
      {"counts", [](Report& r) { r["rows"][2]["drafted"].erase(1); }},
      {"counts", [](Report& r) { r["rows"][2]["drafted"][1] = 7; }},
      {"counts", [](Report& r) { r["totals"]["equal"] = 24; }},
      {"counts", [](Report& r) { r["options"]["block_tokens"] = 6; }},
      {"headline", [](Report& r) { r["totals"]["agreement"] = 1.0; }},
      {"headline", [](Report& r) { r["totals"]["largest_difference"] = 0.1; }},
      {"exact-is-exact", [](Report& r) { r["rows"][0]["difference"] = 0.0; }},
  };
  expect_rejected(made_parity_report(kept_report("niah")), doctored);
}

}  // namespace
}  // namespace kakeya::eval
