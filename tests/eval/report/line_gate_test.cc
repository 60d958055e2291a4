// The gate passes the lines of measurements that this repository keeps, and no doctored ones.
#include "eval/report/line_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eval/report/history_rules.h"
#include "eval/report/made_reports.h"

namespace kakeya::eval {
namespace {

using testing::Contains;
using testing::Field;

using Lines = std::vector<Report>;

constexpr const char* kLineFiles[] = {"facts", "kernels", "soak", "speed", "timeline"};

Lines kept_lines(const std::string& name) {
  const auto lines = read_lines(KAKEYA_SOURCE_DIR "/docs/results/h200/" + name + ".jsonl");
  return lines ? *lines : Lines();
}

TEST(LineGate, PassesWhatIsKept) {
  for (const char* name : kLineFiles) {
    const Lines lines = kept_lines(name);
    EXPECT_FALSE(lines.empty()) << name;
    for (const GateFinding& finding : check_lines(lines)) {
      ADD_FAILURE() << name << ": " << finding.rule << ": " << finding.at << ": " << finding.says;
    }
  }
}

// The first line that has such a field.
Report& line_with(Lines& lines, const char* name, std::size_t number = 0) {
  for (Report& line : lines) {
    if (line.contains(name) && number-- == 0) return line;
  }
  return lines.front();
}

struct DoctoredLines {
  const char* rule;
  const char* file;
  std::function<void(Lines&)> doctor;
};

std::vector<DoctoredLines> doctored_speeds() {
  return {
      {"schema", "speed",
       [](Lines& l) {
         l[0] = {{"tokens", 3}};
       }},
      {"fields", "speed", [](Lines& l) { l[0]["watts"] = 300; }},
      {"fields", "speed", [](Lines& l) { l[0].erase("command"); }},
      {"fields", "speed", [](Lines& l) { l[0].erase("code"); }},
      {"fields", "speed", [](Lines& l) { line_with(l, "failed")["seconds"] = "long"; }},
      {"provenance", "speed", [](Lines& l) { l[0]["code"] = "the newest"; }},
      {"provenance", "speed", [](Lines& l) { l[0]["command"] = "kakeya bench decode --fast 9"; }},
      {"provenance", "speed", [](Lines& l) { l[0]["command"] = "kakeya run"; }},
      {"provenance", "speed", [](Lines& l) { l[0]["rows"] = 8; }},
      {"provenance", "speed", [](Lines& l) { line_with(l, "sessions")["sessions"] = 64; }},
      {"headline", "speed", [](Lines& l) { l[0]["tokens_per_second"] = 922.8; }},
      {"headline", "speed", [](Lines& l) { l[0]["min_ms"] = 4.6; }},
      {"headline", "speed", [](Lines& l) { l[0]["max_ms"] = 4.4; }},
      {"headline", "speed", [](Lines& l) { line_with(l, "step_ms")["step_ms"] = 5.0; }},
      {"headline", "speed", [](Lines& l) { line_with(l, "times_plain", 3)["times_plain"] = 1.5; }},
      {"headline", "speed",
       [](Lines& l) { line_with(l, "distinct_experts")["distinct_experts"] = 9.0; }},
      {"spread", "speed", [](Lines& l) { l[0]["max_ms"] = 40.0; }},
      {"spread", "speed", [](Lines& l) { line_with(l, "draft_ms")["draft_ms"][3] = 0.2; }},
      {"counts", "speed", [](Lines& l) { line_with(l, "draft_ms")["draft_ms"].erase(3); }},
      {"counts", "speed", [](Lines& l) { line_with(l, "failed")["tests"] = 0; }},
      {"lossless", "speed", [](Lines& l) { line_with(l, "failed")["failed"] = 1; }},
      {"lossless", "speed",
       [](Lines& l) { line_with(l, "outputs_equal")["outputs_equal"] = false; }},
      {"same-run", "speed", [](Lines& l) { line_with(l, "times_plain")["draft_length"] = "1"; }},
      {"drafts-ran", "speed",
       [](Lines& l) { line_with(l, "times_plain", 1)["tokens_per_round"] = 2.5; }},
      {"drafts-ran", "speed",
       [](Lines& l) { line_with(l, "times_plain", 5)["times_plain"] = 6.0; }},
      {"agreement", "speed",
       [](Lines& l) { line_with(l, "times_plain", 9)["tokens_per_round"] = 3.2; }},
      // Ten times as fast, with all that follows from it: more than the memory gives.
      {"within-the-machine", "speed",
       [](Lines& l) {
         for (const char* name : {"ms", "min_ms", "max_ms"})
           l[0][name] = 0.08 * l[0][name].get<double>();
         l[0]["tokens_per_second"] = 2784.0;
       }},
      {"within-the-machine", "speed",
       [](Lines& l) { line_with(l, "probe_gb_per_s")["probe_gb_per_s"] = 5000.0; }},
      {"bytes", "speed", [](Lines& l) { line_with(l, "distinct_experts", 1)["gb"] = 3.6; }},
      {"agreement", "speed", [](Lines& l) { l[2]["gb"] = 1.7; }},
  };
}

std::vector<DoctoredLines> doctored_facts_and_kernels() {
  return {
      {"within-the-machine", "facts", [](Lines& l) { l[0]["gb_per_s"] = 4900; }},
      {"within-the-machine", "facts", [](Lines& l) { line_with(l, "ring_kib")["ring_kib"] = 256; }},
      {"within-the-machine", "facts",
       [](Lines& l) { line_with(l, "mma_sync_bf16_tflops")["mma_sync_bf16_tflops"] = 1000; }},
      {"within-the-machine", "facts",
       [](Lines& l) { line_with(l, "cold_us", 3)["cold_us"] = 2.0; }},
      {"within-the-machine", "facts",
       [](Lines& l) { line_with(l, "read_mib")["pinned_us"] = 9.0; }},
      {"lossless", "facts", [](Lines& l) { line_with(l, "sums")["unlike_model_of_16"] = 1; }},
      {"once", "facts", [](Lines& l) { l.push_back(l[3]); }},
      {"fields", "kernels", [](Lines& l) { l[0]["block"] = "2048,1,1"; }},
      {"fields", "kernels", [](Lines& l) { l[0]["grid"] = "17"; }},
      {"counts", "kernels", [](Lines& l) { l[1]["launches"] = 0; }},
      {"once", "kernels", [](Lines& l) { l.push_back(l[1]); }},
      {"within-the-machine", "timeline",
       [](Lines& l) { line_with(l, "multiprocessors")["multiprocessors"] = 133; }},
      {"headline", "timeline", [](Lines& l) { l[0]["us"] = 3000.0; }},
      {"counts", "timeline", [](Lines& l) { l[0]["launches"] = 300; }},
      {"gap", "soak", [](Lines& l) { l[2]["tokens"] = 18000; }},
      {"gap", "soak", [](Lines& l) { l.erase(l.begin() + 2); }},
      {"headline", "soak", [](Lines& l) { l[0]["p50_ms"] = 0.3; }},
      {"headline", "soak", [](Lines& l) { l.back()["p50_ratio"] = 1.0; }},
      {"bytes", "soak", [](Lines& l) { l[3]["ledger_bytes"] = 40000000; }},
      {"bytes", "soak", [](Lines& l) { l.back()["resident_growth"] = 0; }},
      {"lossless", "soak", [](Lines& l) { l.back()["answers_equal"] = false; }},
      {"within-the-machine", "soak", [](Lines& l) { l[0]["power.draw"] = 900.0; }},
  };
}

TEST(LineGate, EachRuleRejectsDoctoredLines) {
  std::vector<DoctoredLines> all = doctored_speeds();
  for (const DoctoredLines& more : doctored_facts_and_kernels()) all.push_back(more);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Lines lines = kept_lines(all[i].file);
    all[i].doctor(lines);
    EXPECT_THAT(check_lines(lines), Contains(Field(&GateFinding::rule, all[i].rule)))
        << i << ": " << all[i].file << ", " << all[i].rule;
  }
}

// A number a tenth larger: none that follows from others passes.
TEST(LineGate, NoticesNumbersThatFollowFromOthers) {
  const Lines kept = kept_lines("speed");
  for (std::size_t i = 0; i < kept.size(); ++i) {
    for (const char* name : {"tokens_per_second", "times_plain", "tokens_per_round"}) {
      if (!kept[i].contains(name)) continue;
      Lines lines = kept;
      lines[i][name] = kept[i][name].get<double>() * 1.1;
      EXPECT_FALSE(check_lines(lines).empty()) << "line " << i + 1 << ": " << name;
    }
  }
}

TEST(LineGate, RefusesWhatIsNoLine) {
  EXPECT_EQ(read_lines(KAKEYA_SOURCE_DIR "/docs/evidence.md").error().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(read_lines("/nowhere.jsonl").error().code(), StatusCode::kNotFound);
  EXPECT_FALSE(check_lines({Report(3), Report(nullptr)}).empty());
}

TEST(LineGate, NamesTheCommitOfALine) {
  const auto commit = [](const char* code) { return commit_of_line({{"code", code}}); };
  EXPECT_EQ(commit("8037fae, attention that copies ahead"), "8037fae");
  EXPECT_EQ(commit("e977c77"), "e977c77");
  EXPECT_EQ(commit("e977"), "");
  EXPECT_EQ(commit("e977c77x"), "");
}

TEST(History, KnowsCommitsByTheirFirstDigits) {
  const CommitHistory history = {{"abc1", 5}, {"abd2", 7}};
  EXPECT_EQ(commit_time(history, "abc"), 5);
  EXPECT_EQ(commit_time(history, "ab"), std::nullopt);
  EXPECT_EQ(commit_time(history, "b"), std::nullopt);
  EXPECT_EQ(seconds_of_time("2026-11-23T18:53:06Z"), 1795459986);
  EXPECT_EQ(seconds_of_time("2026-02-30T18:53:06Z"), std::nullopt);
}

TEST(History, RejectsForeignCommitsAndFalseDates) {
  const Report report = kept_report("spec");
  const auto started = *seconds_of_time(report["conditions"]["started"].get<std::string>());
  const std::int64_t later = started + 1000000;
  CommitHistory history = {{report["commit"].get<std::string>(), started - 60}};
  EXPECT_TRUE(check_history(report, &history, later).empty());
  EXPECT_TRUE(check_history(report, nullptr, later).empty());
  const auto rule = Field(&GateFinding::rule, "history");
  // The future, a day that there is not, a commit that came later, one of another repository.
  EXPECT_THAT(check_history(report, nullptr, started - 1000), Contains(rule));
  Report doctored = report;
  doctored["conditions"]["started"] = "2026-13-01T00:00:00Z";
  EXPECT_THAT(check_history(doctored, nullptr, later), Contains(rule));
  history.begin()->second = started + 5000;
  EXPECT_THAT(check_history(report, &history, later), Contains(rule));
  EXPECT_THAT(check_history(report, std::make_unique<CommitHistory>().get(), later),
              Contains(rule));
  EXPECT_THAT(check_line_history({{{"code", "0123456"}}}, history), Contains(rule));
}

}  // namespace
}  // namespace kakeya::eval
