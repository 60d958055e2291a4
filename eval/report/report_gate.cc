#include "eval/report/report_gate.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/status.h"
#include "eval/report/report_kind.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

constexpr std::array kRules = {
    GateRule{"schema", "the kind of the report is known"},
    GateRule{"fields", "all its fields are there, of their types, and no others"},
    GateRule{
        "provenance",
        "made from a commit without changes, by a command that says the same; what restored rows "
        "is named by the hash of its weights"},
    GateRule{"counts", "counts agree with one another"},
    GateRule{"once", "no set, prompt, window, pair or other row stands there twice"},
    GateRule{"gap", "the rows of a long run follow one another, from its beginning to its end"},
    GateRule{"headline", "what is claimed is what its samples give"},
    GateRule{"same-run", "each time has its baseline of the same run, as often measured"},
    GateRule{"samples",
             "five samples or more behind each ratio of times, twenty behind a recall by length or "
             "a score, two windows behind an interval"},
    GateRule{"within-the-run", "all samples together take no longer than the run"},
    GateRule{"long-enough", "what is timed takes a tenth of a second or more"},
    GateRule{"spread", "no sample takes three times another one"},
    GateRule{"lossless",
             "outputs that are said to be equal are, and unequal ones carry no speedup"},
    GateRule{"drafts-ran", "a gain from drafts comes from drafts that were made and accepted"},
    GateRule{"never-past-the-end", "no token behind a reply's end or limit is counted"},
    GateRule{"exact-is-exact", "the exact mode differs in nothing"},
    GateRule{"alive", "rows that are said to be restored or dropped change the output"},
    GateRule{"bytes", "bytes add up, and a mode that saves them has fewer"},
    GateRule{
        "recall",
        "answers that were found are of prompts that were asked, five or more; a score is that "
        "of its rows"},
    GateRule{"within-the-machine",
             "no more bytes a second than 1.3 times what the probe read, or twice where caches "
             "hold them; none that the card's data sheet does not have"},
    GateRule{"agreement",
             "what is measured twice, of one model and text or one code and command, is the same"},
    GateRule{"history",
             "a commit is one that HEAD came from, made before the run; no run is of the future"},
    GateRule{"read", "a folder of reports has no file that no rule reads"},
};

}  // namespace

std::span<const GateRule> gate_rules() {
  return kRules;
}

Result<Report> read_report(const std::string& path) {
  constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;
  std::error_code failed;
  const std::uintmax_t bytes = std::filesystem::file_size(path, failed);
  if (failed) return error(StatusCode::kNotFound, "{}: {}", path, failed.message());
  if (bytes > kMostBytes) {
    return data_loss("{}: a report has at most {} bytes but this file has {}", path, kMostBytes,
                     bytes);
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Report report = Report::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object()) return data_loss("{}: expected a JSON object", path);
  return report;
}

std::vector<GateFinding> check_report(const Report& report) {
  const auto schema = report.is_object() ? report.find("schema") : report.end();
  const bool named = report.is_object() && schema != report.end() && schema->is_string();
  const std::string schema_name = named ? schema->get<std::string>() : std::string();
  const std::span<const ReportField> fields = report_fields(schema_name);
  if (fields.empty()) {
    return {{"schema", "schema",
             "expected a kind that is known, got '" + schema_name.substr(0, 60) + "'"}};
  }
  std::vector<GateFinding> findings;
  for (const FieldProblem& problem : check_fields(report, fields)) {
    findings.push_back({"fields", problem.at, problem.says});
  }
  // The rules below read fields without asking whether they are there.
  if (!findings.empty()) return findings;
  RuleChecks checks(findings);
  check_provenance(report, checks);
  check_projections(report, checks);
  check_once(report, checks);
  check_run_time(report, checks);
  if (const ReportKind* kind = find_report_kind(schema_name)) kind->check(report, checks);
  return findings;
}

}  // namespace kakeya::eval
