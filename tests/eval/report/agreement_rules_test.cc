// Reports that are kept agree with one another, and one with a figure of its own does not.
#include "eval/report/agreement_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "eval/report/made_reports.h"

namespace kakeya::eval {
namespace {

std::vector<PassedReport> all_kept() {
  std::vector<PassedReport> reports;
  for (const auto& entry : std::filesystem::directory_iterator(KAKEYA_SOURCE_DIR "/docs/results")) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem().string();
    reports.push_back({name, kept_report(name)});
  }
  return reports;
}

TEST(Agreement, PassesWhatIsKept) {
  const std::vector<PassedReport> reports = all_kept();
  ASSERT_GT(reports.size(), 10U);
  for (const FindingOfFile& found : check_agreement(reports)) {
    ADD_FAILURE() << found.path << ": " << found.finding.at << ": " << found.finding.says;
  }
}

// Another cache gives other likelihoods, and short windows' means differ with the instructions.
TEST(Agreement, ComparesLikelihoodsOfOneKindOfCache) {
  Report inexact = made_session_report(kept_report("perplexity"));
  inexact["session"]["kv_full"] = "e8";
  Report shorter = kept_report("perplexity");
  for (Report* report : {&inexact, &shorter}) {
    for (Report& window : (*report)["sets"][0]["windows"]) {
      window["nll"] = window["nll"].get<double>() * 1.05;
    }
  }
  const PassedReport kept{"kept", kept_report("perplexity")};
  EXPECT_TRUE(check_agreement(std::vector<PassedReport>{kept, {"e8", inexact}}).empty());
  EXPECT_FALSE(check_agreement(std::vector<PassedReport>{kept, {"same", shorter}}).empty());
}

struct DoctoredTogether {
  const char* report;
  std::function<void(Report&)> doctor;
};

TEST(Agreement, RejectsAFigureThatAnotherReportHasOtherwise) {
  const std::vector<DoctoredTogether> all = {
      {"perplexity", [](Report& r) { r["sets"][0]["windows"][3]["tokens"] = 510; }},
      {"perplexity", [](Report& r) { r["sets"][0]["windows"][3]["nll"] = 2200.0; }},
      {"kl", [](Report& r) { r["sets"][1]["windows"][0]["reference_nll"] = 1900.0; }},
      {"kv", [](Report& r) { r["texts"][0]["texts"] = 3; }},
      {"kv", [](Report& r) { r["texts"][0]["modes"][2]["reference_perplexity"] = 106.0; }},
      {"kv", [](Report& r) { r["texts"][1]["modes"][0]["kv_bytes"]["full"] = 1000; }},
      {"kv", [](Report& r) { r["texts"][0]["modes"][0]["kv_bytes_per_token"] = 500.0; }},
      {"spec-rejection", [](Report& r) { r["sets"][0]["prompts"] = 21; }},
      {"kv-codes-decode-auto-1", [](Report& r) { r["passes"][0]["bytes"] = 5e7; }},
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<PassedReport> reports = all_kept();
    for (PassedReport& named : reports) {
      if (named.path == all[i].report) all[i].doctor(named.report);
    }
    EXPECT_FALSE(check_agreement(reports).empty()) << i << ": " << all[i].report;
  }
}

}  // namespace
}  // namespace kakeya::eval
