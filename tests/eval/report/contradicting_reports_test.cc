// The gate refuses reports that contradict their own rows, their command or their machine, even
// where sums and ratios were doctored along.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/median.h"
#include "cli/sha256.h"
#include "eval/report/builtin_sets.h"
#include "eval/report/made_reports.h"
#include "eval/report/report_gate.h"
#include "eval/tasks/task_problems.h"

namespace kakeya::eval {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Field;

// `at`: where the gate finds it.
struct Contradiction {
  const char* rule;
  const char* at;
  const char* report;
  std::function<void(Report&)> doctor;
};

void expect_refused(const std::vector<Contradiction>& all) {
  for (const Contradiction& each : all) {
    Report report = kept_report(each.report);
    each.doctor(report);
    EXPECT_THAT(check_report(report), Contains(AllOf(Field(&GateFinding::rule, each.rule),
                                                     Field(&GateFinding::at, each.at))))
        << each.report << ", " << each.rule << ", " << each.at;
  }
}

// A row again, in the place of the last one.
std::function<void(Report&)> again(const char* list) {
  return [list](Report& r) {
    Report& rows = r[list];
    rows[rows.size() - 1] = rows[0];
  };
}

std::function<void(Report&)> seconds_of_run(double seconds) {
  return [seconds](Report& r) { r["conditions"]["seconds"] = seconds; };
}

TEST(ContradictingReports, SamplesFitIntoTheRun) {
  constexpr const char* kRule = "within-the-run";
  constexpr const char* kAt = "conditions/seconds";
  expect_refused({{kRule, kAt, "spec", seconds_of_run(120.0)},
                  {kRule, kAt, "kl", seconds_of_run(200.0)},
                  {kRule, kAt, "perplexity", seconds_of_run(59.0)},
                  {kRule, kAt, "niah", seconds_of_run(390.0)},
                  {kRule, kAt, "gsm8k", seconds_of_run(150.0)},
                  {kRule, kAt, "longrun", seconds_of_run(3599.0)},
                  {kRule, kAt, "multitenant", seconds_of_run(14.0)},
                  {kRule, kAt, "prefill-slice", seconds_of_run(14.0)},
                  {kRule, kAt, "operations-slice", seconds_of_run(0.2)},
                  {kRule, kAt, "batch-slice", seconds_of_run(50.0)},
                  {kRule, kAt, "peers-q4-0-zen4", seconds_of_run(47.0)},
                  {kRule, kAt, "servers", seconds_of_run(560.0)}});
  // Some parts of a resumed run were timed before it began.
  Report resumed = kept_report("niah");
  resumed["command"].push_back("--resume=journal");
  seconds_of_run(1.0)(resumed);
  EXPECT_TRUE(check_report(resumed).empty());
  // Four answers at once: together as long as four runs.
  Report served = made_served_niah_report(kept_report("niah"));
  double sum = 0.0;
  for (const Report& sample : served["samples"]) {
    sum += sample["replies"][0]["seconds"].get<double>();
  }
  seconds_of_run(sum / 3.9)(served);
  EXPECT_TRUE(check_report(served).empty());
  seconds_of_run(sum / 4.1)(served);
  EXPECT_THAT(check_report(served), Contains(Field(&GateFinding::rule, kRule)));
}

// Types of rows were removed before ways to restore them were, and with them e8's control.
TEST(ContradictingReports, RemovedModesAreJudgedByTheirTime) {
  Report report = kept_report("kv");
  const auto is_type = [](const Report& entry) {
    const auto name = entry["mode"].get<std::string>();
    return name.starts_with("int4") || name == "d4";
  };
  const auto erase = [&](Report& modes) {
    Report left = Report::array();
    std::ranges::remove_copy_if(modes, std::back_inserter(left), is_type);
    modes = left;
  };
  erase(report["modes"]);
  for (const char* list : {"texts", "needles"}) {
    for (Report& row : report[list]) erase(row["modes"]);
  }
  EXPECT_FALSE(check_report(report).empty());
  std::ranges::find_if(report["modes"], [](const Report& entry) {
    return entry["mode"] == "e8";
  })->erase("control");
  EXPECT_TRUE(check_report(report).empty());
  std::ranges::find_if(report["modes"], [](const Report& entry) {
    return entry["mode"] == "restore-token";
  })->erase("control");
  EXPECT_FALSE(check_report(report).empty());
}

TEST(ContradictingReports, NoRowStandsThereTwice) {
  constexpr const char* kRule = "once";
  const auto first_pair = [](const char* rows, const char* one, const char* other) {
    return [=](Report& r) {
      for (const char* name : {one, other}) r[rows][0][name][4] = r[rows][0][name][2];
    };
  };
  expect_refused(
      {{kRule, "sets", "spec", again("sets")},
       {kRule, "sets/*/plain_seconds", "spec",
        first_pair("sets", "plain_seconds", "speculative_seconds")},
       {kRule, "arms/*/solo_seconds", "multitenant",
        first_pair("arms", "solo_seconds", "together_seconds")},
       {kRule, "passes/*/sample_seconds", "decode-slice",
        first_pair("passes", "sample_seconds", "sample_probe_gb_per_s")},
       {kRule, "measures/*/engines/kakeya/seconds", "peers-q4-0-zen4",
        [](Report& r) {
          for (const char* name : {"kakeya", "llama.cpp"}) {
            Report& seconds = r["measures"][0]["engines"][name]["seconds"];
            seconds[1] = seconds[0];
          }
        }},
       {kRule, "texts", "kv", again("texts")},
       {kRule, "needles", "kv", again("needles")},
       {kRule, "sets/*/windows", "kl",
        [](Report& r) { r["sets"][0]["windows"][1] = r["sets"][0]["windows"][0]; }},
       {kRule, "sets/*/windows", "perplexity",
        [](Report& r) { r["sets"][0]["windows"][1] = r["sets"][0]["windows"][0]; }},
       // A text that comes back behind another one.
       {kRule, "sets/0/windows", "perplexity",
        [](Report& r) {
          Report row = r["sets"][0]["windows"][0];
          row["nll"] = 1234.5;
          r["sets"][0]["windows"].push_back(row);
        }},
       {kRule, "samples", "niah",
        [](Report& r) { r["samples"][7]["sha256"] = r["samples"][6]["sha256"]; }},
       {kRule, "rows", "gsm8k", [](Report& r) { r["rows"][7]["id"] = r["rows"][6]["id"]; }},
       {kRule, "rows", "gsm8k",
        [](Report& r) { r["rows"][7]["prompt_sha256"] = r["rows"][6]["prompt_sha256"]; }},
       {kRule, "rows", "drafter-parity", again("rows")},
       {kRule, "prompts", "longrun",
        [](Report& r) { r["prompts"][1]["prompt"] = r["prompts"][0]["prompt"]; }},
       {kRule, "sets/*/text", "overlap", [](Report& r) { r["sets"][0]["text"][1]["rows"] = 1; }},
       {kRule, "results", "batch-demo", again("results")},
       {kRule, "passes", "verify-rows", again("passes")},
       {kRule, "operations", "operations-slice", again("operations")},
       {kRule, "measures", "peers-q4-0-zen4", again("measures")},
       {kRule, "measures", "servers", again("measures")},
       {kRule, "measures/*/pairs", "servers",
        [](Report& r) { r["measures"][0]["pairs"][4] = r["measures"][0]["pairs"][1]; }}});
}

TEST(ContradictingReports, RowsAreThoseThatTheCommandAsksFor) {
  const auto command = [](std::vector<std::string> words) {
    return [words = std::move(words)](Report& r) {
      for (const std::string& word : words) r["command"].push_back(word);
    };
  };
  expect_refused(
      {{"provenance", "sets/*/set", "spec", [](Report& r) { r["sets"].erase(2); }},
       {"provenance", "sets/*/set", "spec", command({"--sets", "needle"})},
       {"provenance", "sets/*/set", "kl", [](Report& r) { r["sets"].erase(1); }},
       {"provenance", "sets/*/set", "overlap", [](Report& r) { r["sets"].erase(1); }},
       {"provenance", "texts/*/set|needles/*/set", "kv", command({"--texts", "code"})},
       {"provenance", "modes/3/mode", "kv", command({"--modes", "exact"})},
       {"provenance", "modes/1/mode", "niah", [](Report& r) { r["modes"][1]["mode"] = "bf16"; }},
       {"same-run", "modes/3/control", "niah", [](Report& r) { r["modes"][3].erase("control"); }},
       {"same-run", "modes/8/control", "kv", [](Report& r) { r["modes"][8]["control"] = "f32"; }},
       {"same-run", "modes/*/mode", "niah", [](Report& r) { r["modes"].erase(2); }},
       {"counts", "texts", "kv", [](Report& r) { r["texts"].erase(3); }},
       {"counts", "texts", "kv",
        [](Report& r) {
          r["texts"][0]["texts"] = 5;
          for (Report& mode : r["texts"][0]["modes"]) mode["positions"] = 5 * 511;
        }},
       {"counts", "sets/0/prompts", "spec-needle", [](Report& r) { r["sets"][0]["prompts"] = 39; }},
       {"counts", "sets/0/prompts", "spec-never", [](Report& r) { r["sets"][0]["prompts"] = 41; }},
       {"counts", "sets/0/windows", "kl",
        [](Report& r) {
          Report& windows = r["sets"][0]["windows"];
          while (windows.back()["text"] != windows[0]["text"]) windows.erase(windows.size() - 1);
        }},
       {"counts", "rows", "humaneval", [](Report& r) { r["rows"].erase(163); }},
       {"counts", "rows", "drafter-parity", [](Report& r) { r["rows"][0]["prompt"] = "mine"; }},
       {"counts", "options/prompts", "longrun", [](Report& r) { r["options"]["prompts"] = 79; }}});
}

// Samples that say that drafting was faster, and all that follows from them.
void make_fast(Report& set, double times) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < set["plain_seconds"].size(); ++i) {
    const double plain = set["plain_seconds"][i].get<double>();
    set["speculative_seconds"][i] = plain / times * (1.0 + 1e-3 * static_cast<double>(i));
    ratios.push_back(set["speculative_seconds"][i].get<double>() / plain);
  }
  set["time_ratio"] = median(ratios);
  set["speedup"] = 1.0 / median(ratios);
}

