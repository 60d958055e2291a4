#include "report_gate.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/status.h"
#include "report_rules.h"

namespace kakeya::eval {
namespace {

constexpr std::array kRules = {
    GateRule{"schema", "the kind of the report is known"},
    GateRule{"fields", "all its fields are there, of their types, and no others"},
    GateRule{"provenance", "made from a commit without changes, by a command that is named"},
    GateRule{"counts", "counts agree with one another"},
    GateRule{"gap", "the rows of a long run follow one another, from its beginning to its end"},
    GateRule{"headline", "what is claimed is what its samples give"},
    GateRule{"same-run", "each time has its baseline of the same run, as often measured"},
    GateRule{"samples",
             "five samples or more behind each ratio of times, twenty behind a recall by length or "
             "a score"},
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
    GateRule{"within-the-machine", "no more bytes a second than twice what the probe read"},
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
  const std::string kind = named ? schema->get<std::string>() : std::string();
  const std::span<const ReportField> fields = report_fields(kind);
  if (fields.empty()) {
    return {
        {"schema", "schema", "expected a kind that is known, got '" + kind.substr(0, 60) + "'"}};
  }
  std::vector<GateFinding> findings;
  for (const FieldProblem& problem : check_fields(report, fields)) {
    findings.push_back({"fields", problem.at, problem.says});
  }
  // The rules below read fields without asking whether they are there.
  if (!findings.empty()) return findings;
  RuleChecks checks(findings);
  check_provenance(report, checks);
  if (kind == "kakeya.eval.spec/2") check_speculation(report, checks);
  if (kind == "kakeya.eval.kv/2") check_keys_and_values(report, checks);
  if (kind == "kakeya.eval.perplexity/1") check_perplexity(report, checks);
  if (kind == "kakeya.eval.kl/1") check_divergence(report, checks);
  if (kind == "kakeya.eval.drafter-parity/1") check_drafter_parity(report, checks);
  if (kind == "kakeya.eval.overlap/1") check_overlap(report, checks);
  if (kind == "kakeya.eval.niah/1") check_needles_in_haystacks(report, checks);
  if (kind == "kakeya.eval.served-niah/1") check_needles_in_haystacks(report, checks);
  if (kind == "kakeya.eval.task/1") check_tasks(report, checks);
  if (kind == "kakeya.eval.served-task/1") check_served_tasks(report, checks);
  if (kind == "kakeya.longrun/1") check_longrun(report, checks);
  if (kind == "kakeya.multitenant/1") check_multitenant(report, checks);
  if (kind == "kakeya.bench.operations/1") check_operations(report, checks);
  if (kind == "kakeya.bench.batch/1") check_sessions(report, checks);
  if (kind == "kakeya.peers/2") check_peers(report, checks);
  if (kind == "kakeya.servers/1") check_servers(report, checks);
  if (report.contains("passes")) check_passes(report, checks);
  return findings;
}

}  // namespace kakeya::eval
