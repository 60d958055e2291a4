// Reports of `kakeya eval multitenant`.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "eval/multitenant/multitenant_report.h"
#include "eval/multitenant/tenant_arms.h"
#include "eval/report/derived_checks.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

namespace kakeya::eval {
namespace {

constexpr double kShortestTenantRun = 0.1;  // seconds

// The times of one answer.
void check_tenant_times(const TenantArmReport& arm,
                        const TenantAnswer& answer,
                        const std::string& at,
                        RuleChecks& checks) {
  const double first = answer.first_token_seconds;
  checks.expect(first + answer.longest_gap_seconds <= answer.seconds * (1.0 + 1e-12), "headline",
                at + "/seconds", "expected no less than the first token and the longest gap took");
  checks.expect(answer.queue_seconds <= first, "headline", at + "/queue_seconds",
                "expected no more than the first token took");
  // Requests are those of the first pair that counts.
  const double whole = arm.together_seconds.front();
  checks.expect(
      answer.seconds <= whole, "headline", at + "/seconds",
      fmt::format("expected at most the {} s of the whole run, got {}", whole, answer.seconds));
}

void check_tenant(const TenantsReport& report,
                  const TenantArmReport& arm,
                  const TenantRequest& request,
                  const std::string& at,
                  RuleChecks& checks) {
  const bool failed = !request.error.empty();
  const bool whole = !request.sha256.empty();
  checks.expect(!failed, "lossless", at + "/error", "expected an answer of every request");
  checks.expect(failed || whole, "fields", at, "expected an answer or an error");
  if (failed || !whole) return;
  const bool differs = request.differs_at.has_value();
  checks.expect(!differs, "lossless", at + "/differs_at",
                "expected no answer to differ from the one that the request gives alone");
  checks.expect((request.sha256 == request.solo_sha256) == !differs, "lossless", at + "/sha256",
                differs ? "expected different hashes of answers that differ, got equal ones"
                        : "expected equal hashes of equal answers, got others");
  const std::int64_t tokens = request.together.tokens;
  const std::int64_t most = report.options.max_tokens;
  const bool as_long = arm.arm.equal_lengths ? tokens == most : tokens <= most;
  checks.expect(as_long && tokens >= 1, "never-past-the-end", at + "/tokens",
                fmt::format("expected 1 to {}, or all of them where lengths are equal, got {}",
                            most, tokens));
  // The first token comes of the prompt.
  const std::int64_t accepted = request.together.accepted;
  checks.expect(accepted <= request.together.drafted && accepted < tokens, "counts",
                at + "/accepted", "expected no more than drafted tokens, and fewer than there are");
  check_tenant_times(arm, request.together, at, checks);
}

// Times of whole runs, of every pair.
void check_tenant_runs(const TenantsReport& report,
                       const TenantArmReport& arm,
                       const std::string& at,
                       RuleChecks& checks) {
  const std::vector<double>& solo = arm.solo_seconds;
  const std::vector<double>& together = arm.together_seconds;
  const auto pairs = static_cast<std::size_t>(report.options.pairs);
  checks.expect(solo.size() == pairs && together.size() == pairs, "same-run", at,
                fmt::format("expected {} samples alone and together, got {} and {}", pairs,
                            solo.size(), together.size()));
  checks.expect(std::min(solo.size(), together.size()) >= kFewestSamples, "samples", at,
                fmt::format("expected {} pairs or more, got {}", kFewestSamples, solo.size()));
  checks.expect(smallest(solo) >= kShortestTenantRun, "long-enough", at + "/solo_seconds",
                fmt::format("expected {} s or more, got {}", kShortestTenantRun, smallest(solo)));
  check_spread(solo, at + "/solo_seconds", checks);
  check_spread(together, at + "/together_seconds", checks);
}

// All requests of the same prompts, in all arms: those of the first one, or cut to the shortest.
void check_tenant_prompts(const TenantsReport& report,
                          const TenantArmReport& arm,
                          const std::string& at,
                          RuleChecks& checks) {
  const std::vector<TenantRequest>& first = report.arms.front().requests;
  checks.expect_count(std::ssize(arm.requests), report.options.sessions, "counts",
                      "options/sessions");
  if (arm.requests.size() != first.size()) return;
  const auto shortest = std::ranges::min(first, {}, &TenantRequest::prompt_tokens);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::int64_t expected =
        arm.arm.equal_lengths ? shortest.prompt_tokens : first[i].prompt_tokens;
    checks.expect_count(expected, arm.requests[i].prompt_tokens, "counts",
                        fmt::format("{}/requests/{}/prompt_tokens", at, i));
  }
}

void check_arm(const TenantsReport& report,
               const TenantArmReport& arm,
               const std::string& at,
               RuleChecks& checks) {
  check_tenant_prompts(report, arm, at, checks);
  std::int64_t drafted = 0;
  for (std::size_t i = 0; i < arm.requests.size(); ++i) {
    check_tenant(report, arm, arm.requests[i], fmt::format("{}/requests/{}", at, i), checks);
    drafted += arm.requests[i].together.drafted;
  }
  check_tenant_runs(report, arm, at, checks);
  checks.expect(
      arm.arm.drafts == (drafted > 0), "drafts-ran", at + "/drafts",
      fmt::format("expected drafts where they are said to be, and only there, got {}", drafted));
  checks.expect(arm.alone_bytes > 0, "bytes", at + "/alone_bytes",
                "expected a session that takes some");
}

void check_multitenant(const Report& report, RuleChecks& checks) {
  const auto tenants = read_report_fields<TenantsReport>(report, checks);
  if (!tenants) return;
  check_derived(report, *tenants, checks);
  command_of(report, checks);
  const std::vector<TenantArmReport>& arms = tenants->arms;
  const bool drafts =
      std::ranges::any_of(arms, [](const TenantArmReport& arm) { return arm.arm.drafts; });
  const std::vector<TenantArm> expected = tenant_arms(drafts);
  checks.expect(arms.size() == expected.size(), "same-run", "arms",
                fmt::format("expected {}, got {}", expected.size(), arms.size()));
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const std::string at = fmt::format("arms/{}", i);
    if (i < expected.size()) {
      checks.expect(arms[i].arm == expected[i], "same-run", at,
                    "expected greedy and sampled answers in their order");
    }
    check_arm(*tenants, arms[i], at, checks);
  }
}

