// The kinds of lines of line_gate.h, as data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/report/report_fields.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {

struct LineKind {
  // Names what only such lines have: a field ("ring_kib"), or one and its value ("figure=soak").
  std::string_view marker;
  std::vector<ReportField> fields;
  // Checks a line whose fields were checked; `at`: "line 3/".
  void (*check)(const Report& line, const std::string& at, RuleChecks& checks) = nullptr;
};

// The kind of a line; null: none.
const LineKind* find_line_kind(const Report& line);

// A copy of the line without names that are null: it is the first one, behind which nothing is.
Report without_nulls(const Report& line);

// Rules of the kinds, each of one line.
void check_pass_line(const Report& line, const std::string& at, RuleChecks& checks);
void check_session_line(const Report& line, const std::string& at, RuleChecks& checks);
void check_draft_line(const Report& line, const std::string& at, RuleChecks& checks);
void check_costs_line(const Report& line, const std::string& at, RuleChecks& checks);
void check_parity_line(const Report& line, const std::string& at, RuleChecks& checks);
void check_kernel_line(const Report& line, const std::string& at, RuleChecks& checks);
void check_state_line(const Report& line, const std::string& at, RuleChecks& checks);
void check_verdict_line(const Report& line, const std::string& at, RuleChecks& checks);
void check_fact_line(const Report& line, const std::string& at, RuleChecks& checks);

// Rules of all lines of a file, each of a known kind: what is measured twice agrees.
void check_lines_together(const std::vector<Report>& lines, RuleChecks& checks);

// The words of a line's command.
std::vector<std::string> words_of_line(const Report& line);

// Where a finding is: "line 3/".
std::string line_place(std::size_t index);

}  // namespace kakeya::eval
