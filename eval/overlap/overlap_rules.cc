// Reports of `kakeya eval overlap`.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "eval/overlap/overlap_report.h"
#include "eval/report/derived_checks.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

void check_rows(const OverlapReport& overlap,
                const std::vector<OverlapRow>& rows,
                const std::string& at,
                RuleChecks& checks) {
  const std::int64_t experts = overlap.num_experts;
  const std::int64_t top_k = overlap.top_k_experts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const OverlapRow& row = rows[i];
    const std::string here = fmt::format("{}/{}", at, i);
    checks.expect_number(expected_evenly(experts, top_k, row.rows), row.uniform, "headline",
                         here + "/uniform");
    checks.expect(row.blocks >= 1 && row.distinct >= row.blocks * top_k &&
                      row.distinct <= row.blocks * std::min(experts, row.rows * top_k),
                  "counts", here + "/distinct",
                  "expected no fewer than of one row and no more than rows choose");
    checks.expect_count(row.blocks * (row.rows - 1), row.pairs, "counts", here + "/pairs");
    checks.expect(row.shared <= row.pairs * top_k, "counts", here + "/shared",
                  "expected no more than pairs have");
  }
}

}  // namespace

void check_overlap(const Report& report, RuleChecks& checks) {
  const auto overlap = read_report_fields<OverlapReport>(report, checks);
  if (!overlap) return;
  check_derived(report, *overlap, checks);
  const ReportCommand command = command_of(report, checks);
  // A model without a drafter has no drafts, whatever was asked for.
  const std::string length =
      report.contains("drafter_weights") ? command.value("--draft-length", "3") : "0";
  checks.expect(std::to_string(overlap->options.draft_length) == length, "provenance",
                "options/draft_length",
                "expected " + length + ", as the command says (--draft-length)");
  for (std::size_t i = 0; i < overlap->sets.size(); ++i) {
    const OverlapSetReport& set = overlap->sets[i];
    const std::string at = fmt::format("sets/{}", i);
    check_rows(*overlap, set.text, at + "/text", checks);
    check_rows(*overlap, set.drafts, at + "/drafts", checks);
  }
}

}  // namespace kakeya::eval
