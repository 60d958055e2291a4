// Reports of `kakeya eval kl`.
#include <fmt/format.h>

#include "eval/report/report_rules.h"
#include "eval/texts/divergence_totals.h"

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

}  // namespace

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

}  // namespace kakeya::eval
