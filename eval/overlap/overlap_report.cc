#include "eval/overlap/overlap_report.h"

#include <fmt/format.h>

#include <utility>

#include "eval/report/report_claims.h"
#include "eval/report/report_tables.h"

namespace kakeya::eval {
namespace {

void add_overlap_claims(const std::string& set,
                        const std::vector<OverlapRow>& rows,
                        ClaimGroup& group) {
  for (const OverlapRow& row : rows) {
    group.claims.push_back({.name = fmt::format("{}, {} rows", set, row.rows),
                            .value = row.mean_distinct() / row.uniform});
  }
}

}  // namespace

std::vector<ReportField> overlap_fields() {
  return list_fields<OverlapReport>();
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

}  // namespace kakeya::eval
