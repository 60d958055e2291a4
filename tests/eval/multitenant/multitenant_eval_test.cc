// Requests that share passes: an id that was altered is found, the index of fairness is the one
// worked out by hand, and the demo model gives everybody the answers that they get alone.
#include "eval/multitenant/multitenant_eval.h"

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

std::string hash_of(std::span<const TokenId> ids) {
  std::string text;
  for (const TokenId id : ids) text += std::to_string(id) + " ";
  return text;
}

TEST(FirstDifference, IsTheFirstIndexThatDiffers) {
  const std::vector<TokenId> ids = {5, 6, 7};
  const auto at = [&](const std::vector<TokenId>& other) { return first_difference(ids, other); };
  EXPECT_EQ(at({5, 6, 7}), std::nullopt);
  EXPECT_EQ(at({5, 9, 7}), 1);
  EXPECT_EQ(at({5, 6, 8}), 2);
  EXPECT_EQ(at({5, 6}), 2) << "one ends before the other";
  EXPECT_EQ(at({5, 6, 7, 1}), 3);
  EXPECT_EQ(at({}), 0);
}

// (1 + 2 + 3)^2 / (3 (1 + 4 + 9)) = 36 / 42.
TEST(JainIndex, IsWhatTheFormulaGivesByHand) {
  EXPECT_DOUBLE_EQ(jain_index(std::vector<double>{1.0, 2.0, 3.0}), 36.0 / 42.0);
  EXPECT_EQ(jain_index(std::vector<double>{7.0, 7.0, 7.0, 7.0}), 1.0);
  EXPECT_EQ(jain_index(std::vector<double>{0.0, 8.0, 0.0, 0.0}), 0.25);
  EXPECT_EQ(jain_index(std::vector<double>{0.0, 0.0}), 0.0);
}

TEST(CompareTenant, FindsAnAlteredIdAndKeepsIt) {
  const TenantOptions options{.hash = hash_of};
  const TenantAnswer answer{.ids = {5, 6, 7, 8}};
  TenantAnswer altered = answer;
  altered.ids[2] = 70;
  TenantRequest request;
  compare_tenant(request, answer, answer, options);
  EXPECT_TRUE(request.equal());
  EXPECT_EQ(request.sha256, request.solo_sha256);
  compare_tenant(request, altered, answer, options);
  EXPECT_FALSE(request.equal());
  EXPECT_EQ(request.differs_at, 2);
  EXPECT_EQ(request.sha256, "5 6 70 8 ");
  EXPECT_EQ(request.solo_sha256, "5 6 7 8 ");
  compare_tenant(request, answer, answer, options);
  EXPECT_EQ(request.differs_at, 2) << "whatever later pairs give";
  EXPECT_EQ(request.sha256, "5 6 70 8 ");
}

TEST(CompareTenant, AnErrorOfEitherSideIsKept) {
  const TenantOptions options{.hash = hash_of};
  const TenantAnswer answer{.ids = {5}};
  for (const bool alone : {true, false}) {
    const TenantAnswer failed{.error = "no memory"};
    TenantRequest request;
    compare_tenant(request, alone ? answer : failed, alone ? failed : answer, options);
    compare_tenant(request, answer, answer, options);
    EXPECT_EQ(request.error, "no memory");
    EXPECT_FALSE(request.equal());
  }
}

TEST(TenantArmReport, SumsAreThoseOfItsRequests) {
  TenantArmReport arm;
  arm.requests.resize(2);
  arm.requests[0].together = {
      .tokens = 4, .first_token_seconds = 0.5, .longest_gap_seconds = 0.25, .seconds = 2.0};
  arm.requests[1].together = {
      .tokens = 2, .first_token_seconds = 0.25, .longest_gap_seconds = 0.75, .seconds = 0.5};
  arm.solo_seconds = {3.0, 6.0, 4.0};
  arm.together_seconds = {2.0, 1.0, 2.0};
  arm.alone_bytes = 100;
  arm.together_bytes = 150;
  EXPECT_EQ(arm.tokens(), 6);
  EXPECT_EQ(arm.solo_tokens_per_second(), 1.5);
  EXPECT_EQ(arm.together_tokens_per_second(), 3.0);
  EXPECT_EQ(arm.throughput_ratio(), 2.0) << "of 1.5, 6 and 2";
  EXPECT_EQ(arm.longest_wait_seconds(), 0.5);
  EXPECT_EQ(arm.longest_gap_seconds(), 0.75);
  EXPECT_EQ(arm.bytes_ratio(), 0.75);
  EXPECT_DOUBLE_EQ(arm.fairness(), 36.0 / 40.0);  // of 2 and 4 tokens a second
}

