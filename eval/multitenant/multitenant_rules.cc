// Reports of `kakeya eval multitenant`.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/median.h"
#include "eval/multitenant/tenant_arms.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

constexpr double kShortestTenantRun = 0.1;  // seconds

// Sums and extremes over the requests of an arm.
struct TenantSums {
  bool equal = true;
  std::int64_t tokens = 0;
  std::int64_t drafted = 0;
  double longest_wait = 0.0;
  double longest_gap = 0.0;
  std::vector<double> speeds = {};
};

// The times of one answer.
void check_tenant_times(const Report& arm,
                        const Report& request,
                        const std::string& at,
                        RuleChecks& checks,
                        TenantSums& sums) {
  const double seconds = request["seconds"].get<double>();
  const double first = request["first_token_seconds"].get<double>();
  const double gap = request["longest_gap_seconds"].get<double>();
  const double speed = static_cast<double>(count(request["tokens"])) / seconds;
  checks.expect_number(speed, request["tokens_per_second"], "headline", at + "/tokens_per_second");
  checks.expect(first + gap <= seconds * (1.0 + 1e-12), "headline", at + "/seconds",
                "expected no less than the first token and the longest gap took");
  checks.expect(request["queue_seconds"].get<double>() <= first, "headline", at + "/queue_seconds",
                "expected no more than the first token took");
  // Requests are those of the first pair that counts.
  const double whole = arm["together_seconds"][0].get<double>();
  checks.expect(seconds <= whole, "headline", at + "/seconds",
                fmt::format("expected at most the {} s of the whole run, got {}", whole, seconds));
  sums.longest_wait = std::max(sums.longest_wait, first);
  sums.longest_gap = std::max(sums.longest_gap, gap);
  sums.speeds.push_back(speed);
}

// The fields that an answer must have that is no error.
constexpr const char* kAnswerFields[] = {"tokens",      "sha256",           "solo_sha256",
                                         "drafted",     "accepted",         "first_token_seconds",
                                         "seconds",     "queue_seconds",    "longest_gap_seconds",
                                         "stop_reason", "tokens_per_second"};

void check_tenant(const Report& report,
                  const Report& arm,
                  const Report& request,
                  const std::string& at,
                  RuleChecks& checks,
                  TenantSums& sums) {
  const bool failed = request.contains("error");
  const bool whole =
      std::ranges::all_of(kAnswerFields, [&](const char* name) { return request.contains(name); });
  checks.expect(!failed, "lossless", at + "/error", "expected an answer of every request");
  checks.expect(failed || whole, "fields", at, "expected an answer or an error");
  if (failed || !whole) {
    sums.equal = false;
    return;
  }
  const bool differs = request.contains("differs_at");
  sums.equal = sums.equal && !differs;
  checks.expect(!differs, "lossless", at + "/differs_at",
                "expected no answer to differ from the one that the request gives alone");
  checks.expect((request["sha256"] == request["solo_sha256"]) == !differs, "lossless",
                at + "/sha256",
                differs ? "expected different hashes of answers that differ, got equal ones"
                        : "expected equal hashes of equal answers, got others");
  const std::int64_t tokens = count(request["tokens"]);
  const std::int64_t most = count(report["options"]["max_tokens"]);
  const bool as_long = arm["equal_lengths"].get<bool>() ? tokens == most : tokens <= most;
  checks.expect(as_long && tokens >= 1, "never-past-the-end", at + "/tokens",
                fmt::format("expected 1 to {}, or all of them where lengths are equal, got {}",
                            most, tokens));
  // The first token comes of the prompt.
  checks.expect(count(request["accepted"]) <= count(request["drafted"]) &&
                    count(request["accepted"]) < tokens,
                "counts", at + "/accepted",
                "expected no more than drafted tokens, and fewer than there are");
  sums.tokens += tokens;
  sums.drafted += count(request["drafted"]);
  check_tenant_times(arm, request, at, checks, sums);
}

// Times of whole runs, of every pair.
void check_tenant_runs(const Report& report,
                       const Report& arm,
                       const std::string& at,
                       RuleChecks& checks) {
  const std::vector<double> solo = numbers(arm["solo_seconds"]);
  const std::vector<double> together = numbers(arm["together_seconds"]);
  const auto pairs = static_cast<std::size_t>(count(report["options"]["pairs"]));
  checks.expect(solo.size() == pairs && together.size() == pairs, "same-run", at,
                fmt::format("expected {} samples alone and together, got {} and {}", pairs,
                            solo.size(), together.size()));
  checks.expect(std::min(solo.size(), together.size()) >= kFewestSamples, "samples", at,
                fmt::format("expected {} pairs or more, got {}", kFewestSamples, solo.size()));
  checks.expect(smallest(solo) >= kShortestTenantRun, "long-enough", at + "/solo_seconds",
                fmt::format("expected {} s or more, got {}", kShortestTenantRun, smallest(solo)));
  check_spread(solo, at + "/solo_seconds", checks);
  check_spread(together, at + "/together_seconds", checks);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(solo.size(), together.size()); ++i) {
    ratios.push_back(solo[i] / together[i]);
  }
  const double tokens = arm["tokens"].get<double>();
  checks.expect_number(median(ratios), arm["throughput_ratio"], "headline",
                       at + "/throughput_ratio");
  checks.expect_number(tokens / median(solo), arm["solo_tokens_per_second"], "headline",
                       at + "/solo_tokens_per_second");
  checks.expect_number(tokens / median(together), arm["together_tokens_per_second"], "headline",
                       at + "/together_tokens_per_second");
}

