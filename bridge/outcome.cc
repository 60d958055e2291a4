#include "outcome.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "asked_report.h"
#include "base/status.h"
#include "eval/report/report_gate.h"
#include "formats/printable.h"

namespace kakeya::bridge {
namespace {

constexpr std::size_t kMostFindings = 20;

void fail(const std::string& name, const std::string& problem, Verdict& verdict) {
  verdict.passes = false;
  verdict.lines.push_back(name + ": " + problem);
}

// By what was asked for and the rules of its kind, each line with the report's name.
void judge_report(const std::string& name,
                  const Preset& preset,
                  const Values& values,
                  const Json& report,
                  Verdict& verdict) {
  const std::string problem = problem_of_report(preset, values, report);
  if (!problem.empty()) return fail(name, problem, verdict);
  const std::vector<eval::GateFinding> findings = eval::check_report(report);
  if (findings.empty()) {
    verdict.lines.push_back(fmt::format("{}: ok by the gate, {}", name,
                                        printable(report["schema"].get<std::string>())));
    return;
  }
  verdict.passes = false;
  for (std::size_t i = 0; i < std::min(findings.size(), kMostFindings); ++i) {
    verdict.lines.push_back(fmt::format("{}: FAIL {}: {}: {}", name, findings[i].rule,
                                        printable(findings[i].at), printable(findings[i].says)));
  }
  if (findings.size() > kMostFindings) {
    verdict.lines.push_back(fmt::format("{}: and {} more", name, findings.size() - kMostFindings));
  }
}

std::string last_messages(const std::string& messages) {
  const std::size_t end = messages.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = messages.rfind('\n', end);
  const std::string line = messages.substr(begin + 1, end - begin);  // npos + 1 is 0
  return ": " + printable(line);
}

// Why the check says nothing; empty: it ran to its end.
std::string problem_of(const Outcome& outcome) {
  if (outcome.end == "refused") return "refused: " + printable(outcome.refusal);
  if (outcome.end == "timed out") {
    return fmt::format("ended after {:.0f} s, its limit", outcome.limit_seconds);
  }
  if (outcome.end == "signal") {
    return fmt::format("ended by signal {}{}", outcome.code, last_messages(outcome.messages));
  }
  if (outcome.end != "exited") return "ended: " + printable(outcome.end);
  if (outcome.code != 0) {
    return fmt::format("exit code {}{}", outcome.code, last_messages(outcome.messages));
  }
  return outcome.report.is_object() ? "" : "it printed no report";
}

}  // namespace

std::string end_name(ChildEnd end) {
  switch (end) {
    case ChildEnd::kExited:
      return "exited";
    case ChildEnd::kSignal:
      return "signal";
    case ChildEnd::kTimedOut:
      return "timed out";
    case ChildEnd::kTooMuchOutput:
      return "too much output";
    case ChildEnd::kStopped:
      break;
  }
  return "stopped";
}

Json outcome_json(const Outcome& outcome) {
  return {{"id", outcome.id},
          {"job_sha256", outcome.job_sha256},
          {"preset", outcome.preset},
          {"end", outcome.end},
          {"refusal", outcome.refusal},
          {"code", outcome.code},
          {"started", outcome.started},
          {"seconds", outcome.seconds},
          {"limit_seconds", outcome.limit_seconds},
          {"report", outcome.report},
          {"messages", outcome.messages}};
}

Result<Outcome> parse_outcome(const Json& json) {
  constexpr std::array kTexts = {"id", "job_sha256", "preset", "end", "refusal", "messages"};
  constexpr std::array kNumbers = {"seconds", "limit_seconds"};
  constexpr std::array kWholeNumbers = {"code", "started"};
  for (const char* name : kTexts) {
    if (!json.contains(name) || !json[name].is_string()) {
      return data_loss("a result: expected the text '{}'", name);
    }
  }
  for (const char* name : kNumbers) {
    if (!json.contains(name) || !json[name].is_number()) {
      return data_loss("a result: expected the number '{}'", name);
    }
  }
  for (const char* name : kWholeNumbers) {
    if (!json.contains(name) || !json[name].is_number_integer()) {
      return data_loss("a result: expected the whole number '{}'", name);
    }
  }
  Outcome outcome;
  outcome.id = json["id"].get<std::string>();
  outcome.job_sha256 = json["job_sha256"].get<std::string>();
  outcome.preset = json["preset"].get<std::string>();
  outcome.end = json["end"].get<std::string>();
  outcome.refusal = json["refusal"].get<std::string>();
  outcome.messages = json["messages"].get<std::string>();
  outcome.code = json["code"].get<int>();
  outcome.started = json["started"].get<std::int64_t>();
  outcome.seconds = json["seconds"].get<double>();
  outcome.limit_seconds = json["limit_seconds"].get<double>();
  if (json.contains("report")) outcome.report = json["report"];
  return outcome;
}

Verdict judge(const Outcome& outcome, const std::string& preset_name, const Json& parameters) {
  Verdict verdict{.passes = true, .lines = {}};
  const std::string problem = problem_of(outcome);
  if (!problem.empty()) fail(preset_name, problem, verdict);
  if (!outcome.report.is_object()) return verdict;
  const Preset* const preset = find_preset(known_presets(), preset_name);
  if (preset == nullptr) {
    fail(printable(preset_name), "expected a preset that this program knows", verdict);
    return verdict;
  }
  const auto values = check_parameters(*preset, parameters);
  if (!values) {
    fail(preset_name, values.error().message(), verdict);
    return verdict;
  }
  const std::string missing = problem_of_fields(*preset, outcome.report);
  if (!preset->reports_into_folder && !preset->kinds.empty()) {
    judge_report(preset_name, *preset, *values, outcome.report, verdict);
  } else if (!missing.empty()) {
    fail(preset_name, missing, verdict);
  } else if (preset->kinds.empty()) {
    verdict.lines.push_back(preset_name +
                            ": a report without a schema, for which the gate has no rules");
  } else {
    for (const auto& [name, report] : outcome.report["reports"].items()) {
      judge_report(printable(name), *preset, *values, report, verdict);
    }
  }
  return verdict;
}

}  // namespace kakeya::bridge