class MultitenantEval : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = EngineImpl::open(
                  {.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2, .draft = {.source = "auto"}})
                  .value();
    for (int i = 0; i < 5; ++i) {
      EvalPrompt prompt{.id = std::to_string(i), .ids = {2}, .answer = ""};
      for (int t = 0; t < 3 + 11 * i; ++t) prompt.ids.push_back(100 + 37 * i + t);
      prompts_.push_back(std::move(prompt));
    }
    options_.max_tokens = 20;
    options_.pairs = 2;
    options_.session.context = 80;
    options_.sampling = {.temperature = 1.0F, .seed = 3};
    options_.hash = hash_of;
  }

  std::vector<TenantArmReport> run() {
    return run_tenants(*engine_, prompts_, tenant_arms(true), options_).value();
  }

  std::unique_ptr<EngineImpl> engine_;
  std::vector<EvalPrompt> prompts_;
  TenantOptions options_;
};

TEST_F(MultitenantEval, EverybodyGetsTheAnswerOfASessionAlone) {
  const std::vector<TenantArmReport> arms = run();
  ASSERT_EQ(arms.size(), 5U);
  for (const TenantArmReport& arm : arms) {
    EXPECT_TRUE(arm.equal()) << arm.arm.name;
    ASSERT_EQ(arm.requests.size(), 5U);
    EXPECT_EQ(arm.solo_seconds.size(), 2U);
    EXPECT_EQ(arm.together_seconds.size(), 2U);
    std::int64_t drafted = 0;
    for (const TenantRequest& request : arm.requests) {
      EXPECT_EQ(request.sha256, request.solo_sha256);
      const TenantAnswer& answer = request.together;
      EXPECT_GT(answer.first_token_seconds, 0.0);
      EXPECT_GE(answer.seconds, answer.first_token_seconds + answer.longest_gap_seconds);
      drafted += answer.drafted;
      if (!arm.arm.equal_lengths) continue;
      EXPECT_EQ(request.prompt_tokens, 4);
      EXPECT_EQ(std::ssize(answer.ids), 20);
    }
    EXPECT_TRUE(arm.arm.drafts || drafted == 0) << arm.arm.name;
    EXPECT_GT(arm.alone_bytes, 0U);
    // A session takes what it takes, in whatever company.
    EXPECT_EQ(arm.together_bytes, 5 * arm.alone_bytes) << arm.arm.name;
  }
  // Drafts change nothing; a seed does.
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(arms[0].requests[i].sha256, arms[2].requests[i].sha256);
    EXPECT_EQ(arms[1].requests[i].sha256, arms[3].requests[i].sha256);
  }
  EXPECT_NE(arms[0].requests[0].sha256, arms[1].requests[0].sha256);
  EXPECT_GT(arms[4].fairness(), 0.2);
  EXPECT_LE(arms[4].fairness(), 1.0);
}

// With one seed for all, requests of one prompt would have one answer, and a mix-up of two would
// not be seen.
TEST_F(MultitenantEval, RequestsOfOnePromptAreSampledApart) {
  prompts_ = {prompts_[2], prompts_[2], prompts_[2]};
  options_.pairs = 1;
  const std::vector<TenantArmReport> arms = run();
  ASSERT_EQ(arms.size(), 5U);
  for (const TenantArmReport& arm : arms) {
    const std::vector<TenantRequest>& requests = arm.requests;
    EXPECT_EQ(requests[0].sha256 == requests[1].sha256, !arm.arm.sampled) << arm.arm.name;
    EXPECT_EQ(requests[1].sha256 == requests[2].sha256, !arm.arm.sampled) << arm.arm.name;
  }
}

TEST_F(MultitenantEval, ARequestThatFailsIsARow) {
  prompts_[3].ids[2] = 1 << 20;
  const std::vector<TenantArmReport> arms = run();
  for (const TenantArmReport& arm : arms) {
    for (std::size_t i = 0; i < 5; ++i) {
      const TenantRequest& request = arm.requests[i];
      EXPECT_EQ(request.equal(), i != 3) << arm.arm.name;
      EXPECT_THAT(request.error, i == 3 ? HasSubstr("token id") : HasSubstr(""));
    }
  }
  Report report;
  write_fields(report, TenantsReport{.arms = arms});
  EXPECT_EQ(report["outputs_equal"], false);
  EXPECT_TRUE(report["arms"][0]["requests"][3].contains("error"));
  EXPECT_FALSE(report["arms"][0]["requests"][3].contains("sha256"));
}

