// Checks that a report is the one that was asked for.
#pragma once

#include <string>

#include "envelope.h"
#include "presets.h"

namespace kakeya::bridge {

// Why `report`, what a check printed or a file of its folder, is not of the preset with these
// values; empty: it is. Looks at its kind, the command that it says it is of, and its backend; what
// options stand elsewhere in a report are the gate's to compare with its command. A model is known
// by the serving side's name for it only, so its path may be any.
std::string problem_of_report(const Preset& preset, const Values& values, const Json& report);

// The problem of what is no single report, but the folder's {"summary", "reports"} or a report
// without a schema, of which the preset says the fields. Empty: it has them.
std::string problem_of_fields(const Preset& preset, const Json& report);

}  // namespace kakeya::bridge
