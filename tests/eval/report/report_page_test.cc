// Reports as claims, as changes between two runs, and as a page.
#include "eval/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "eval/report/claim_chart.h"
#include "eval/report/made_reports.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;
using testing::Not;

const ClaimGroup& group_of(const std::vector<ClaimGroup>& groups, const std::string& unit) {
  return *std::ranges::find(groups, unit, &ClaimGroup::unit);
}

TEST(ReportClaims, AreThoseOfTheReport) {
  const Report spec = kept_report("spec");
  const auto groups = claims_of(spec);
  const ClaimGroup& time = group_of(groups, "times plain decoding");
  ASSERT_EQ(time.claims.size(), spec["sets"].size());
  for (std::size_t i = 0; i < time.claims.size(); ++i) {
    EXPECT_EQ(time.claims[i].name, spec["sets"][i]["set"]);
    EXPECT_NEAR(time.claims[i].value, spec["sets"][i]["time_ratio"], 1e-9);
    EXPECT_EQ(time.claims[i].samples.size(), spec["options"]["pairs"]);
  }
  const Report peers = kept_report("peers-q4-0-zen4");
  const auto beside = claims_of(peers);
  ASSERT_EQ(beside.size(), 1U);
  for (std::size_t i = 0; i < peers["measures"].size(); ++i) {
    const Report& ratio = peers["measures"][i]["ratio"];
    EXPECT_NEAR(beside[0].claims[i].value, ratio["median"], 1e-9);
    EXPECT_NEAR(beside[0].claims[i].interval->first, ratio["min"], 1e-9);
    EXPECT_NEAR(beside[0].claims[i].interval->second, ratio["max"], 1e-9);
  }
}

TEST(ReportClaims, EveryReportThatIsKeptHasSome) {
  std::size_t reports = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(KAKEYA_SOURCE_DIR "/docs/results")) {
    if (entry.path().extension() != ".json") continue;
    ++reports;
    const auto groups = claims_of(read_report(entry.path().string()).value());
    EXPECT_FALSE(groups.empty()) << entry.path();
    for (const ClaimGroup& group : groups) EXPECT_FALSE(group.claims.empty()) << entry.path();
  }
  EXPECT_GT(reports, 10U);
}

TEST(ReportClaims, OfLongRunsAreBucketsAndOfManyTenantsArms) {
  const Report longrun = made_longrun_report(kept_report("spec"));
  const auto buckets = claims_of(longrun);
  ASSERT_EQ(buckets.size(), 2U);
  ASSERT_EQ(buckets[0].claims.size(), longrun["buckets"].size());
  EXPECT_EQ(buckets[0].claims[0].value, longrun["buckets"][0]["p50_ms"]);
  EXPECT_EQ(buckets[1].claims.size(), 2 * longrun["buckets"].size());
  const Report tenants = made_multitenant_report(kept_report("spec"));
  const auto arms = claims_of(tenants);
  ASSERT_EQ(arms.size(), 3U);
  ASSERT_EQ(arms[0].claims.size(), tenants["arms"].size());
  EXPECT_NEAR(arms[0].claims[0].value, tenants["arms"][0]["throughput_ratio"], 1e-9);
}

TEST(ReportClaims, OfProblemsAreTheScoreAndTokensOfARound) {
  const Report code = made_humaneval_report(kept_report("spec"));
  const auto groups = claims_of(code);
  const Claim& score = group_of(groups, "pass@1").claims.at(0);
  EXPECT_EQ(score.value, code["summary"]["score"]);
  EXPECT_EQ(score.interval->first, code["summary"]["low"]);
  EXPECT_EQ(score.interval->second, code["summary"]["high"]);
  EXPECT_EQ(group_of(groups, "tokens").claims.at(0).value, code["summary"]["tokens_per_round"]);
  const auto numbers = claims_of(made_gsm8k_report(kept_report("spec")));
  EXPECT_EQ(group_of(numbers, "exact match").claims.size(), 1U);
  // A server says nothing of rounds.
  const auto served = claims_of(made_served_report(kept_report("spec")));
  ASSERT_EQ(served.size(), 1U);
  EXPECT_EQ(served[0].claims.at(0).value, numbers[0].claims.at(0).value);
}

TEST(ReportClaims, OfDraftersIsTheShareOfEqualTokens) {
  const Report parity = made_parity_report(kept_report("spec"));
  const auto groups = claims_of(parity);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].claims.at(0).value, parity["totals"]["agreement"]);
}

TEST(ReportChanges, OfARunAgainstItselfThereAreNone) {
  for (const char* name : {"spec", "niah", "kv", "decode-slice"}) {
    const Report report = kept_report(name);
    const auto changes = compare_claims(report, report);
    ASSERT_FALSE(changes.empty()) << name;
    for (const ClaimChange& change : changes) {
      EXPECT_TRUE(change.verdict == Verdict::kEqual || change.verdict == Verdict::kUndecided)
          << name << " " << change.name;
    }
  }
}

