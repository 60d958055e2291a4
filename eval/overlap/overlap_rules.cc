// Reports of `kakeya eval overlap`.
#include <fmt/format.h>

#include <algorithm>

#include "eval/overlap/overlap_rows.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

void check_rows(const Report& report,
                const Report& rows,
                const std::string& at,
                RuleChecks& checks) {
  const std::int64_t experts = count(report["num_experts"]);
  const std::int64_t top_k = count(report["top_k_experts"]);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Report& row = rows[i];
    const std::string here = fmt::format("{}/{}", at, i);
    const OverlapRow seen{.rows = count(row["rows"]),
                          .blocks = count(row["blocks"]),
                          .distinct = count(row["distinct"])};
    checks.expect_number(seen.mean_distinct(), row["mean_distinct"], "headline",
                         here + "/mean_distinct");
    checks.expect_number(expected_evenly(experts, top_k, seen.rows), row["uniform"], "headline",
                         here + "/uniform");
    checks.expect(seen.blocks >= 1 && seen.distinct >= seen.blocks * top_k &&
                      seen.distinct <= seen.blocks * std::min(experts, seen.rows * top_k),
                  "counts", here + "/distinct",
                  "expected no fewer than of one row and no more than rows choose");
    checks.expect_count(seen.blocks * (seen.rows - 1), row["pairs"], "counts", here + "/pairs");
    checks.expect(count(row["shared"]) <= count(row["pairs"]) * top_k, "counts", here + "/shared",
                  "expected no more than pairs have");
  }
}

}  // namespace

void check_overlap(const Report& report, RuleChecks& checks) {
  const ReportCommand command = command_of(report, checks);
  // A model without a drafter has no drafts, whatever was asked for.
  const std::string length =
      report.contains("drafter_weights") ? command.value("--draft-length", "3") : "0";
  checks.expect(report["options"]["draft_length"].dump() == length, "provenance",
                "options/draft_length",
                "expected " + length + ", as the command says (--draft-length)");
  for (std::size_t i = 0; i < report["sets"].size(); ++i) {
    const std::string at = fmt::format("sets/{}", i);
    check_rows(report, report["sets"][i]["text"], at + "/text", checks);
    check_rows(report, report["sets"][i]["drafts"], at + "/drafts", checks);
  }
}

}  // namespace kakeya::eval