TEST_F(MultitenantEval, RefusesOptionsOutOfRange) {
  options_.sampling.top_p = 0.0F;
  EXPECT_FALSE(run_tenants(*engine_, prompts_, tenant_arms(false), options_));
  EXPECT_FALSE(run_tenants(*engine_, {}, tenant_arms(false), options_));
}

TEST(MultitenantRules, EachRejectsADoctoredReport) {
  const auto request = [](Report& r, std::size_t arm) -> Report& {
    return r["arms"][arm]["requests"][1];
  };
  const std::vector<DoctoredReport> doctored = {
      {"lossless", [=](Report& r) { request(r, 0)["sha256"] = std::string(64, 'a'); }},
      {"lossless", [=](Report& r) { request(r, 1)["differs_at"] = 3; }},
      {"lossless", [](Report& r) { r["outputs_equal"] = false; }},
      {"lossless", [=](Report& r) { request(r, 2)["error"] = "no memory"; }},
      {"fields", [=](Report& r) { request(r, 2).erase("solo_sha256"); }},
      {"counts", [](Report& r) { r["arms"][2]["requests"].erase(1); }},
      {"counts", [](Report& r) { r["options"]["sessions"] = 4; }},
      {"counts", [=](Report& r) { request(r, 3)["prompt_tokens"] = 61; }},
      {"counts", [=](Report& r) { request(r, 4)["prompt_tokens"] = 11; }},
      {"counts", [=](Report& r) { request(r, 0)["tokens"] = 20; }},
      {"counts", [=](Report& r) { request(r, 3)["accepted"] = 22; }},
      {"never-past-the-end", [=](Report& r) { request(r, 0)["tokens"] = 33; }},
      {"never-past-the-end", [=](Report& r) { request(r, 4)["tokens"] = 31; }},
      {"same-run", [](Report& r) { r["arms"].erase(1); }},
      {"same-run", [](Report& r) { r["arms"][3]["sampled"] = false; }},
      {"same-run", [](Report& r) { r["arms"][0]["solo_seconds"].erase(0); }},
      {"samples",
       [](Report& r) {
         r["options"]["pairs"] = 1;
         for (const char* name : {"solo_seconds", "together_seconds"}) {
           r["arms"][0][name] = {0.3};
         }
       }},
      {"long-enough", [](Report& r) { r["arms"][0]["solo_seconds"][2] = 0.09; }},
      {"spread", [](Report& r) { r["arms"][0]["together_seconds"][2] = 0.5; }},
      {"headline", [](Report& r) { r["arms"][0]["throughput_ratio"] = 3.0; }},
      {"headline", [](Report& r) { r["arms"][0]["together_tokens_per_second"] = 3.0; }},
      {"headline", [=](Report& r) { request(r, 0)["tokens_per_second"] = 999.0; }},
      {"headline", [=](Report& r) { request(r, 0)["first_token_seconds"] = 0.2; }},
      {"headline", [](Report& r) { r["arms"][1]["longest_wait_seconds"] = 0.01; }},
      {"headline", [](Report& r) { r["arms"][1]["longest_gap_seconds"] = 0.001; }},
      {"headline", [](Report& r) { r["arms"][4]["fairness"] = 1.0; }},
      {"headline", [](Report& r) { r["arms"][4].erase("fairness"); }},
      {"headline", [](Report& r) { r["arms"][0]["fairness"] = 1.0; }},
      {"bytes", [](Report& r) { r["arms"][0]["bytes_ratio"] = 0.5; }},
      {"bytes", [](Report& r) { r["arms"][0]["alone_bytes"] = 0; }},
      {"drafts-ran", [=](Report& r) { request(r, 0)["drafted"] = 5; }},
      {"drafts-ran",
       [](Report& r) {
         for (Report& row : r["arms"][2]["requests"]) row["drafted"] = 0;
       }},
  };
  expect_rejected(made_multitenant_report(kept_report("niah")), doctored);
}

}  // namespace
}  // namespace kakeya::eval