TEST(ContradictingReports, FiguresAreWhatRowsAllow) {
  expect_refused(
      {{"drafts-ran", "sets/0/speedup", "spec", [](Report& r) { make_fast(r["sets"][0], 4.0); }},
       {"headline", "arms/0/requests/1/seconds", "multitenant",
        [](Report& r) { r["arms"][0]["requests"][1]["seconds"] = 0.34; }},
       {"headline", "arms/0/requests/1/queue_seconds", "multitenant",
        [](Report& r) { r["arms"][0]["requests"][1]["queue_seconds"] = 0.3; }},
       {"counts", "arms/2/requests/2/accepted", "multitenant",
        [](Report& r) {
          r["arms"][2]["requests"][2]["drafted"] = 40;
          r["arms"][2]["requests"][2]["accepted"] = 30;
        }},
       {"counts", "buckets/0/tokens", "longrun",
        [](Report& r) { r["buckets"][0]["accepted"] = 2000; }},
       {"counts", "prompts/0/answers", "longrun",
        [](Report& r) {
          for (const char* name : {"answers", "equal"}) r["prompts"][0][name] = 100;
        }},
       {"recall", "rows/1", "gsm8k",
        [](Report& r) { r["rows"][1]["sha256"] = r["rows"][0]["sha256"]; }},
       {"recall", "rows/6/expected", "gsm8k", [](Report& r) { r["rows"][6]["expected"] = "261"; }},
       {"recall", "rows/6/expected", "gsm8k", [](Report& r) { r["rows"][6]["id"] = "gsm8k/101"; }},
       {"provenance", "problems_sha256", "humaneval",
        [](Report& r) { r["problems_sha256"] = std::string(64, 'a'); }},
       {"recall", "samples/7/replies", "niah",
        [](Report& r) {
          Report& replies = r["samples"][7]["replies"];
          replies[1]["sha256"] = replies[0]["sha256"];
          replies[1]["found"] = 1 - replies[0]["found"].get<int>();
        }},
       {"recall", "needles/0/modes/3/found", "kv",
        [](Report& r) {
          Report& needles = r["needles"][0];
          needles["modes"][3]["same_output"] = needles["prompts"];
          const auto reference = needles["reference_found"].get<int>();
          needles["modes"][3]["found"] = reference > 0 ? reference - 1 : 1;
        }},
       {"headline", "texts/0/modes/3/p99_kl", "kv", [](Report& r) {
          r["texts"][0]["modes"][3]["mean_kl"] = 0.0;
          r["texts"][0]["modes"][3]["p99_kl"] = 0.5;
        }}});
}

