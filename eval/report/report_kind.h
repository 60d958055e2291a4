// A kind of reports: everything that gate, page and schemas know of it, from the folder of its
// evaluation.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/report_claims.h"
#include "eval/report/report_command.h"
#include "eval/report/report_fields.h"

namespace kakeya::eval {

class RuleChecks;

// The fields of one version of a kind.
struct ReportSchema {
  int version = 1;
  std::vector<ReportField> fields = {};
};

// Lists of rows of which no two may have the same values at `keys`.
struct UniqueRows {
  std::string_view list;  // "sets/*/windows"
  std::vector<std::string_view> keys;
};

// Two lists whose samples belong together, one by one. A clock counts nanoseconds: that both of a
// pair come back together is a copy, where one of them might by chance.
struct PairedSamples {
  std::string_view rows;  // "sets/*"
  std::string_view one;
  std::string_view other;
};

struct ReportKind {
  std::string_view name;  // "kakeya.eval.spec": a report's schema without its version
  std::vector<ReportSchema> schemas;
  // Rules of a report whose fields were checked, after those of all kinds.
  void (*check)(const Report& report, RuleChecks& checks);
  // Claims of such a report.
  std::vector<ClaimGroup> (*claims)(const Report& report);
  std::vector<UniqueRows> unique_rows = {};
  std::vector<PairedSamples> paired_samples = {};
  // Times of which no two overlap, so that they add up to no more than the run took:
  // "sets/*/seconds".
  std::vector<std::string_view> timed_samples = {};
  // Adds up times that are kept as tokens a second; null: there are none.
  double (*seconds_behind_speeds)(const Report& report) = nullptr;
  // Commands that make such reports, as command_flags() names them, and their flags. Empty: no rule
  // compares them, or they are those of another kind (of "served-niah": niah's).
  std::vector<std::string_view> commands = {};
  std::span<const CommandFlag> flags = {};
  bool has_shared_flags = true;  // of engines, sessions and drafts, too
};

// The kind that a report's schema names, in whatever version; null: none.
const ReportKind* find_report_kind(std::string_view schema);

}  // namespace kakeya::eval
