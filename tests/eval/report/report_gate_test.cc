// The gate passes the reports that this repository keeps, and no doctored one.
#include "eval/report/report_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "eval/report/made_reports.h"

namespace kakeya::eval {
namespace {

using testing::Contains;
using testing::Field;

// A report that is kept, or one that is made up: "made-longrun" and the like.
Report kept(const std::string& name) {
  if (name == "made-humaneval") return made_humaneval_report(kept("niah"));
  if (name == "made-gsm8k") return made_gsm8k_report(kept("niah"));
  if (name == "made-served") return made_served_report(kept("niah"));
  if (name == "made-served-niah") return made_served_niah_report(kept("niah"));
  if (name == "made-parity") return made_parity_report(kept("niah"));
  if (name == "made-longrun") return made_longrun_report(kept("niah"));
  if (name == "made-multitenant") return made_multitenant_report(kept("niah"));
  constexpr std::string_view kWithSession = "session-";
  if (name.starts_with(kWithSession)) {
    return made_session_report(kept(name.substr(kWithSession.size())));
  }
  return kept_report(name);
}

std::vector<std::string> kept_names() {
  std::vector<std::string> names;
  const std::filesystem::path results = KAKEYA_SOURCE_DIR "/docs/results";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(results)) {
    if (entry.path().extension() != ".json") continue;
    names.push_back(entry.path().lexically_relative(results).replace_extension().string());
  }
  std::ranges::sort(names);
  names.insert(names.end(),
               {"made-longrun", "made-multitenant", "made-humaneval", "made-gsm8k", "made-served",
                "made-served-niah", "made-parity", "session-spec", "session-kv", "session-niah",
                "session-perplexity", "session-kl", "session-overlap", "session-gsm8k",
                "session-longrun", "session-multitenant", "session-made-parity"});
  return names;
}

TEST(ReportGate, PassesWhatIsKept) {
  const std::vector<std::string> names = kept_names();
  ASSERT_GT(names.size(), 10U);
  for (const std::string& name : names) {
    for (const GateFinding& finding : check_report(kept(name))) {
      ADD_FAILURE() << name << ": " << finding.rule << ": " << finding.at << ": " << finding.says;
    }
  }
}

struct Doctored {
  const char* rule;
  const char* report;
  std::function<void(Report&)> doctor;
};

// Mode number `index` of the first text that is longer than its windows.
Report& text_mode(Report& kv, std::size_t index) {
  return kv["texts"][2]["modes"][index];
}

std::size_t mode_index(const Report& kv, const std::string& name) {
  std::size_t index = 0;
  while (kv["modes"][index]["mode"] != name) ++index;
  return index;
}

// The reply of a mode to one of the prompts.
Report& needle_reply(Report& niah, const std::string& mode) {
  return niah["samples"][7]["replies"][mode_index(niah, mode)];
}

// Reports of needles in haystacks.
std::vector<Doctored> doctored_needles() {
  return {
      {"counts", "niah", [](Report& r) { r["samples"][3]["tokens"] = 500; }},
      {"counts", "niah", [](Report& r) { r["samples"].erase(r["samples"].size() - 1); }},
      {"fields", "niah", [](Report& r) { needle_reply(r, "exact").erase("found"); }},
      {"recall", "niah", [](Report& r) { r["claims"][0]["recall"] = 0.999; }},
      {"recall", "niah", [](Report& r) { r["claims"][0]["low"] = 0.9; }},
      {"recall", "niah", [](Report& r) { r["claims"][0].erase("high"); }},
      {"recall", "niah",
       [](Report& r) {
         Report& found = needle_reply(r, "exact")["found"];
         found = 1 - found.get<int>();
       }},
      {"recall", "niah", [](Report& r) { needle_reply(r, "int8")["found"] = 2; }},
      // The oracle is not of this run.
      {"same-run", "niah", [](Report& r) { r["modes"][0]["mode"] = "bf16"; }},
      {"same-run", "niah", [](Report& r) { r["samples"][7]["replies"].erase(0); }},
      {"samples", "niah", [](Report& r) { r["samples"].erase(7); }},
      // Nothing was dropped or restored, or what was restored is read by nobody.
      {"alive", "niah", [](Report& r) { needle_reply(r, "drop-full")["evicted_rows"] = 0; }},
      {"alive", "niah",
       [](Report& r) { needle_reply(r, "restore-full-aux")["restored_rows"] = 0; }},
      {"alive", "niah",
       [](Report& r) { needle_reply(r, "restore-full-aux")["codes_matter"] = false; }},
      {"alive", "niah", [](Report& r) { needle_reply(r, "exact")["evicted_rows"] = 3; }},
      // A server's replies among an engine's, and the other way round.
      {"same-run", "niah", [](Report& r) { r["modes"][1]["mode"] = kServedMode; }},
      {"same-run", "made-served-niah", [](Report& r) { r["modes"][0]["mode"] = "exact"; }},
      {"fields", "made-served-niah", [](Report& r) { r.erase("server"); }},
      {"fields", "made-served-niah", [](Report& r) { r["compute"] = "f32"; }},
      {"recall", "made-served-niah", [](Report& r) { r["claims"][0]["recall"] = 0.5; }},
  };
}

std::vector<Doctored> doctored_long_runs() {
  constexpr const char* kMade = "made-longrun";
  const auto bucket = [](Report& r, std::size_t index) -> Report& { return r["buckets"][index]; };
  return {
      {"gap", kMade, [](Report& r) { r["complete"] = false; }},
      // A bucket is gone: the last one, or one before it.
      {"gap", kMade, [](Report& r) { r["buckets"].erase(5); }},
      {"gap", kMade, [](Report& r) { r["buckets"].erase(2); }},
      {"gap", kMade, [=](Report& r) { bucket(r, 3)["begin_seconds"] = 1810.0; }},
      {"gap", kMade, [=](Report& r) { bucket(r, 0)["begin_seconds"] = 1.0; }},
      {"gap", kMade,
       [=](Report& r) {
         bucket(r, 2)["end_seconds"] = 1700.0;
         bucket(r, 3)["begin_seconds"] = 1700.0;
       }},
      {"gap", kMade, [](Report& r) { r["seconds"] = 7200.0; }},
      {"gap", kMade, [](Report& r) { r["options"]["minutes"] = 120.0; }},
      {"counts", kMade, [](Report& r) { r["tokens"] = 99000000; }},
      {"counts", kMade, [=](Report& r) { bucket(r, 1)["tokens"] = 1900000; }},
      {"counts", kMade, [](Report& r) { r["conversations"] = 9; }},
      {"counts", kMade, [=](Report& r) { bucket(r, 1)["accepted"] = 900000; }},
      {"counts", kMade, [](Report& r) { r["options"]["tokens"] = 100; }},
      {"counts", kMade, [](Report& r) { r["prompts"].erase(1); }},
      {"samples", kMade, [=](Report& r) { bucket(r, 4)["rounds"] = 50; }},
      {"samples", kMade, [](Report& r) { r["options"]["buckets"] = 5; }},
      {"long-enough", kMade, [=](Report& r) { bucket(r, 1)["end_seconds"] = 600.05; }},
      {"headline", kMade, [=](Report& r) { bucket(r, 1)["tokens_per_second"] = 9000.0; }},
      {"headline", kMade, [](Report& r) { r["verdict"]["p50_ratio"] = 1.0; }},
      {"headline", kMade, [=](Report& r) { bucket(r, 5)["p50_ms"] = 1.0; }},
      {"headline", kMade, [=](Report& r) { bucket(r, 2)["p95_ms"] = 0.5; }},
      // More than the bucket's time.
      {"headline", kMade, [=](Report& r) { bucket(r, 2)["rounds"] = 1500000; }},
      {"bytes", kMade, [=](Report& r) { bucket(r, 3)["ledger_bytes"] = 25000064; }},
      {"bytes", kMade, [](Report& r) { r["verdict"]["flat"] = false; }},
      {"bytes", kMade, [](Report& r) { r["verdict"]["resident_growth"] = 0; }},
      {"lossless", kMade, [](Report& r) { r["prompts"][0]["equal"] = 307; }},
      {"lossless", kMade, [](Report& r) { r["prompts"][0].erase("sha256"); }},
      {"lossless", kMade, [](Report& r) { r["verdict"]["answers_equal"] = false; }},
      {"lossless", kMade,
       [](Report& r) {
         r["failures"].push_back(
             {{"conversation", 3}, {"prompt", "a"}, {"seconds", 1.0}, {"error", "no memory"}});
       }},
      {"drafts-ran", kMade, [](Report& r) { r["options"]["draft_length"] = "0"; }},
  };
}

std::vector<Doctored> doctored_tasks() {
  constexpr const char* kCode = "made-humaneval";
  constexpr const char* kNumbers = "made-gsm8k";
  constexpr const char* kServed = "made-served";
  const auto row = [](Report& r) -> Report& { return r["rows"][7]; };
  return {
      {"schema", kCode, [](Report& r) { r["options"]["task"] = "mbpp"; }},
      {"schema", kCode, [](Report& r) { r["options"]["prompt"] = "none"; }},
      {"fields", kCode, [=](Report& r) { row(r).erase("sha256"); }},
      {"fields", kCode, [=](Report& r) { row(r)["prompt_sha256"] = "none"; }},
      {"fields", kCode, [](Report& r) { r.erase("problems_sha256"); }},
      {"fields", kCode, [=](Report& r) { row(r)["verdict"] = "good"; }},
      {"fields", kCode, [=](Report& r) { row(r)["got"] = "7"; }},
      {"fields", kNumbers, [=](Report& r) { row(r)["expected"] = "7.0"; }},
      {"fields", kNumbers, [=](Report& r) { row(r).erase("expected"); }},
      // Code that ran unconfined, without anybody's word.
      {"provenance", kCode, [](Report& r) { r.erase("python"); }},
      {"provenance", kCode, [](Report& r) { r["python"]["network_blocked"] = false; }},
      {"provenance", kCode, [](Report& r) { r["python"]["files_blocked"] = false; }},
      {"provenance", kCode, [](Report& r) { r["python"]["unconfined"] = true; }},
      {"provenance", kNumbers, [](Report& r) { r["python"] = kept("made-humaneval")["python"]; }},
      // Passes and their interval are those of the rows.
      {"recall", kCode, [](Report& r) { r["summary"]["passed"] = 6; }},
      {"recall", kCode, [](Report& r) { r["summary"]["score"] = 0.9; }},
      {"recall", kCode, [](Report& r) { r["summary"]["low"] = 0.2; }},
      {"recall", kCode, [](Report& r) { r["summary"]["high"] = 0.5; }},
      {"recall", kCode, [](Report& r) { r["summary"]["timed_out"] = 0; }},
      {"recall", kCode, [=](Report& r) { row(r)["verdict"] = "passed"; }},
      {"recall", kCode, [](Report& r) { r["rows"].erase(7); }},
      {"recall", kNumbers, [=](Report& r) { row(r)["got"] = "7"; }},
      {"recall", kNumbers, [=](Report& r) { row(r).erase("got"); }},
      {"samples", kCode,
       [](Report& r) {
         while (r["rows"].size() > 19) r["rows"].erase(0);
       }},
      {"counts", kCode, [](Report& r) { r["rows"].push_back(r["rows"][0]); }},
      {"counts", kCode, [](Report& r) { r["options"]["limit"] = 23; }},
      {"counts", kCode, [=](Report& r) { row(r)["rounds"] = 17; }},
      {"counts", kCode, [=](Report& r) { row(r)["accepted"] = 10; }},
      {"counts", kCode, [=](Report& r) { row(r)["drafted"] = 11; }},
      {"counts", kCode, [](Report& r) { r["summary"]["accepted"] = 1000; }},
      {"headline", kCode, [](Report& r) { r["summary"]["tokens_per_round"] = 5.0; }},
      {"headline", kCode, [](Report& r) { r["summary"]["tokens_per_second"] = 5000.0; }},
      {"headline", kCode, [=](Report& r) { row(r)["decode_seconds"] = 0.001; }},
      {"never-past-the-end", kCode, [=](Report& r) { row(r)["tokens"] = 65; }},
      {"never-past-the-end", kCode, [=](Report& r) { row(r)["tokens"] = 0; }},
      {"drafts-ran", kCode, [](Report& r) { r["draft"] = "none"; }},
      {"drafts-ran", kCode, [](Report& r) { r["options"]["draft_length"] = "0"; }},
      // Equality with plain decoding is said where it was measured, and held.
      {"lossless", kCode, [=](Report& r) { row(r)["plain_sha256"] = std::string(64, 'c'); }},
      {"lossless", kCode,
       [=](Report& r) {
         row(r)["plain_sha256"] = std::string(64, 'c');
         r["summary"]["equal_plain"] = 23;
       }},
      {"lossless", kCode, [=](Report& r) { row(r).erase("plain_sha256"); }},
      {"lossless", kCode, [](Report& r) { r["summary"].erase("equal_plain"); }},
      {"lossless", kCode, [](Report& r) { r["options"]["compare_plain"] = false; }},
      // Reports of a server, which says nothing of drafts.
      {"schema", kServed, [](Report& r) { r["options"]["task"] = "mbpp"; }},
      {"fields", kServed, [](Report& r) { r.erase("server"); }},
      {"fields", kServed, [=](Report& r) { row(r)["rounds"] = 3; }},
      {"fields", kServed, [](Report& r) { r["summary"]["tokens_per_round"] = 3.0; }},
      {"fields", kServed, [](Report& r) { r["weights"] = std::string(64, 'a'); }},
      {"recall", kServed, [](Report& r) { r["summary"]["passed"] = 20; }},
      {"recall", kServed, [=](Report& r) { row(r)["verdict"] = "passed"; }},
      {"counts", kServed, [](Report& r) { r["summary"]["tokens"] = 1; }},
      {"headline", kServed, [](Report& r) { r["summary"]["tokens_per_second"] = 5000.0; }},
      {"never-past-the-end", kServed, [=](Report& r) { row(r)["tokens"] = 65; }},
      {"provenance", kServed, [](Report& r) { r["python"] = kept("made-humaneval")["python"]; }},
  };
}

std::vector<Doctored> doctored_divergences() {
  const auto window = [](Report& r) -> Report& { return r["sets"][0]["windows"][0]; };
  return {
      {"counts", "kl", [=](Report& r) { window(r)["tokens"] = 5000; }},
      {"counts", "kl", [=](Report& r) { window(r)["same_top"] = 512; }},
      // Windows that are longer than what was run.
      {"counts", "kl", [](Report& r) { r["options"]["length"] = 1025; }},
      {"counts", "perplexity", [](Report& r) { r["options"]["window"] = 1025; }},
      {"exact-is-exact", "kl", [=](Report& r) { window(r)["divergence"] = 0.0; }},
      {"headline", "kl", [](Report& r) { r["sets"][1]["mean"] = 0.0; }},
      {"headline", "kl", [](Report& r) { r["sets"][1]["high"] = 0.0; }},
      {"headline", "kl", [](Report& r) { r["sets"][1]["top_agreement"] = 1.0; }},
      {"headline", "kl", [](Report& r) { r["sets"][2]["perplexity"] = 1.5; }},
      {"headline", "kl", [](Report& r) { r["sets"][2]["p99"] = 1e6; }},
  };
}

std::vector<Doctored> all_doctored() {
  return {
      {"schema", "spec", [](Report& r) { r["schema"] = "kakeya.eval.spec/9"; }},
      {"schema", "spec", [](Report& r) { r.erase("schema"); }},
      {"fields", "kv", [](Report& r) { r["conditions"].erase("started"); }},
      {"fields", "kv", [](Report& r) { r["recall"] = 1.0; }},
      {"fields", "spec", [](Report& r) { r["commit"] = nullptr; }},
      {"fields", "spec", [](Report& r) { r["sets"][0]["plain_seconds"][1] = -1.0; }},
      {"fields", "spec", [](Report& r) { r["sets"] = Report::array(); }},
      {"provenance", "spec", [](Report& r) { r["dirty"] = true; }},
      {"provenance", "decode-slice", [](Report& r) { r["threads"] = 64; }},
      {"counts", "spec", [](Report& r) { r["sets"][0]["rounds"] = 20000; }},
      {"counts", "spec",
       [](Report& r) { r["sets"][1]["acceptance_by_depth"][0]["accepted"] = 1510; }},
      {"counts", "kv", [](Report& r) { text_mode(r, 3)["positions"] = 1; }},
      {"headline", "spec", [](Report& r) { r["sets"][0]["speedup"] = 1.6; }},
      {"headline", "spec", [](Report& r) { r["slowest_time_ratio"] = 0.9; }},
      {"headline", "decode-slice", [](Report& r) { r["passes"][0]["percent_of_probe"] = 95.0; }},
      {"headline", "peers-q4-0-zen4", [](Report& r) { r["measures"][0]["ratio"]["median"] = 1.2; }},
      {"headline", "peers-q4-0-zen4",
       [](Report& r) {
         r["measures"][0]["engines"]["kakeya"]["tokens_per_second"]["median"] = 40.0;
       }},
      {"headline", "operations-slice", [](Report& r) { r["operations"][0]["gb_per_s"] = 31.0; }},
      {"same-run", "spec", [](Report& r) { r["sets"][0]["plain_seconds"].erase(0); }},
      {"same-run", "kv", [](Report& r) { text_mode(r, 4)["reference_perplexity"] = 50.0; }},
      {"headline", "perplexity-smollm2", [](Report& r) { r["engines"][2]["perplexity"] = 19.0; }},
      {"headline", "perplexity-smollm2", [](Report& r) { r["engines"][1]["ratio"] = 1.0; }},
      {"counts", "perplexity-smollm2", [](Report& r) { r["engines"][3]["running"].erase(0); }},
      {"same-run", "peers-q4-0-zen4", [](Report& r) { r["pairs"] = 8; }},
      {"samples", "spec",
       [](Report& r) {
         r["options"]["pairs"] = 2;
         for (Report& set : r["sets"]) {
           for (const char* name : {"plain_seconds", "speculative_seconds"}) {
             set[name].erase(set[name].begin() + 2, set[name].end());
           }
         }
       }},
      {"once", "spec", [](Report& r) { r["sets"][1] = r["sets"][0]; }},
      {"within-the-run", "spec", [](Report& r) { r["conditions"]["seconds"] = 120.0; }},
      {"long-enough", "spec",
       [](Report& r) {
         for (Report& seconds : r["sets"][3]["plain_seconds"]) seconds = 0.01;
       }},
      {"spread", "spec", [](Report& r) { r["sets"][0]["plain_seconds"][0] = 40.0; }},
      {"spread", "decode-slice", [](Report& r) { r["passes"][0]["sample_seconds"][0] = 0.5; }},
      {"lossless", "spec", [](Report& r) { r["sets"][0]["differing"].push_back("HumanEval/3"); }},
      {"lossless", "spec",
       [](Report& r) { r["sets"][0]["speculative_sha256"] = std::string(64, 'a'); }},
      {"lossless", "spec", [](Report& r) { r["outputs_equal"] = false; }},
      {"drafts-ran", "spec-never", [](Report& r) { r["sets"][0]["drafted"] = 5; }},
      {"drafts-ran", "spec-rejection", [](Report& r) { r["sets"][0]["accepted"] = 5; }},
      {"drafts-ran", "spec-rejection", [](Report& r) { r["sets"][0]["speedup"] = 1.5; }},
      {"never-past-the-end", "spec", [](Report& r) { r["sets"][2]["tokens"] = 200000; }},
      {"exact-is-exact", "kv", [](Report& r) { text_mode(r, 0)["mean_kl"] = 0.001; }},
      {"exact-is-exact", "kv", [](Report& r) { r["needles"][0]["modes"][0]["same_output"] = 7; }},
      {"exact-is-exact", "kv", [](Report& r) { r["exact"] = false; }},
      // Restoring did not run: the rows were simply dropped, or kept.
      {"alive", "kv",
       [](Report& r) {
         text_mode(r, mode_index(r, "restore-aux"))["mean_kl"] =
             text_mode(r, mode_index(r, "drop"))["mean_kl"];
       }},
      {"alive", "kv", [](Report& r) { text_mode(r, mode_index(r, "drop"))["mean_kl"] = 0.0; }},
      {"bytes", "kv", [](Report& r) { text_mode(r, 5)["kv_bytes"]["total"] = 1000; }},
      {"bytes", "kv",
       [](Report& r) {
         Report& bytes = text_mode(r, mode_index(r, "drop"))["kv_bytes"];
         bytes = text_mode(r, 0)["kv_bytes"];
       }},
      {"recall", "kv", [](Report& r) { r["needles"][1]["modes"][2]["found"] = 9; }},
      {"recall", "kv", [](Report& r) { r["needles"][1]["prompts"] = 4; }},
      {"recall", "spec", [](Report& r) { r["sets"][3]["recall"]["speculative"] = 0; }},
      {"within-the-machine", "decode-slice", [](Report& r) { r["passes"][0]["bytes"] = 2e10; }},
  };
}

TEST(ReportGate, EachRuleRejectsADoctoredReport) {
  std::set<std::string> rules;
  std::vector<Doctored> all = all_doctored();
  for (const auto& more :
       {doctored_needles(), doctored_long_runs(), doctored_tasks(), doctored_divergences()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  for (const Doctored& doctored : all) {
    Report report = kept(doctored.report);
    doctored.doctor(report);
    EXPECT_THAT(check_report(report), Contains(Field(&GateFinding::rule, doctored.rule)))
        << doctored.report << ", " << doctored.rule;
    rules.insert(doctored.rule);
  }
  // Tested with other files: line_gate_test.cc, and TheGateReadsAllFilesOfAFolder.
  for (const char* other : {"agreement", "history", "read"}) rules.insert(other);
  for (const GateRule& rule : gate_rules())
    EXPECT_TRUE(rules.contains(std::string(rule.name))) << rule.name;
}

// A value of a report and where it is.
struct Leaf {
  Report* value;
  std::string at;
};

void collect(Report& value, const std::string& at, std::vector<Leaf>& leaves) {
  if (!value.is_structured()) {
    leaves.push_back({&value, at});
    return;
  }
  const auto below = [&](const std::string& name) { return at.empty() ? name : at + "/" + name; };
  std::size_t index = 0;
  for (auto item = value.begin(); item != value.end(); ++item, ++index) {
    collect(*item, below(value.is_object() ? item.key() : std::to_string(index)), leaves);
  }
}

// Another value of the same type, or one of another type.
Report mutated(const Report& value, SequenceRng& random) {
  if (random.below(8) == 0) return value.is_string() ? Report(1) : Report("text");
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    return random.below(2) == 0 ? number + 1 : number * 2 + 1;
  }
  if (value.is_number()) {
    const double number = value.get<double>();
    return random.below(2) == 0 ? number * 1.01 + 1e-3 : number * 0.5 + 1e-3;
  }
  auto text = value.get<std::string>();
  if (text.empty()) return Report("word");  // of a command
  text[random.below(text.size())] ^= 1;
  return text;
}

// Whatever passes, a claim does not rest on it: samples, from which claims are computed anew, and
// circumstances.
TEST(ReportGate, OfAThousandMutationsNoneChangesAClaim) {
  SequenceRng random(17);
  std::vector<Report> reports;
  for (const std::string& name : kept_names()) {
    Report report = kept(name);
    // Its other texts are of the same kind.
    if (report.contains("texts")) {
      while (report["texts"].size() > 1) report["texts"].erase(1);
    }
    reports.push_back(std::move(report));
  }
  int rejected = 0;
  for (int i = 0; i < 1000; ++i) {
    Report report = reports[random.below(reports.size())];
    std::vector<Leaf> leaves;
    collect(report, "", leaves);
    const Leaf& leaf = leaves[random.below(leaves.size())];
    const std::string at = leaf.at;
    const std::string before = leaf.value->dump();
    *leaf.value = mutated(*leaf.value, random);
    const std::string after = leaf.value->dump();
    if (!check_report(report).empty()) {
      ++rejected;
      continue;
    }
    const ReportField* field = find_field(report_fields(report["schema"].get<std::string>()), at);
    ASSERT_NE(field, nullptr) << at;
    EXPECT_NE(field->role, FieldRole::kChecked)
        << report["schema"] << " " << at << " was " << before << ", is " << after;
  }
  EXPECT_GT(rejected, 500);
}

}  // namespace
}  // namespace kakeya::eval
