// Reports of `kakeya eval perplexity`.
#include <fmt/format.h>

#include <string>

#include "eval/report/report_rules.h"
#include "eval/texts/perplexity_report.h"

namespace kakeya::eval {

void check_perplexity(const Report& report, RuleChecks& checks) {
  const ReportCommand command = command_of(report, checks);
  check_texts_asked(report, command, checks);
  const std::int64_t window = count(report["options"]["window"]);
  for (std::size_t i = 0; i < report["sets"].size(); ++i) {
    const Report& set = report["sets"][i];
    const std::string at = fmt::format("sets/{}", i);
    PerplexityReport rows;
    for (std::size_t k = 0; k < set["windows"].size(); ++k) {
      const Report& row = set["windows"][k];
      rows.windows.push_back({.text = row["text"].get<std::string>(),
                              .tokens = count(row["tokens"]),
                              .nll = row["nll"].get<double>()});
      check_window(set["windows"], k, window, fmt::format("{}/windows/{}", at, k), checks);
    }
    checks.expect_count(rows.tokens(), set["tokens"], "counts", at + "/tokens");
    checks.expect_number(rows.perplexity(), set["perplexity"], "headline", at + "/perplexity");
    check_interval(set, perplexity_interval(rows.windows), at, checks);
  }
}

}  // namespace kakeya::eval
