// Bytes of keys and values, computed from those that the exact mode has.
#pragma once

#include <string>

#include "eval/report/report_rules.h"

namespace kakeya::eval {

// Checks the bytes of all modes of a text, of which the first is the exact one. `report`: of
// `kakeya eval kv`, whose fields were checked.
void check_mode_bytes(const Report& report,
                      const Report& text,
                      const std::string& at,
                      RuleChecks& checks);

}  // namespace kakeya::eval