TEST(ContradictingReports, BenchmarksAreOfTheMachine) {
  const auto step = [](const char* name, double value) {
    return [=](Report& r) { r["results"][0][name] = value; };
  };
  constexpr const char* kMachine = "within-the-machine";
  expect_refused(
      {// Faster than the probe by half: of bytes that no cache holds.
       {kMachine, "passes/0/gb_per_s", "decode-slice",
        [](Report& r) { r["passes"][0]["bytes"] = r["passes"][0]["bytes"].get<double>() * 1.9; }},
       {kMachine, "measures/0/engines/kakeya/percent_of_probe", "peers-q4-0-zen4",
        [](Report& r) { r["measures"][0]["bytes"] = 1200000000; }},
       {kMachine, "bytes", "operations-slice", [](Report& r) { r["probe_gb_per_s"] = 15.0; }},
       {"bytes", "bytes", "operations-slice", [](Report& r) { r["bytes"] = 1e8; }},
       {"headline", "seconds", "operations-slice",
        [](Report& r) { r["sample_seconds"][0] = r["sample_seconds"][1]; }},
       {kMachine, "results/0/percent_of_probe", "batch-slice", step("percent_of_probe", 150.0)},
       {"headline", "results/0/percent_of_probe", "batch-slice", step("percent_of_probe", 20.0)},
       {"headline", "results/0/gap_seconds", "batch-slice", step("gap_seconds_p99", 0.01)},
       {"headline", "measures/0/pairs/0/kakeya/first_token_seconds", "servers",
        [](Report& r) {
          r["measures"][0]["pairs"][0]["kakeya"]["first_token_seconds_p99"] = 0.001;
        }},
       {"headline", "starts/kakeya", "peers-q4-0-zen4",
        [](Report& r) { r["starts"]["kakeya"][1]["load_seconds"] = 5.0; }},
       {"bytes", "memory/kakeya", "peers-q4-0-zen4",
        [](Report& r) { r["memory"]["kakeya"]["peak"] = 1000; }}});
}

