// kakeya eval gate: whether reports carry what they claim.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/output.h"
#include "eval/command/commit_history.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/report/agreement_rules.h"
#include "eval/report/history_rules.h"
#include "eval/report/line_gate.h"
#include "eval/report/report_gate.h"

namespace kakeya::cli {
namespace {

struct GateFlags {
  std::vector<std::string> paths;
  bool rules = false;
};

// Prints what was found in a file; true if that is nothing. `is`: what the file is.
bool print_findings(const std::string& path,
                    const std::string& is,
                    const std::vector<eval::GateFinding>& findings) {
  if (findings.empty()) {
    print("ok    {}  {}\n", path, is);
    return true;
  }
  constexpr std::size_t kMostShown = 20;
  for (std::size_t i = 0; i < std::min(findings.size(), kMostShown); ++i) {
    print("FAIL  {}: {}: {}: {}\n", path, findings[i].rule, findings[i].at, findings[i].says);
  }
  if (findings.size() > kMostShown) {
    print("FAIL  {}: and {} more\n", path, findings.size() - kMostShown);
  }
  return false;
}

void append(std::vector<eval::GateFinding>& findings, std::vector<eval::GateFinding> more) {
  std::ranges::move(more, std::back_inserter(findings));
}

// Files that are judged together.
struct Judged {
  const eval::CommitHistory* history = nullptr;  // null: it is not known
  std::vector<eval::PassedReport> passed = {};
};

// Prints whether the report passes; true if it does.
Result<bool> judge_report(const std::string& path, Judged& judged) {
  KAKEYA_ASSIGN_OR_RETURN(eval::Report report, eval::read_report(path));
  std::vector<eval::GateFinding> findings = eval::check_report(report);
  // Commit and date are read where they are known to be there.
  if (findings.empty()) {
    append(findings, eval::check_history(report, judged.history, std::time(nullptr)));
  }
  const bool passes =
      print_findings(path, findings.empty() ? report["schema"].get<std::string>() : "", findings);
  if (passes) judged.passed.push_back({path, std::move(report)});
  return passes;
}

Result<bool> judge_lines(const std::string& path, const Judged& judged) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<eval::Report> lines, eval::read_lines(path));
  std::vector<eval::GateFinding> findings = eval::check_lines(lines);
  if (judged.history != nullptr) {
    append(findings, eval::check_line_history(lines, *judged.history));
  }
  return print_findings(path, fmt::format("{} lines", lines.size()), findings);
}

Result<bool> judge(const std::string& path, Judged& judged) {
  const std::string kind = std::filesystem::path(path).extension().string();
  if (kind == ".jsonl") return judge_lines(path, judged);
  // Documents quote these: tools/check_figures compares them.
  if (kind == ".template") return true;
  if (kind == ".json") return judge_report(path, judged);
  return print_findings(path, "",
                        {{"read", kind,
                          "expected *.json, *.jsonl or *.template: no rule reads "
                          "this file"}});
}

// Judges one argument: a report, or all files in and below a folder.
Result<bool> judge_all(const std::string& path, Judged& judged) {
  std::error_code failed;
  const bool is_folder = std::filesystem::is_directory(path, failed);
  const std::string folder =
      is_folder ? path : std::filesystem::absolute(path, failed).parent_path().string();
  const Result<eval::CommitHistory> history = read_commit_history(folder);
  if (!history) {
    fmt::print(stderr, "{}: commits are not compared with the history: {}\n", path,
               history.error().message());
  }
  judged.history = history ? &*history : nullptr;
  // A file that is named is a report, however it is called.
  if (!is_folder) {
    return path.ends_with(".jsonl") ? judge_lines(path, judged) : judge_report(path, judged);
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::string> files, find_files_of_reports(path));
  bool all = true;
  for (const std::string& file : files) {
    KAKEYA_ASSIGN_OR_RETURN(const bool passes, judge(file, judged));
    all = all && passes;
  }
  return all;
}

Result<bool> run_gate(const GateFlags& flags) {
  if (flags.rules) {
    for (const eval::GateRule& rule : eval::gate_rules())
      print("{:<20} {}\n", rule.name, rule.asks);
    return true;
  }
  bool all = true;
  Judged judged;
  for (const std::string& path : flags.paths) {
    KAKEYA_ASSIGN_OR_RETURN(const bool passes, judge_all(path, judged));
    all = all && passes;
  }
  for (const eval::FindingOfFile& found : eval::check_agreement(judged.passed)) {
    all = print_findings(found.path, "", {found.finding}) && all;
  }
  return all;
}

}  // namespace

void add_eval_gate_command(CLI::App& eval, int& exit_code) {
  CLI::App* command =
      eval.add_subcommand("gate", "Whether reports carry what they claim: rules, each of one line");
  auto flags = std::make_shared<GateFlags>();
  command
      ->add_option("reports", flags->paths,
                   "Reports, lines of measurements, and folders of them (*.json, *.jsonl)")
      ->type_name("DIR|FILE ...");
  command->add_flag("--rules", flags->rules, "Print the rules");
  command->footer(
      "What a report claims is computed anew from the samples in it: ratios, speeds, counts, "
      "bytes. "
      "Outputs that are said to be equal must have equal hashes; every time needs its baseline of "
      "the "
      "same run. In a checkout of the repository, commits are looked up in its history. The exit "
      "code is 1 if a report fails, or a folder has a file that no rule reads.\n"
      "Examples:\n"
      "  kakeya eval gate docs/results\n"
      "  kakeya eval spec --out report.json && kakeya eval gate report.json");
  command->callback([flags, &exit_code] {
    if (flags->paths.empty() && !flags->rules) {
      exit_code =
          report(Error(StatusCode::kInvalidArgument, "eval gate: name reports or a folder"));
      return;
    }
    const auto passes = run_gate(*flags);
    if (!passes) {
      exit_code = report(passes.error());
    } else {
      exit_code = *passes ? kExitOk : kExitFailedCheck;
    }
  });
}

}  // namespace kakeya::cli