std::vector<ClaimGroup> multitenant_claims(const Report& report) {
  const auto tenants = read_fields<TenantsReport>(report);
  if (!tenants) return {};
  ClaimGroup speed{.title = "All requests together",
                   .unit = "times one after the other",
                   .better = Better::kMore,
                   .reference = 1.0,
                   .interval = kSpread};
  ClaimGroup fairness{.title = "Fairness, where lengths are equal",
                      .unit = "Jain's index",
                      .better = Better::kMore};
  ClaimGroup bytes{.title = "Memory of all together",
                   .unit = "times what they take alone, added up",
                   .better = Better::kLess,
                   .reference = 1.0};
  for (const TenantArmReport& arm : tenants->arms) {
    speed.claims.push_back(
        claim_of_samples(arm.arm.name, ratios(arm.solo_seconds, arm.together_seconds)));
    bytes.claims.push_back({.name = arm.arm.name, .value = arm.bytes_ratio()});
    if (!arm.arm.equal_lengths) continue;
    fairness.claims.push_back({.name = arm.arm.name, .value = arm.fairness()});
  }
  std::vector<ClaimGroup> groups = {std::move(speed), std::move(bytes)};
  if (!fairness.claims.empty()) groups.push_back(std::move(fairness));
  return groups;
}

using enum FlagForm;

constexpr CommandFlag kTenantFlags[] = {
    {"--sessions", "", kNumber, "options/sessions", "8"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens", "64"},
    {"--pairs", "", kNumber, "options/pairs", "5"},
    {"--prompts", "", kUnsaid},
    {"--limit", "", kNumber, "options/limit", "0"},
    {"--temperature", "", kNumber, "options/temperature", "1"},
    {"--seed", "", kNumber, "options/seed", "1"},
};

}  // namespace

const ReportKind& multitenant_report() {
  static const ReportKind kKind = {
      .name = "kakeya.multitenant",
      .schemas = engine_schemas(1, list_fields<TenantsReport>()),
      .check = check_multitenant,
      .claims = multitenant_claims,
      .unique_rows = {{"arms", {"arm"}}},
      .paired_samples = {{"arms/*", "solo_seconds", "together_seconds"}},
      .timed_samples = {"arms/*/solo_seconds/*", "arms/*/together_seconds/*"},
      .commands = {"multitenant"},
      .flags = kTenantFlags};
  return kKind;
}

}  // namespace kakeya::eval