Verdict verdict_on(const std::vector<ClaimChange>& changes, const std::string& name) {
  return std::ranges::find(changes, name, &ClaimChange::name)->verdict;
}

TEST(ReportChanges, SamplesDecide) {
  const Report before = kept_report("spec");
  Report after = before;
  for (Report& seconds : after["sets"][0]["speculative_seconds"]) {
    seconds = 1.5 * seconds.get<double>();
  }
  for (Report& seconds : after["sets"][1]["speculative_seconds"]) {
    seconds = 0.5 * seconds.get<double>();
  }
  // Within what the samples differ by anyway.
  for (Report& seconds : after["sets"][2]["speculative_seconds"]) {
    seconds = 1.0001 * seconds.get<double>();
  }
  const auto changes = compare_claims(before, after);
  EXPECT_EQ(verdict_on(changes, before["sets"][0]["set"]), Verdict::kWorse);
  EXPECT_EQ(verdict_on(changes, before["sets"][1]["set"]), Verdict::kBetter);
  EXPECT_EQ(verdict_on(changes, before["sets"][2]["set"]), Verdict::kUndecided);
  const auto& ratio = *changes[0].ratio;
  EXPECT_LT(ratio.first, 1.5);
  EXPECT_GT(ratio.second, 1.5);
}

TEST(ReportChanges, IntervalsThatDoNotMeetDecide) {
  const Report before = kept_report("niah");
  Report after = before;
  Report& claim = after["claims"][0];
  claim["recall"] = claim["low"].get<double>() * 0.5;
  claim["high"] = claim["low"].get<double>() * 0.9;
  claim["low"] = 0.0;
  Report& near = after["claims"][1];
  near["recall"] = near["recall"].get<double>() + 0.01;
  const auto changes = compare_claims(before, after);
  const auto verdicts = [&](Verdict verdict) {
    return std::ranges::count(changes, verdict, &ClaimChange::verdict);
  };
  EXPECT_EQ(verdicts(Verdict::kWorse), 1);
  EXPECT_EQ(verdicts(Verdict::kUndecided), 1);
  EXPECT_EQ(verdicts(Verdict::kEqual), static_cast<std::ptrdiff_t>(changes.size()) - 2);
}

TEST(ClaimChart, BarsAreAsLongAsTheirValues) {
  const ClaimGroup group{.title = "t",
                         .unit = "tokens/s",
                         .better = Better::kMore,
                         .claims = {{.name = "half", .value = 2.0}, {.name = "all", .value = 4.0}}};
  const std::string svg = claim_chart(group);
  EXPECT_THAT(svg, HasSubstr("width=\"190.0\" height=\"12\" class=\"bar\""));
  EXPECT_THAT(svg, HasSubstr("width=\"380.0\" height=\"12\" class=\"bar\""));
  EXPECT_THAT(svg, HasSubstr(">tokens/s, more is better</text>"));
  const ClaimGroup far{.title = "t",
                       .unit = "nats",
                       .claims = {{.name = "a", .value = 0.01},
                                  {.name = "b", .value = 0.1},
                                  {.name = "c", .value = 100.0},
                                  {.name = "d", .value = 0.0}}};
  const std::string logarithmic = claim_chart(far);
  EXPECT_THAT(logarithmic, HasSubstr(">nats (logarithmic)</text>"));
  EXPECT_THAT(logarithmic,
              HasSubstr("width=\"95.0\" height=\"12\" class=\"bar\""));  // 1 of 4 decades
  ClaimGroup nothing;
  EXPECT_THAT(claim_chart(nothing), Not(HasSubstr("nan")));
  nothing.claims.push_back({.name = "z", .value = 0.0});
  EXPECT_THAT(claim_chart(nothing), Not(HasSubstr("nan")));
}

TEST(ReportPage, WhatAReportHoldsBecomesText) {
  Report report = kept_report("spec");
  report["model"] = "<script>alert(1)</script>";
  report["sets"][0]["set"] = "\"><img src=x>";
  const NamedReport named[] = {{"<b>x", report}};
  const std::string page = report_page(named, {});
  EXPECT_THAT(page, HasSubstr("&lt;script>alert(1)"));
  for (const char* raw : {"<script", "<img", "<b>"}) EXPECT_THAT(page, Not(HasSubstr(raw)));
}

TEST(ReportPage, SaysWhatDoesNotPassTheGate) {
  Report report = kept_report("spec");
  report["slowest_time_ratio"] = 0.5;
  Report broken = kept_report("kv");
  broken.erase("texts");
  const NamedReport named[] = {
      {"spec", report}, {"kv", broken}, {"none", Report::object()}, {"whole", kept_report("kv")}};
  const std::string page = report_page(named, {});
  EXPECT_THAT(page, HasSubstr("headline: slowest_time_ratio"));
  EXPECT_THAT(page, HasSubstr("fields: texts"));
  EXPECT_THAT(page, HasSubstr("It passes every rule of the gate."));
}

}  // namespace
}  // namespace kakeya::eval
