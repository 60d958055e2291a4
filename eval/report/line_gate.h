// Rules that lines of measurements (*.jsonl, one JSON object a line) must keep, as reports do:
// those of docs/results/h200, which a card's figures rest on. Such a line has rounded medians
// without their samples, so rules compare what follows from one another.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/report/report_gate.h"
#include "kakeya/status.h"

namespace kakeya::eval {

// Reads a file of at most 64 MiB. Errors: kNotFound, kDataLoss for a line that is no JSON object,
// and for a file without any.
Result<std::vector<Report>> read_lines(const std::string& path);

// Empty: they keep all rules, each line by itself and all of the file together. Never fails,
// whatever the lines hold. Findings are at "line 3/tokens_per_second".
std::vector<GateFinding> check_lines(const std::vector<Report>& lines);

// The field of a line of a known kind that stands at `at` ("min_ms"); null: none.
const ReportField* find_line_field(const Report& line, std::string_view at);

// The commit that a line names, which words may follow ("8037fae with longer chunks"); empty: none.
std::string commit_of_line(const Report& line);

}  // namespace kakeya::eval
