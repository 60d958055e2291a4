// Reports of `kakeya eval overlap`.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "eval/overlap/overlap_report.h"
#include "eval/report/derived_checks.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

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

void add_overlap_claims(const std::string& set,
                        const std::vector<OverlapRow>& rows,
                        ClaimGroup& group) {
  for (const OverlapRow& row : rows) {
    group.claims.push_back({.name = fmt::format("{}, {} rows", set, row.rows),
                            .value = row.mean_distinct() / row.uniform});
  }
}

std::vector<ClaimGroup> overlap_claims(const Report& report) {
  const auto overlap = read_fields<OverlapReport>(report);
  if (!overlap) return {};
  ClaimGroup text{.title = "Experts that neighbouring rows load",
                  .unit = "of what independent routing would load",
                  .better = Better::kLess,
                  .reference = 1.0};
  ClaimGroup drafts = text;
  drafts.title = "Experts that drafted blocks load";
  for (const OverlapSetReport& set : overlap->sets) {
    add_overlap_claims(set.set, set.text, text);
    add_overlap_claims(set.set, set.drafts, drafts);
  }
  std::vector<ClaimGroup> groups;
  if (!text.claims.empty()) groups.push_back(std::move(text));
  if (!drafts.claims.empty()) groups.push_back(std::move(drafts));
  return groups;
}

using enum FlagForm;

constexpr CommandFlag kOverlapFlags[] = {
    {"--sets", "", kNames, "sets/*/set", "wikitext2,code,humaneval,mt_bench"},
    {"--limit", "", kNumber, "options/limit", "20"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens", "64"},
    // Without a drafter there are none, whatever was asked for: check_overlap().
    {"--draft-length", "", kUnsaid},
};

}  // namespace

const ReportKind& overlap_report() {
  static const ReportKind kKind = {
      .name = "kakeya.eval.overlap",
      .schemas = engine_schemas(1, list_fields<OverlapReport>()),
      .check = check_overlap,
      .claims = overlap_claims,
      .unique_rows = {{"sets", {"set"}}, {"sets/*/text", {"rows"}}, {"sets/*/drafts", {"rows"}}},
      .commands = {"overlap"},
      .flags = kOverlapFlags};
  return kKind;
}

}  // namespace kakeya::eval
