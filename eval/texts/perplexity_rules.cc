// Reports of `kakeya eval perplexity`.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"
#include "eval/texts/perplexity_report.h"
#include "eval/texts/text_report.h"

namespace kakeya::eval {
namespace {

void check_perplexity(const Report& report, RuleChecks& checks) {
  const ReportCommand command = command_of(report, checks);
  check_texts_asked(report, command, checks);
  const std::int64_t window = count(report["options"]["window"]);
  const bool second_half = report["options"].value("counted", "all") == "second-half";
  for (std::size_t i = 0; i < report["sets"].size(); ++i) {
    const Report& set = report["sets"][i];
    const std::string at = fmt::format("sets/{}", i);
    PerplexityReport rows;
    for (std::size_t k = 0; k < set["windows"].size(); ++k) {
      const Report& row = set["windows"][k];
      rows.windows.push_back({.text = row["text"].get<std::string>(),
                              .tokens = count(row["tokens"]),
                              .nll = row["nll"].get<double>()});
      const std::string row_at = fmt::format("{}/windows/{}", at, k);
      if (second_half) {
        checks.expect_count(window - 1 - window / 2, row["tokens"], "counts", row_at + "/tokens");
      } else {
        check_window(set["windows"], k, window, row_at, checks);
      }
    }
    checks.expect_count(rows.tokens(), set["tokens"], "counts", at + "/tokens");
    checks.expect_number(rows.perplexity(), set["perplexity"], "headline", at + "/perplexity");
    check_interval(set, perplexity_interval(rows.windows), at, checks);
  }
}

std::vector<ClaimGroup> perplexity_claims(const Report& report) {
  ClaimGroup group{.title = "Perplexity",
                   .unit = "perplexity",
                   .better = Better::kLess,
                   .interval = kConfidence};
  for (const Report& set : report["sets"]) {
    group.claims.push_back({.name = field_text(set["set"]),
                            .value = field_number(set["perplexity"]),
                            .interval = interval_of(set)});
  }
  return {std::move(group)};
}

// Since the third version a report says which tokens of a window count.
constexpr std::string_view kCounted = R"(
options/counted text checked
)";

constexpr std::string_view kPerplexity = R"(
options/window count checked
options/limit count stated
sets/*/set text stated
sets/*/tokens count checked
sets/*/perplexity number checked
sets/*/seconds seconds stated
sets/*/windows/*/text text stated
sets/*/windows/*/tokens count checked
sets/*/windows/*/nll number measured
)";

}  // namespace

const ReportKind& perplexity_report() {
  static const ReportKind kKind = {
      .name = "kakeya.eval.perplexity",
      .schemas = {{1, fields_of({kProvenance, kEngine, kPerplexity, kInterval})},
                  {2, fields_of({kProvenance, kEngine, kSession, kPerplexity, kOptionalInterval})},
                  {3, fields_of({kProvenance, kEngine, kSession, kPerplexity, kCounted,
                                 kOptionalInterval})}},
      .check = check_perplexity,
      .claims = perplexity_claims,
      .unique_rows = {{"sets", {"set"}},
                      // A sum of hundreds of logarithms is that of no second window of the same
                      // text.
                      {"sets/*/windows", {"text", "tokens", "nll"}}},
      .timed_samples = {"sets/*/seconds"},
      .commands = {"perplexity"},
      .flags = kTextFlags};
  return kKind;
}

}  // namespace kakeya::eval
