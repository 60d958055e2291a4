// Tables of fields of the reports of long and shared runs, for report_schemas.cc.
#pragma once

#include <string_view>

namespace kakeya::eval {

// A line a field: path, type, role, as report_schemas.cc reads them.
extern const std::string_view kLongRunFields;
extern const std::string_view kMultitenantFields;

}  // namespace kakeya::eval
