#include "eval/report/line_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "eval/report/line_kinds.h"

namespace kakeya::eval {
namespace {

constexpr std::size_t kFewestDigits = 7;
constexpr std::size_t kMostDigits = 40;

// Checks one line by itself; false if rules cannot read its fields.
bool check_line(const Report& line, std::size_t index, std::vector<GateFinding>& findings) {
  const std::string at = line_place(index);
  const LineKind* kind = find_line_kind(line);
  if (kind == nullptr) {
    findings.push_back(
        {"schema", at,
         "expected a line of a kind that is known, got " +
             line.dump(-1, ' ', false, Report::error_handler_t::replace).substr(0, 80)});
    return false;
  }
  const std::vector<FieldProblem> problems = check_fields(line, kind->fields);
  for (const FieldProblem& problem : problems) {
    findings.push_back({"fields", at + problem.at, problem.says});
  }
  if (!problems.empty()) return false;
  RuleChecks checks(findings);
  if (line.contains("code")) {
    checks.expect(!commit_of_line(line).empty(), "provenance", at + "code",
                  fmt::format("expected a commit of {} hexadecimal digits or more, got {}",
                              kFewestDigits, line["code"].get<std::string>().substr(0, 60)));
  }
  if (kind->check != nullptr) kind->check(line, at, checks);
  return true;
}

}  // namespace

Result<std::vector<Report>> read_lines(const std::string& path) {
  constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;
  std::error_code failed;
  const std::uintmax_t bytes = std::filesystem::file_size(path, failed);
  if (failed) return error(StatusCode::kNotFound, "{}: {}", path, failed.message());
  if (bytes > kMostBytes) {
    return data_loss("{}: lines have at most {} bytes but this file has {}", path, kMostBytes,
                     bytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<Report> lines;
  for (std::string text; std::getline(file, text);) {
    Report line = Report::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) {
      return data_loss("{}: line {}: expected a JSON object", path, lines.size() + 1);
    }
    lines.push_back(std::move(line));
  }
  if (lines.empty()) return data_loss("{}: expected a JSON object a line, got nothing", path);
  return lines;
}

std::vector<GateFinding> check_lines(const std::vector<Report>& lines) {
  std::vector<GateFinding> findings;
  std::vector<Report> whole;
  bool readable = true;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    whole.push_back(without_nulls(lines[i]));
    readable = check_line(whole.back(), i, findings) && readable;
  }
  // The rules below read fields without asking of which type they are.
  if (!readable) return findings;
  RuleChecks checks(findings);
  check_lines_together(whole, checks);
  return findings;
}

std::string commit_of_line(const Report& line) {
  const auto code = line.find("code");
  if (code == line.end() || !code->is_string()) return {};
  std::string text = code->get<std::string>();
  const std::size_t end = std::min(text.find_first_not_of("0123456789abcdef"), text.size());
  const bool ends = end == text.size() || text[end] == ' ' || text[end] == ',';
  if (!ends || end < kFewestDigits || end > kMostDigits) return {};
  text.resize(end);
  return text;
}

}  // namespace kakeya::eval
