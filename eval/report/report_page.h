// Reports as one page for a browser.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "eval/report/report_claims.h"
#include "eval/report/report_gate.h"

namespace kakeya::eval {

struct NamedReport {
  std::string name;  // of its file, without folder and ending
  Report report;
};

// The changes between the reports of one name in two runs.
struct ReportChanges {
  std::string name;
  std::vector<ClaimChange> changes;
};

// "better", "worse", "no difference seen", "equal", "differs"
std::string_view verdict_text(Verdict verdict);

// A page of HTML that needs no other file: for each report how it was made, what the gate finds,
// and its claims as charts; before them, where there are some, the changes. Whatever a report
// holds becomes text. A report whose fields are not those of its kind has no charts.
std::string report_page(std::span<const NamedReport> reports,
                        std::span<const ReportChanges> changes);

}  // namespace kakeya::eval