std::string text_of(const std::string& set) {
  std::ifstream file(KAKEYA_SOURCE_DIR "/eval/data/" + set + ".jsonl", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(BuiltinSets, AreThoseOfTheData) {
  for (const char* set :
       {"humaneval", "mt_bench", "needle", "code", "prose", "wikitext2", "gsm8k"}) {
    const std::string text = text_of(set);
    EXPECT_EQ(builtin_prompts(set, 0), std::ranges::count(text, '\n')) << set;
  }
  EXPECT_EQ(builtin_prompts("humaneval-chat", 0), builtin_prompts("humaneval", 0));
  EXPECT_EQ(builtin_prompts("needle", 7), 7);
  EXPECT_EQ(builtin_prompts("needle", 70), 40);
  EXPECT_EQ(builtin_prompts("mine", 7), std::nullopt);
  for (const char* task : {"humaneval", "gsm8k"}) {
    EXPECT_EQ(builtin_problems_sha256(task), cli::text_sha256(text_of(task))) << task;
  }
  const auto problems = parse_problems(TaskKind::kGsm8k, text_of("gsm8k"), "gsm8k");
  ASSERT_TRUE(problems);
  for (const TaskProblem& problem : *problems) {
    EXPECT_EQ(builtin_answer(problem.id), problem.answer) << problem.id;
  }
  for (const char* id : {"gsm8k/0", "gsm8k/101", "gsm8k/", "gsm8k/1a", "HumanEval/1"}) {
    EXPECT_EQ(builtin_answer(id), "") << id;
  }
}

}  // namespace
}  // namespace kakeya::eval