// All requests of the same prompts, in all arms: those of the first one, or cut to the shortest.
void check_tenant_prompts(const Report& report,
                          const Report& arm,
                          const std::string& at,
                          RuleChecks& checks) {
  const Report& first = report["arms"][0]["requests"];
  const Report& requests = arm["requests"];
  checks.expect_count(std::ssize(requests), report["options"]["sessions"], "counts",
                      "options/sessions");
  if (requests.size() != first.size()) return;
  std::int64_t shortest = count(first[0]["prompt_tokens"]);
  for (const Report& request : first) {
    shortest = std::min(shortest, count(request["prompt_tokens"]));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::int64_t expected =
        arm["equal_lengths"].get<bool>() ? shortest : count(first[i]["prompt_tokens"]);
    checks.expect_count(expected, requests[i]["prompt_tokens"], "counts",
                        fmt::format("{}/requests/{}/prompt_tokens", at, i));
  }
}

bool check_arm(const Report& report, const Report& arm, const std::string& at, RuleChecks& checks) {
  TenantSums sums;
  check_tenant_prompts(report, arm, at, checks);
  for (std::size_t i = 0; i < arm["requests"].size(); ++i) {
    check_tenant(report, arm, arm["requests"][i], fmt::format("{}/requests/{}", at, i), checks,
                 sums);
  }
  check_tenant_runs(report, arm, at, checks);
  checks.expect_count(sums.tokens, arm["tokens"], "counts", at + "/tokens");
  checks.expect_number(sums.longest_wait, arm["longest_wait_seconds"], "headline",
                       at + "/longest_wait_seconds");
  checks.expect_number(sums.longest_gap, arm["longest_gap_seconds"], "headline",
                       at + "/longest_gap_seconds");
  const bool drafts = arm["drafts"].get<bool>();
  checks.expect(drafts == (sums.drafted > 0), "drafts-ran", at + "/drafts",
                fmt::format("expected drafts where they are said to be, and only there, got {}",
                            sums.drafted));
  const bool judged = arm["equal_lengths"].get<bool>();
  checks.expect(arm.contains("fairness") == judged, "headline", at + "/fairness",
                "expected it of requests of equal length, and of no others");
  if (judged && arm.contains("fairness")) {
    checks.expect_number(jain_index(sums.speeds), arm["fairness"], "headline", at + "/fairness");
  }
  const double alone =
      arm["alone_bytes"].get<double>() * static_cast<double>(arm["requests"].size());
  checks.expect(alone > 0.0, "bytes", at + "/alone_bytes", "expected a session that takes some");
  checks.expect_number(alone > 0.0 ? arm["together_bytes"].get<double>() / alone : 0.0,
                       arm["bytes_ratio"], "bytes", at + "/bytes_ratio");
  return sums.equal;
}

}  // namespace

void check_multitenant(const Report& report, RuleChecks& checks) {
  command_of(report, checks);
  const Report& arms = report["arms"];
  const bool drafts =
      std::ranges::any_of(arms, [](const Report& arm) { return arm["drafts"].get<bool>(); });
  const std::vector<TenantArm> expected = tenant_arms(drafts);
  checks.expect(arms.size() == expected.size(), "same-run", "arms",
                fmt::format("expected {}, got {}", expected.size(), arms.size()));
  bool equal = true;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const std::string at = fmt::format("arms/{}", i);
    if (i < expected.size()) {
      const TenantArm& arm = expected[i];
      checks.expect(arms[i]["arm"] == arm.name && arms[i]["drafts"] == arm.drafts &&
                        arms[i]["sampled"] == arm.sampled &&
                        arms[i]["equal_lengths"] == arm.equal_lengths,
                    "same-run", at, "expected greedy and sampled answers in their order");
    }
    equal = check_arm(report, arms[i], at, checks) && equal;
  }
  checks.expect(report["outputs_equal"].get<bool>() == equal, "lossless", "outputs_equal",
                fmt::format("expected {}, got {}", equal, !equal));
}

}  // namespace kakeya::eval
