// kakeya eval gate: whether reports carry what they claim.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/output.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/report/report_gate.h"

namespace kakeya::cli {
namespace {

struct GateFlags {
  std::vector<std::string> paths;
  bool rules = false;
};

// Prints whether the report passes; true if it does.
Result<bool> judge(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const eval::Report report, eval::read_report(path));
  const std::vector<eval::GateFinding> findings = eval::check_report(report);
  if (findings.empty()) {
    print("ok    {}  {}\n", path, report["schema"].get<std::string>());
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

Result<bool> run_gate(const GateFlags& flags) {
  if (flags.rules) {
    for (const eval::GateRule& rule : eval::gate_rules())
      print("{:<20} {}\n", rule.name, rule.asks);
    return true;
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::string> reports, find_reports(flags.paths));
  bool all = true;
  for (const std::string& path : reports) {
    KAKEYA_ASSIGN_OR_RETURN(const bool passes, judge(path));
    all = all && passes;
  }
  return all;
}

}  // namespace

void add_eval_gate_command(CLI::App& eval, int& exit_code) {
  CLI::App* command =
      eval.add_subcommand("gate", "Whether reports carry what they claim: rules, each of one line");
  auto flags = std::make_shared<GateFlags>();
  command->add_option("reports", flags->paths, "Reports, and folders of them (*.json)")
      ->type_name("DIR|REPORT.json ...");
  command->add_flag("--rules", flags->rules, "Print the rules");
  command->footer(
      "What a report claims is computed anew from the samples in it: ratios, speeds, counts, "
      "bytes. "
      "Outputs that are said to be equal must have equal hashes; every time needs its baseline of "
      "the "
      "same run. The exit code is 1 if a report fails.\n"
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
