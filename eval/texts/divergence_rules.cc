// Reports of `kakeya eval kl`.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"
#include "eval/texts/divergence_totals.h"
#include "eval/texts/text_report.h"

namespace kakeya::eval {
namespace {

WindowDivergence window_of(const Report& row) {
  return {.text = row["text"].get<std::string>(),
          .tokens = count(row["tokens"]),
          .divergence = row["divergence"].get<double>(),
          .reference_nll = row["reference_nll"].get<double>(),
          .nll = row["nll"].get<double>(),
          .same_top = count(row["same_top"])};
}

void check_set(const Report& set, std::int64_t window, const std::string& at, RuleChecks& checks) {
  std::vector<WindowDivergence> windows;
  for (std::size_t k = 0; k < set["windows"].size(); ++k) {
    const WindowDivergence& row = windows.emplace_back(window_of(set["windows"][k]));
    const std::string row_at = fmt::format("{}/windows/{}", at, k);
    check_window(set["windows"], k, window, row_at, checks);
    checks.expect(row.same_top <= row.tokens, "counts", row_at + "/same_top",
                  fmt::format("expected at most {}, got {}", row.tokens, row.same_top));
    // Where distributions are the same, so are their likelihoods and likeliest tokens.
    if (row.divergence == 0.0) {
      checks.expect(row.nll == row.reference_nll && row.same_top == row.tokens, "exact-is-exact",
                    row_at, "expected equal likelihoods where nothing differs");
    }
  }
  const DivergenceTotals totals = divergence_totals(windows);
  checks.expect_count(totals.tokens, set["tokens"], "counts", at + "/tokens");
  checks.expect_number(totals.mean, set["mean"], "headline", at + "/mean");
  check_interval(set, totals.interval, at, checks);
  checks.expect_number(totals.top_agreement, set["top_agreement"], "headline",
                       at + "/top_agreement");
  checks.expect_number(totals.reference_perplexity, set["reference_perplexity"], "headline",
                       at + "/reference_perplexity");
  checks.expect_number(totals.perplexity, set["perplexity"], "headline", at + "/perplexity");
  const bool ordered = set["median"].get<double>() <= set["p99"].get<double>() &&
                       set["p99"].get<double>() <= set["most"].get<double>() &&
                       totals.mean <= set["most"].get<double>();
  checks.expect(ordered, "headline", at, "expected median <= p99 <= most, and the mean below it");
}

void check_divergence(const Report& report, RuleChecks& checks) {
  const ReportCommand command = command_of(report, checks);
  check_texts_asked(report, command, checks);
  checks.expect(
      command.given.contains("--reference") || report["reference"]["model"] == report["model"],
      "provenance", "reference/model", "expected the same where no other is named");
  const std::int64_t window = count(report["options"]["length"]);
  for (std::size_t i = 0; i < report["sets"].size(); ++i) {
    check_set(report["sets"][i], window, fmt::format("sets/{}", i), checks);
  }
}

std::vector<ClaimGroup> divergence_claims(const Report& report) {
  ClaimGroup group{.title = "How far from the reference",
                   .unit = "mean divergence, nats",
                   .better = Better::kLess,
                   .interval = kConfidence};
  for (const Report& set : report["sets"]) {
    group.claims.push_back({.name = field_text(set["set"]),
                            .value = field_number(set["mean"]),
                            .interval = interval_of(set)});
  }
  return {std::move(group)};
}

constexpr std::string_view kDivergence = R"(
options/length count checked
options/limit count stated
reference/model text stated
reference/weights hash result
reference/backend text stated
reference/compute text stated
sets/*/set text stated
sets/*/tokens count checked
sets/*/mean number checked
sets/*/median number result
sets/*/p99 number result
sets/*/most number result
sets/*/top_agreement share checked
sets/*/reference_perplexity number checked
sets/*/perplexity number checked
sets/*/seconds seconds stated
sets/*/windows/*/text text stated
sets/*/windows/*/tokens count checked
sets/*/windows/*/divergence number measured
sets/*/windows/*/reference_nll number measured
sets/*/windows/*/nll number measured
sets/*/windows/*/same_top count checked
)";

}  // namespace

const ReportKind& divergence_report() {
  static const ReportKind kKind = {
      .name = "kakeya.eval.kl",
      .schemas = {{1, fields_of({kProvenance, kEngine, kDivergence, kInterval})},
                  {2, fields_of({kProvenance, kEngine, kSession, kDivergence, kOptionalInterval})}},
      .check = check_divergence,
      .claims = divergence_claims,
      .unique_rows = {{"sets", {"set"}}, {"sets/*/windows", {"text", "tokens", "reference_nll"}}},
      .timed_samples = {"sets/*/seconds"},
      .commands = {"kl"},
      .flags = kTextFlags};
  return kKind;
}

}  // namespace kakeya::eval
