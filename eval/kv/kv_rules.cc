// Reports of `kakeya eval kv`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/median.h"
#include "eval/kv/kv_bytes_rules.h"
#include "eval/report/builtin_sets.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

namespace kakeya::eval {
namespace {

void check_length(const Report& report,
                  const Report& entry,
                  const std::string& at,
                  RuleChecks& checks) {
  checks.expect(std::ranges::count(report["options"]["lengths"], entry["length"]) > 0, "counts",
                at + "/length", "expected a length that was asked for");
}

// Checks a mode's results for one text, beside the exact mode's.
void check_text_mode(const Report& mode,
                     const Report& exact,
                     const Report& text,
                     const std::string& at,
                     RuleChecks& checks) {
  checks.expect_count(count(text["texts"]) * (count(text["length"]) - 1), mode["positions"],
                      "counts", at + "/positions");
  checks.expect(mode["reference_perplexity"] == exact["reference_perplexity"], "same-run",
                at + "/reference_perplexity", "expected one reference for all modes of a text");
  checks.expect(mode["perplexity"].get<double>() >= 1.0, "headline", at + "/perplexity",
                "expected 1 or more");
  const Report& bytes = mode["kv_bytes"];
  checks.expect_count(count(bytes["full"]) + count(bytes["sliding"]) + count(bytes["codes"]),
                      bytes["total"], "bytes", at + "/kv_bytes/total");
  checks.expect(mode["mean_kl"] != 0.0 || mode["p99_kl"] == 0.0, "headline", at + "/p99_kl",
                "expected 0 of divergences whose mean is 0");
  const std::string name = mode["mode"].get<std::string>();
  if (name == "exact") {
    checks.expect(mode["mean_kl"] == 0.0 && mode["p99_kl"] == 0.0 &&
                      mode["top1_agreement"] == 1.0 &&
                      mode["perplexity"] == mode["reference_perplexity"],
                  "exact-is-exact", at, "expected no divergence at all");
  }
  // Behind windows of up to 512 tokens every longer text has rows that are gone.
  const bool evicts = name.starts_with("drop") || name.starts_with("restore");
  if (!evicts || count(text["length"]) <= 512) return;
  checks.expect(mode["mean_kl"].get<double>() > 0.0, "alive", at + "/mean_kl",
                "expected the output to change where rows are dropped or restored, got 0");
  // Codes of restored rows may take more than the rings that they stand in for.
  if (!name.starts_with("drop")) return;
  checks.expect(count(bytes["total"]) < count(exact["kv_bytes"]["total"]), "bytes",
                at + "/kv_bytes/total", "expected fewer than the exact mode has");
}

void check_text(const Report& report, std::size_t index, RuleChecks& checks) {
  const Report& text = report["texts"][index];
  const Report& modes = text["modes"];
  const std::string at = fmt::format("texts/{}", index);
  check_length(report, text, at, checks);
  checks.expect(modes.size() == report["modes"].size(), "counts", at + "/modes",
                "expected a row for each mode");
  check_mode_bytes(report, text, at, checks);
  for (std::size_t i = 0; i < std::min(modes.size(), report["modes"].size()); ++i) {
    const std::string here = fmt::format("{}/modes/{}", at, i);
    const Report& mode = modes[i];
    checks.expect(mode["mode"] == report["modes"][i]["mode"], "counts", here + "/mode",
                  "expected the modes in one order");
    check_text_mode(mode, modes[0], text, here, checks);
    const auto control = report["modes"][i].find("control");
    if (control == report["modes"][i].end()) continue;
    const auto other =
        std::ranges::find_if(modes, [&](const Report& each) { return each["mode"] == *control; });
    checks.expect(other != modes.end(), "same-run", here,
                  "expected its control " + control->get<std::string>() + " beside it");
    if (other == modes.end() || !mode["mode"].get<std::string>().starts_with("restore")) continue;
    checks.expect((*other)["mean_kl"] != mode["mean_kl"], "alive", here + "/mean_kl",
                  "expected restored rows to change the output, got that of dropped rows");
  }
}

void check_needles(const Report& report, std::size_t index, RuleChecks& checks) {
  const Report& needles = report["needles"][index];
  const std::string at = fmt::format("needles/{}", index);
  const std::int64_t prompts = count(needles["prompts"]);
  check_length(report, needles, at, checks);
  checks.expect(needles["modes"].size() == report["modes"].size(), "counts", at + "/modes",
                "expected a row for each mode");
  checks.expect(prompts >= kFewestAnswers, "recall", at + "/prompts",
                fmt::format("expected {} or more, got {}", kFewestAnswers, prompts));
  checks.expect(count(needles["reference_found"]) <= prompts, "recall", at + "/reference_found",
                "expected no more than prompts");
  checks.expect(count(needles["prompt_tokens"]) <= prompts * 2 * count(needles["length"]) &&
                    2 * count(needles["prompt_tokens"]) >= prompts * count(needles["length"]),
                "counts", at + "/prompt_tokens", "expected prompts of about the length");
  for (std::size_t i = 0; i < std::min(needles["modes"].size(), report["modes"].size()); ++i) {
    const Report& mode = needles["modes"][i];
    const std::string here = fmt::format("{}/modes/{}", at, i);
    checks.expect(mode["mode"] == report["modes"][i]["mode"], "counts", here + "/mode",
                  "expected the modes in one order");
    checks.expect(count(mode["found"]) <= prompts && count(mode["same_output"]) <= prompts,
                  "recall", here, "expected no more than prompts");
    const std::int64_t gained = count(mode["found"]) - count(needles["reference_found"]);
    checks.expect(std::abs(gained) <= prompts - count(mode["same_output"]), "recall",
                  here + "/found",
                  "expected what the reference found, but for replies that differ");
    if (mode["mode"] != "exact") continue;
    checks.expect(
        mode["found"] == needles["reference_found"] && count(mode["same_output"]) == prompts,
        "exact-is-exact", here, "expected the reference's replies");
  }
}

// Times of the modes beside the exact mode's, which come first.
void check_times(const Report& report, std::size_t index, RuleChecks& checks) {
  const Report& times = report["times"][index];
  const std::string at = fmt::format("times/{}", index);
  check_length(report, times, at, checks);
  checks.expect(times["modes"].size() == report["modes"].size(), "counts", at + "/modes",
                "expected a row for each mode");
  const std::vector<double> exact = numbers(times["modes"][0]["seconds"]);
  checks.expect(smallest(exact) >= kShortestSample, "samples", at + "/modes/0/seconds",
                fmt::format("expected {} s or more a sample", kShortestSample));
  for (std::size_t i = 0; i < std::min(times["modes"].size(), report["modes"].size()); ++i) {
    const Report& mode = times["modes"][i];
    const std::string here = fmt::format("{}/modes/{}", at, i);
    checks.expect(mode["mode"] == report["modes"][i]["mode"], "counts", here + "/mode",
                  "expected the modes in one order");
    const std::vector<double> seconds = numbers(mode["seconds"]);
    checks.expect(seconds.size() >= kFewestSamples && seconds.size() == exact.size(), "same-run",
                  here + "/seconds",
                  fmt::format("expected {} samples or more, as many as exact has", kFewestSamples));
    if (seconds.size() != exact.size()) continue;
    check_spread(seconds, here + "/seconds", checks);
    checks.expect_number(median(ratios(seconds, exact)), mode["ratio"], "headline",
                         here + "/ratio");
  }
}

// Times at each length that has texts, if they were asked for.
void check_times_asked(const Report& report, RuleChecks& checks) {
  if (!report.contains("times")) return;
  std::set<std::int64_t> lengths;
  if (report["options"]["times"].get<bool>()) {
    for (const Report& text : report["texts"]) lengths.insert(count(text["length"]));
  }
  checks.expect_count(std::ssize(lengths), Report(report["times"].size()), "counts", "times");
  for (std::size_t i = 0; i < report["times"].size(); ++i) check_times(report, i, checks);
}

// Each set at each length, in the modes that were asked for.
void check_rows_asked(const Report& report, const ReportCommand& command, RuleChecks& checks) {
  const auto named = command.given.find("--modes");
  check_modes_asked(report,
                    named == command.given.end() ? std::vector<std::string>() : named->second, {},
                    checks);
  std::set<std::string> sets;
  for (const char* list : {"texts", "needles"}) {
    for (const Report& row : report[list]) sets.insert(row["set"].get<std::string>());
  }
  std::set<std::int64_t> lengths;
  for (const Report& length : report["options"]["lengths"]) lengths.insert(count(length));
  checks.expect(!sets.empty(), "counts", "texts", "expected a set of texts or of needles");
  checks.expect_count(std::ssize(sets) * std::ssize(lengths),
                      Report(report["texts"].size() + report["needles"].size()), "counts", "texts");
  const std::int64_t limit = count(report["options"]["limit"]);
  for (const Report& text : report["texts"]) {
    // Texts that are shorter than the length are left out.
    const auto most = builtin_prompts(text["set"].get<std::string>(), limit);
    const bool fits = command.given.contains("--data") || (most && count(text["texts"]) <= *most);
    checks.expect(fits, "counts", "texts", "expected no more texts than the set has");
  }
  for (const Report& needles : report["needles"]) {
    checks.expect(limit == 0 || count(needles["prompts"]) <= limit, "counts", "needles",
                  fmt::format("expected at most {} prompts (--limit)", limit));
  }
}

void check_keys_and_values(const Report& report, RuleChecks& checks) {
  const ReportCommand command = command_of(report, checks);
  check_rows_asked(report, command, checks);
  checks.expect(report["modes"][0]["mode"] == "exact", "same-run", "modes/0/mode",
                "expected the exact mode beside the others");
  bool exact = true;
  for (std::size_t i = 0; i < report["texts"].size(); ++i) {
    check_text(report, i, checks);
    exact = exact && report["texts"][i]["modes"][0]["mean_kl"] == 0.0;
  }
  for (std::size_t i = 0; i < report["needles"].size(); ++i) {
    check_needles(report, i, checks);
  }
  check_times_asked(report, checks);
  checks.expect(report["exact"].get<bool>() == exact, "exact-is-exact", "exact",
                fmt::format("expected {}, got {}", exact, !exact));
}

std::vector<ClaimGroup> keys_and_values_claims(const Report& report) {
  std::vector<ClaimGroup> groups;
  for (const Report& text : report["texts"]) {
    const std::string of =
        fmt::format("{}, {} tokens", field_text(text["set"]), count(text["length"]));
    ClaimGroup far{.title = "How far from exact: " + of,
                   .unit = "mean divergence, nats",
                   .better = Better::kLess};
    ClaimGroup bytes{.title = "KV cache: " + of, .unit = "bytes a token", .better = Better::kLess};
    for (const Report& mode : text["modes"]) {
      const std::string name = field_text(mode["mode"]);
      far.claims.push_back({.name = name, .value = field_number(mode["mean_kl"])});
      bytes.claims.push_back({.name = name, .value = field_number(mode["kv_bytes_per_token"])});
    }
    groups.push_back(std::move(far));
    groups.push_back(std::move(bytes));
  }
  for (const Report& times : values_at(report, "times/*")) {
    ClaimGroup group{.title = fmt::format("Time of a token behind {}", count(times["length"])),
                     .unit = "of the exact mode's",
                     .better = Better::kLess,
                     .reference = 1.0,
                     .interval = kSpread};
    const std::vector<double> exact = numbers(times["modes"][0]["seconds"]);
    for (const Report& mode : times["modes"]) {
      group.claims.push_back(
          claim_of_samples(field_text(mode["mode"]), ratios(numbers(mode["seconds"]), exact)));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

constexpr std::string_view kKeysAndValues = R"(
options/lengths/* count checked
options/limit count stated
options/chunk count stated
options/needle_tokens count stated
modes/*/mode text checked
modes/*/control? text checked
texts/*?/set text stated
texts/*?/length count checked
texts/*?/texts count checked
texts/*?/modes/*/mode text checked
texts/*?/modes/*/positions count checked
texts/*?/modes/*/mean_kl number result
texts/*?/modes/*/p99_kl number result
texts/*?/modes/*/top1_agreement share result
texts/*?/modes/*/reference_perplexity number checked
texts/*?/modes/*/perplexity number result
texts/*?/modes/*/kv_bytes/full count checked
texts/*?/modes/*/kv_bytes/sliding count checked
texts/*?/modes/*/kv_bytes/codes count checked
texts/*?/modes/*/kv_bytes/total count checked
texts/*?/modes/*/kv_bytes_per_token number result
needles/*?/set text stated
needles/*?/length count checked
needles/*?/prompts count checked
needles/*?/prompt_tokens count result
needles/*?/reference_found count checked
needles/*?/modes/*/mode text checked
needles/*?/modes/*/found count result
needles/*?/modes/*/same_output count result
exact flag checked
)";

// Since the fourth version.
constexpr std::string_view kTimes = R"(
options/times flag checked
times/*?/length count checked
times/*?/steps count stated
times/*?/modes/*/mode text checked
times/*?/modes/*/ratio number checked
times/*?/modes/*/seconds/* seconds measured
)";

std::vector<ReportSchema> kv_schemas() {
  std::vector<ReportSchema> schemas = engine_schemas(2, fields_of({kKeysAndValues}));
  std::vector<ReportField> since = schemas.back().fields;
  add_fields(kTimes, "", since);
  schemas.push_back({4, std::move(since)});
  return schemas;
}

using enum FlagForm;

constexpr CommandFlag kKeysAndValuesFlags[] = {
    {"--modes", "", kNames, "modes/*/mode"},  // and others: asked_rules.cc
    {"--lengths", "", kNumbers, "options/lengths/*", "512,1024,2048,4096"},
    {"--texts", "", kNames, "texts/*/set|needles/*/set", "wikitext2,code,prose,needle"},
    {"--limit", "", kNumber, "options/limit", "0"},
    {"--chunk", "", kNumber, "options/chunk", "64"},
    {"", "", kNumber, "session/chunk", "512"},
    {"", "", kNumber, "options/needle_tokens", "16"},
    {"--projections", "", kUnsaid},
    {"--times", "", kFlag, "options/times"},
};

}  // namespace

const ReportKind& keys_and_values_report() {
  static const ReportKind kKind = {.name = "kakeya.eval.kv",
                                   .schemas = kv_schemas(),
                                   .check = check_keys_and_values,
                                   .claims = keys_and_values_claims,
                                   .unique_rows = {{"modes", {"mode"}},
                                                   {"texts", {"set", "length"}},
                                                   {"needles", {"set", "length"}},
                                                   {"times", {"length"}}},
                                   .timed_samples = {"times/*/modes/*/seconds/*"},
                                   .commands = {"kv"},
                                   .flags = kKeysAndValuesFlags};
  return kKind;
}

}  // namespace kakeya::eval
