#include "eval/drafter/drafter_parity_report.h"

#include <utility>

#include "eval/report/report_claims.h"
#include "eval/report/report_tables.h"

namespace kakeya::eval {

std::vector<ReportField> drafter_parity_fields() {
  return list_fields<ParityReport>();
}

std::vector<ClaimGroup> parity_claims(const Report& report) {
  const auto parity = read_fields<ParityReport>(report);
  if (!parity) return {};
  ClaimGroup agreement{
      .title = "Drafted tokens that are the reference's", .unit = "share", .better = Better::kMore};
  agreement.claims.push_back(
      {.name = report["backend"].get<std::string>() + " against " + parity->reference.backend,
       .value = parity_totals(parity->rows).agreement()});
  return {std::move(agreement)};
}

}  // namespace kakeya::eval
