// Tests that a report says of its flags what its command says, that what restored rows is named,
// and that numbers and intervals are real ones.
#include "eval/report/report_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "eval/report/made_reports.h"
#include "eval/report/report_rules.h"
#include "formats/scratch_files.h"

namespace kakeya::eval {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(ParseCommand, TakesFlagsAsTheProgramDoes) {
  const auto flags = command_flags("niah");
  const auto parsed = [&](const std::vector<std::string>& words) {
    return parse_command(words, flags);
  };
  const ReportCommand spaced =
      parsed({"--lengths", "512,1024", "2048", "--seed", "7", "-n", "9", "--json"});
  EXPECT_EQ(spaced.unknown, "");
  EXPECT_THAT(spaced.given.at("--lengths"), ElementsAre("512", "1024", "2048"));
  EXPECT_THAT(spaced.given.at("--max-tokens"), ElementsAre("9"));
  EXPECT_THAT(spaced.given.at("--json"), IsEmpty());
  EXPECT_EQ(spaced.value("--seed", "42"), "7");
  EXPECT_EQ(spaced.value("--hops", "0"), "0");
  const ReportCommand joined = parsed({"--seed=7", "-n9", "--file", "-", "-mDIR"});
  EXPECT_EQ(joined.value("--seed", ""), "7");
  EXPECT_EQ(joined.value("--max-tokens", ""), "9");
  EXPECT_EQ(joined.value("--file", ""), "-");
  EXPECT_EQ(joined.value("--model", ""), "DIR");
  EXPECT_EQ(parsed({"--seed", "7", "--sead", "8"}).unknown, "--sead");
  EXPECT_EQ(parsed({"7"}).unknown, "7");
  EXPECT_EQ(parsed({"--json", "extra"}).unknown, "extra");
}

struct Edit {
  const char* at;  // where it is found
  Report report;
  std::function<void(Report&)> edit;
};

void expect_found(const std::vector<Edit>& edits, const char* rule) {
  for (const Edit& edit : edits) {
    Report report = edit.report;
    EXPECT_THAT(check_report(report), Not(Contains(Field(&GateFinding::at, edit.at)))) << edit.at;
    edit.edit(report);
    EXPECT_THAT(check_report(report),
                Contains(AllOf(Field(&GateFinding::rule, rule), Field(&GateFinding::at, edit.at))))
        << report["schema"] << " " << edit.at;
  }
}

// Options that another command would have had.
TEST(ReportCommand, OptionsAreThoseOfTheCommand) {
  const auto option = [](const char* name, Report value) {
    return [name, value = std::move(value)](Report& r) { r["options"][name] = value; };
  };
  const auto command = [](std::vector<std::string> words) {
    return [words = std::move(words)](Report& r) {
      for (const std::string& word : words) r["command"].push_back(word);
    };
  };
  const Report niah = kept_report("niah");
  expect_found(
      {
          {"options/limit", kept_report("spec-never"), option("limit", 0)},
          {"options/draft_length", kept_report("spec-never"), option("draft_length", "auto")},
          {"options/forced_rejection", kept_report("spec"), option("forced_rejection", true)},
          {"options/temperature", kept_report("spec"), option("temperature", 0.5)},
          {"options/mask_mode", kept_report("spec"), option("mask_mode", "causal")},
          {"options/seed", kept_report("spec"), command({"--seed=3"})},
          {"sets/*/set", kept_report("spec-needle"), command({"--sets", "needle,code"})},
          {"options/chunk", kept_report("kv"), option("chunk", 512)},
          {"options/lengths/*", kept_report("kv-loss-mse"), command({"--lengths", "4096"})},
          {"modes/*/mode", kept_report("kv-codes"), command({"--modes", "e8"})},
          {"options/window", kept_report("perplexity"), command({"--length", "1024"})},
          {"options/limit", kept_report("kl"), option("limit", 2)},
          {"reference/compute", kept_report("kl"), command({"--reference-compute", "fast"})},
          {"options/draft_length", kept_report("overlap"), option("draft_length", 7)},
          {"options/max_tokens", kept_report("overlap"), option("max_tokens", 65)},
          {"options/seed", niah, option("seed", 43)},
          {"options/samples", niah, command({"--limit", "2"})},
          {"options/haystack", niah, command({"--file", "book.txt"})},
          {"options/max_tokens", niah, command({"-n", "32"})},
          {"options/compare_plain", kept_report("gsm8k"), option("compare_plain", false)},
          {"options/prompt", kept_report("gsm8k"), command({"--raw"})},
          {"python/seconds", kept_report("humaneval"), command({"--seconds", "10"})},
          {"python/unconfined", kept_report("humaneval"), command({"--unconfined"})},
          {"options/minutes", kept_report("longrun"), command({"--minutes", "90"})},
          {"options/buckets", kept_report("longrun"), command({"--bucket-minutes", "5"})},
          {"options/evicted_full", kept_report("longrun"), option("evicted_full", "keep")},
          {"options/pairs", kept_report("multitenant"), option("pairs", 4)},
          {"options/block_tokens", kept_report("drafter-parity"), option("block_tokens", 6)},
          {"options/pairs", kept_report("servers"), option("pairs", 6)},
          {"options/words", kept_report("servers"), option("words", 61)},
          {"measures/*/clients", kept_report("servers"), command({"--clients", "1,8"})},
          {"pairs", kept_report("peers-q4-0-zen4"), command({"--pairs", "5"})},
          {"tokens", kept_report("batch-drafts"), [](Report& r) { r["tokens"] = 32; }},
          {"draft_length", kept_report("batch-drafts"), [](Report& r) { r["draft_length"] = 0; }},
          {"results/*/sessions", kept_report("batch-demo"), command({"--sessions=1,2"})},
          {"model", kept_report("spec"), command({"--model", "another"})},
          {"compute", kept_report("kl"), command({"--compute", "f32"})},
          {"server", made_served_niah_report(niah), [](Report& r) { r["server"] = "http://x"; }},
          {"command", kept_report("kv"), command({"--quality", "best"})},
          {"command", kept_report("kv"), [](Report& r) { r["command"][2] = "niah"; }},
      },
      "provenance");
}

// Kept reports have modes that were removed, and e8 with a control. A report of today has neither.
TEST(ReportCommand, ModesAreThoseOfTheReportsTime) {
  const Report kept = kept_report("kv-codes-smollm2");
  EXPECT_THAT(check_report(kept), IsEmpty());
  expect_found({{"modes/5/control", kept, [](Report& r) { r["modes"][5].erase("control"); }}},
               "same-run");
  Report today = kept;
  const auto erase = [](Report& modes) {
    for (int i = 0; i < 3; ++i) modes.erase(2);
  };
  erase(today["modes"]);
  today["modes"][2].erase("control");
  for (Report& text : today["texts"]) erase(text["modes"]);
  *std::next(std::ranges::find(today["command"], Report("--modes"))) =
      "exact,int8,e8,k6v6,k5v5,k4v4,k4v4-last,k3v3,k2v2,drop-512";
  EXPECT_THAT(check_report(today), IsEmpty());
  expect_found({{"modes/2/control", today, [](Report& r) { r["modes"][2]["control"] = "int8"; }}},
               "same-run");
}

// Every flag of sessions, and every kind of report that has an engine.
TEST(ReportCommand, SessionsAreThoseOfTheCommand) {
  const Report perplexity = made_session_report(kept_report("perplexity"));
  for (const auto& [name, value] : perplexity["session"].items()) {
    const Report other = value.is_boolean()  ? Report(true)
                         : value.is_string() ? Report("other")
                                             : Report(7);
    expect_found({{("session/" + name).c_str(), perplexity,
                   [&, key = name](Report& r) { r["session"][key] = other; }}},
                 "provenance");
  }
  for (const char* name : {"spec", "kv", "niah", "kl", "overlap", "gsm8k", "longrun", "multitenant",
                           "drafter-parity"}) {
    expect_found({{"session/kv_full", made_session_report(kept_report(name)),
                   [](Report& r) { r["session"]["kv_full"] = "e8"; }},
                  {"session/chunk", made_session_report(kept_report(name)),
                   [](Report& r) { r["session"]["chunk"] = 64; }}},
                 "provenance");
    Report without = made_session_report(kept_report(name));
    without.erase("session");
    EXPECT_THAT(check_report(without), Contains(Field(&GateFinding::rule, "fields"))) << name;
  }
}

TEST(ReportCommand, WhatRestoredRowsIsNamed) {
  const Report kv = made_session_report(kept_report("kv"));
  const Report niah = made_session_report(kept_report("niah"));
  const auto restores = [](Report& r) {
    r["session"]["evicted_full"] = "restore";
    for (const char* word : {"--evicted-full", "restore"}) r["command"].push_back(word);
  };
  expect_found({{"projections", kv, [](Report& r) { r["projections"].erase(1); }},
                {"projections", kv, [](Report& r) { r["projections"] = Report::array(); }},
                {"projections", niah, [](Report& r) { r["projections"][0]["name"] = "codes"; }},
                {"projections", made_session_report(kept_report("perplexity")), restores}},
               "provenance");
  Report named = made_session_report(kept_report("perplexity"));
  restores(named);
  named["projections"].push_back({{"name", "session"}, {"fingerprint", std::string(16, 'a')}});
  EXPECT_THAT(check_report(named), IsEmpty());
  expect_found({{"projections/0/fingerprint", named,
                 [](Report& r) { r["projections"][0]["fingerprint"] = "some"; }}},
               "fields");
}

TEST(RuleChecks, NoNumberEqualsWhatIsNotFinite) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto holds = [](double expected, double got) {
    std::vector<GateFinding> findings;
    RuleChecks(findings).expect_number(expected, Report(got), "headline", "here");
    return findings.empty();
  };
  EXPECT_TRUE(holds(0.1 + 0.2, 0.3));
  EXPECT_TRUE(holds(0.0, 0.0));
  EXPECT_FALSE(holds(0.3, 0.300001));
  for (const double value : {kInfinite, -kInfinite, kNone}) {
    EXPECT_FALSE(holds(value, 3.0)) << value;
    EXPECT_FALSE(holds(3.0, value)) << value;
    EXPECT_FALSE(holds(value, value)) << value;
  }
}

