// Rules that a report must keep before anybody quotes it: what it claims is computed anew from what
// it measured.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/report_fields.h"
#include "kakeya/status.h"

namespace kakeya::eval {

// Claims of a report that its samples do not carry.
struct GateFinding {
  std::string rule;  // of gate_rules()
  std::string at;    // "sets/0/speedup"
  std::string says;  // "expected 1.013, got 1.2"
};

struct GateRule {
  std::string_view name;
  std::string_view asks;  // one line
};
std::span<const GateRule> gate_rules();

// Reads a report of at most 64 MiB. Errors: kNotFound, kDataLoss for what is no JSON object.
Result<Report> read_report(const std::string& path);

// Empty: it keeps all rules. Never fails, whatever the report holds.
std::vector<GateFinding> check_report(const Report& report);

}  // namespace kakeya::eval
