// The fields of the reports of long and shared runs, of tasks and of drafters, for
// report_schemas.cc.
#pragma once

#include <string_view>
#include <vector>

#include "eval/report/report_fields.h"

namespace kakeya::eval {

// Fields from the description of their report (describe.h).
std::vector<ReportField> drafter_parity_fields();
std::vector<ReportField> longrun_fields();
std::vector<ReportField> multitenant_fields();
std::vector<ReportField> overlap_fields();

// A line a field: path, type, role, as report_schemas.cc reads them.
// The fields of tasks: those of all reports, of an engine's, and of a server's.
extern const std::string_view kTaskFields;
extern const std::string_view kTaskPassFields;
extern const std::string_view kServedFields;

}  // namespace kakeya::eval