TEST(Intervals, OfOneWindowThereAreNone) {
  for (const auto& [name, at] :
       {std::pair("perplexity", "sets/0/low"), std::pair("kl", "sets/0/high")}) {
    const auto one_window = [](Report& r) {
      while (r["sets"][0]["windows"].size() > 1) r["sets"][0]["windows"].erase(0);
    };
    expect_found({{at, kept_report(name), one_window},
                  {at, made_session_report(kept_report(name)), one_window},
                  {at, made_session_report(kept_report(name)),
                   [](Report& r) {
                     r["sets"][0].erase("low");
                     r["sets"][0].erase("high");
                   }}},
                 "samples");
    Report report = made_session_report(kept_report(name));
    one_window(report);
    for (const char* bound : {"low", "high"}) report["sets"][0].erase(bound);
    EXPECT_THAT(check_report(report), Not(Contains(Field(&GateFinding::rule, "samples"))));
  }
}

TEST(ReportGate, SaysWhatIsNoReport) {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& text) {
    std::ofstream(folder.path("report.json")) << text;
    const auto report = read_report(folder.path("report.json"));
    return report ? std::string("read") : report.error().message();
  };
  EXPECT_THAT(refused(""), testing::HasSubstr("expected a JSON object"));
  EXPECT_THAT(refused("[1, 2]"), testing::HasSubstr("expected a JSON object"));
  EXPECT_THAT(refused(std::string(100000, '[')), testing::HasSubstr("expected a JSON object"));
  EXPECT_EQ(refused("{}"), "read");
  EXPECT_EQ(read_report(folder.path("none.json")).error().code(), StatusCode::kNotFound);
  EXPECT_THAT(check_report(Report()), Contains(Field(&GateFinding::rule, "schema")));
}

}  // namespace
}  // namespace kakeya::eval
