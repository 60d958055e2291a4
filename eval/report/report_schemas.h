// Schemas of kinds of reports, read from tables of fields.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/report_kind.h"

namespace kakeya::eval {

// Tables have a line a field: path, type, role. '?' behind a part of the path: it may be missing,
// with what is below it.

// Who made a report, when and with what; fields of every kind.
extern const std::string_view kProvenance;
extern const std::string_view kEngine;  // of reports of an engine
// Flags of sessions, and what restored rows.
extern const std::string_view kSession;
extern const std::string_view kServed;  // of reports of a server

// Adds the fields of a table below `prefix`: "measures/*/".
void add_fields(std::string_view table, const std::string& prefix, std::vector<ReportField>& to);
std::vector<ReportField> fields_of(std::initializer_list<std::string_view> tables);

// Schemas of an engine's reports with these fields of their own: of the version that does not say
// how sessions were, and of the next one, which does.
std::vector<ReportSchema> engine_schemas(int version, const std::vector<ReportField>& own);

}  // namespace kakeya::eval
