// `kakeya eval longrun` and `kakeya eval multitenant` as a user meets them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

const std::string kTwoPrompts = "{\"prompt\": \"Count from 5 to 12.\"}\n{\"prompt\": \"Hello\"}\n";
const std::string kLongRun =
    "eval longrun " + kDemoFlag + "--prompts - --ctx 200 --chunk 32 --window 48 ";
const std::string kTenants =
    "eval multitenant " + kDemoFlag + "--prompts - --sessions 3 --max-tokens 12 --pairs 1 ";

nlohmann::json parsed(const Outcome& outcome) {
  return nlohmann::json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

TEST_F(Cli, TheGateLooksBelowAFolder) {
  std::filesystem::create_directories(folder_ + "/kept/a/b");
  const std::string kept = std::string(KAKEYA_SOURCE_DIR) + "/docs/results/kl.json";
  std::filesystem::copy(kept, folder_ + "/kept/a/b/kl.json");
  EXPECT_EQ(kakeya("eval gate " + folder_ + "/kept").exit_code, 0);
  std::ofstream(folder_ + "/kept/a/other.json") << "{\"schema\": \"kakeya.other/1\"}";
  const Outcome gate = kakeya("eval gate " + folder_ + "/kept");
  EXPECT_EQ(gate.exit_code, 1);
  EXPECT_NE(gate.out.find("ok    " + folder_ + "/kept/a/b/kl.json"), std::string::npos) << gate.out;
  EXPECT_NE(gate.out.find("FAIL  " + folder_ + "/kept/a/other.json: schema"), std::string::npos)
      << gate.out;
}

TEST_F(Cli, TheGateReadsAllFilesOfAFolder) {
  const Outcome kept = kakeya("eval gate " + std::string(KAKEYA_SOURCE_DIR) + "/docs/results");
  EXPECT_EQ(kept.exit_code, 0) << kept.out << kept.err;
  EXPECT_NE(kept.out.find("h200/speed.jsonl  185 lines"), std::string::npos) << kept.out;
  const std::string speeds =
      slurp(std::string(KAKEYA_SOURCE_DIR) + "/docs/results/h200/speed.jsonl");
  const std::size_t at = speeds.find("222.8");
  ASSERT_NE(at, std::string::npos);
  std::ofstream(folder_ + "/speed.jsonl") << std::string(speeds).replace(at, 5, "922.8");
  std::ofstream(folder_ + "/notes.txt") << "fast\n";
  const Outcome doctored = kakeya("eval gate " + folder_);
  EXPECT_EQ(doctored.exit_code, 1);
  for (const char* expected :
       {"speed.jsonl: headline: line 1/tokens_per_second: expected ", "notes.txt: read: "}) {
    EXPECT_NE(doctored.out.find(expected), std::string::npos) << expected << "\n" << doctored.out;
  }
  EXPECT_NE(doctored.err.find("commits are not compared with the history: "), std::string::npos)
      << doctored.err;
}

TEST_F(Cli, DecodesForLongAndReportsBuckets) {
  const std::string report = folder_ + "/report.json";
  const Outcome outcome = kakeya(kLongRun + "--tokens 1800 -o " + report, kTwoPrompts);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* expected :
       {"1800 tokens in ", "the ledger grew by 0 bytes", "p99 ms", "all equal the first one"}) {
    EXPECT_NE(outcome.out.find(expected), std::string::npos) << expected << "\n" << outcome.out;
  }
  const auto json = nlohmann::json::parse(slurp(report));
  EXPECT_EQ(json["schema"], "kakeya.longrun/2");
  EXPECT_EQ(json["complete"], true);
  ASSERT_EQ(json["buckets"].size(), 6U);
  std::int64_t tokens = 0;
  for (const auto& row : json["buckets"]) tokens += row["tokens"].get<std::int64_t>();
  EXPECT_EQ(tokens, 1800);
  EXPECT_EQ(json["verdict"]["ledger_growth"], 0);
  EXPECT_GT(json["buckets"][0]["resident_bytes"], json["buckets"][0]["ledger_bytes"]);
  // It is too short for a claim, and its commit may have changes; all else is in order.
  const std::string gate = kakeya("eval gate " + report).out;
  for (const char* rule : {"fields:", "counts:", "gap:", "headline:", "bytes:", "lossless:",
                           "options/", "session/", ": command:"}) {
    EXPECT_EQ(gate.find(rule), std::string::npos) << gate;
  }
}

TEST_F(Cli, ALongRunThatIsInterruptedReportsWhatThereIs) {
  Outcome outcome;
  for (const char* seconds : {"3", "12", "50"}) {
    outcome = kakeya(kLongRun + "--minutes 10 --json", kTwoPrompts,
                     std::string("timeout --foreground --preserve-status -s INT ") + seconds + " ");
    // On a busy machine it may not even have started.
    if (!outcome.out.empty()) break;
  }
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  const auto json = parsed(outcome);
  ASSERT_TRUE(json.is_object()) << outcome.err;
  EXPECT_EQ(json["complete"], false);
  EXPECT_GT(json["tokens"], 0);
  EXPECT_EQ(json["buckets"].size(), 1U);
  EXPECT_LT(json["seconds"], 60.0);
}

TEST_F(Cli, LongRunsOfASchedulerAreReportedTheSameWay) {
  const Outcome outcome =
      kakeya(kLongRun + "--tokens 1800 --sessions 3 --draft none --json", kTwoPrompts);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = parsed(outcome);
  EXPECT_EQ(json["options"]["sessions"], 3);
  EXPECT_EQ(json["verdict"]["ledger_growth"], 0);
  for (const auto& row : json["buckets"]) EXPECT_EQ(row["drafted"], 0);
}

TEST_F(Cli, ComparesRequestsThatSharePassesWithEachAlone) {
  const std::string report = folder_ + "/report.json";
  const Outcome outcome = kakeya(kTenants + "-o " + report, kTwoPrompts);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("id for id"), std::string::npos) << outcome.out;
  const auto json = nlohmann::json::parse(slurp(report));
  EXPECT_EQ(json["schema"], "kakeya.multitenant/2");
  EXPECT_EQ(json["outputs_equal"], true);
  ASSERT_EQ(json["arms"].size(), 5U);
  for (const auto& arm : json["arms"]) EXPECT_EQ(arm["requests"].size(), 3U);
  const std::string gate = kakeya("eval gate " + report).out;
  for (const char* rule : {"fields:", "counts:", "headline:", "bytes:", "lossless:", "past-the",
                           "options/", "session/", ": command:"}) {
    EXPECT_EQ(gate.find(rule), std::string::npos) << gate;
  }
  // Nothing drafts: three arms.
  const Outcome plain = kakeya(kTenants + "--draft none --json", kTwoPrompts);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(parsed(plain)["arms"].size(), 3U);
}

// A prompt that is longer than the context.
TEST_F(Cli, ARequestThatFailsIsNamedAndTheExitCodeSaysSo) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "the sea ";
  const std::string prompts = "{\"prompt\": \"Hi\"}\n{\"prompt\": \"" + words + "\"}\n";
  const Outcome outcome = kakeya(kTenants + "--ctx 40", prompts);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("greedy: request 1 (2) failed: "), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("id for id"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace kakeya::test
