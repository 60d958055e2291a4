// kakeya eval report: reports as a page, and what has changed since another run.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/report.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/report/claim_chart.h"
#include "eval/report/report_page.h"

namespace kakeya::cli {
namespace {

struct PageFlags {
  std::vector<std::string> paths;
  std::vector<std::string> against;
  std::string out = "report.html";
};

Result<std::vector<eval::NamedReport>> read_reports(const std::vector<std::string>& paths) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::string> files, find_reports(paths));
  std::vector<eval::NamedReport> reports;
  for (const std::string& file : files) {
    KAKEYA_ASSIGN_OR_RETURN(eval::Report report, eval::read_report(file));
    reports.push_back({std::filesystem::path(file).stem().string(), std::move(report)});
  }
  return reports;
}

Status check_comparable(const std::string& path, const eval::Report& report) {
  const auto fields = eval::report_fields(report.value("schema", std::string()));
  if (fields.empty()) return data_loss("{}: expected a report of a known kind", path);
  const auto problems = eval::check_fields(report, fields);
  if (problems.empty()) return {};
  return data_loss("{}: {}: {}", path, problems.front().at, problems.front().says);
}

// The changes of reports that both runs have, by name; two single reports are each other's whatever
// their names.
Result<std::vector<eval::ReportChanges>> find_changes(const std::vector<eval::NamedReport>& before,
                                                      const std::vector<eval::NamedReport>& after) {
  std::vector<eval::ReportChanges> all;
  for (const eval::NamedReport& now : after) {
    const auto same = before.size() == 1 && after.size() == 1
                          ? before.begin()
                          : std::ranges::find(before, now.name, &eval::NamedReport::name);
    if (same == before.end()) continue;
    KAKEYA_TRY(check_comparable(same->name, same->report));
    KAKEYA_TRY(check_comparable(now.name, now.report));
    if (same->report["schema"] != now.report["schema"]) {
      return invalid_argument("eval report: {} is of kind {}, {} of kind {}", same->name,
                              same->report["schema"].get<std::string>(), now.name,
                              now.report["schema"].get<std::string>());
    }
    all.push_back({now.name, eval::compare_claims(same->report, now.report)});
  }
  if (all.empty()) {
    return invalid_argument(
        "eval report: expected reports of the same names in both runs, got none");
  }
  return all;
}

void print_changes(const std::vector<eval::ReportChanges>& all) {
  for (const eval::ReportChanges& of : all) {
    print("{}\n", of.name);
    for (const eval::ClaimChange& change : of.changes) {
      const std::string ratio =
          change.ratio ? fmt::format("{:.3f} ({:.3f} - {:.3f})", change.after / change.before,
                                     change.ratio->first, change.ratio->second)
                       : "";
      print("  {:<44} {:<28} {:>10} {:>10}  {:<24} {}\n", change.group, change.name,
            eval::claim_number(change.before), eval::claim_number(change.after), ratio,
            eval::verdict_text(change.verdict));
    }
  }
}

Status write_page(const PageFlags& flags) {
  KAKEYA_TRY(check_writable(flags.out));
  KAKEYA_ASSIGN_OR_RETURN(const auto reports, read_reports(flags.paths));
  std::vector<eval::ReportChanges> changes;
  if (!flags.against.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(const auto before, read_reports(flags.against));
    KAKEYA_ASSIGN_OR_RETURN(changes, find_changes(before, reports));
    print_changes(changes);
  }
  KAKEYA_TRY(write_text(flags.out, eval::report_page(reports, changes)));
  const auto failing = std::ranges::count_if(reports, [](const eval::NamedReport& named) {
    return !eval::check_report(named.report).empty();
  });
  print("{}: {} reports{}\n", flags.out, reports.size(),
        failing == 0 ? "" : fmt::format(", {} of which do not pass the gate", failing));
  return {};
}

}  // namespace

void add_eval_report_command(CLI::App& eval, int& exit_code) {
  CLI::App* command =
      eval.add_subcommand("report", "Reports as a page with charts, and what has changed");
  auto flags = std::make_shared<PageFlags>();
  command->add_option("reports", flags->paths, "Reports, and folders of them (*.json)")
      ->type_name("DIR|REPORT.json ...")
      ->required();
  command->add_option("--against", flags->against, "The same reports of an earlier run")
      ->type_name("DIR|REPORT.json ...");
  command->add_option("-o,--out", flags->out, "The page (default: report.html)")
      ->type_name("FILE.html");
  command->footer(
      "The page needs no other file and no network. With --against each claim that both runs have\n"
      "gets a verdict: where both have five samples or more, the ratio of their medians is "
      "computed\n"
      "2,000 times from samples drawn anew, and \"better\" or \"worse\" means that 95 of 100 "
      "ratios "
      "say so.\n"
      "Examples:\n"
      "  kakeya eval report docs/results\n"
      "  kakeya bench decode --json > after.json\n"
      "  kakeya eval report after.json --against before.json");
  command->callback([flags, &exit_code] {
    const Status written = write_page(*flags);
    exit_code = written ? kExitOk : report(written.error());
  });
}

}  // namespace kakeya::cli
