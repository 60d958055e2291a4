// Rules by which a report says of its flags what its command says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "eval/report/kv_modes.h"
#include "eval/report/report_command.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

using enum FlagForm;

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Says whether the number is the one in the text, as doubles or, where the program keeps floats, as
// these.
bool is_number_of(const Report& got, const std::string& text) {
  if (!got.is_number()) return false;
  char* end = nullptr;
  const double expected = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(expected)) return false;
  const double value = got.get<double>();
  return value == expected || value == static_cast<double>(static_cast<float>(expected));
}

std::string joined_by_commas(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ",") + value;
  return text;
}

// Says whether the numbers are those of the texts, in whatever order.
bool are_numbers_of(const std::vector<Report>& got, const std::vector<std::string>& values) {
  std::set<std::int64_t> expected;
  std::set<std::int64_t> here;
  for (const std::string& value : values) {
    char* end = nullptr;
    expected.insert(std::strtoll(value.c_str(), &end, 10));
    if (value.empty() || *end != '\0') return false;
  }
  for (const Report& value : got) here.insert(value.get<std::int64_t>());
  return here == expected;
}

void check_names(const Report& report,
                 const CommandFlag& flag,
                 const ReportCommand& command,
                 RuleChecks& checks) {
  // One set of the user's own, of another name: beside those that are named, or alone.
  const bool own = command.given.contains("--prompts") || command.given.contains("--file");
  const auto given = command.given.find(flag.name);
  std::vector<std::string> named;
  if (given != command.given.end()) {
    named = given->second;
  } else if (!own && flag.otherwise != "-") {
    named = split(flag.otherwise, ',');
  }
  std::set<std::string> found;
  for (const std::string& at : split(flag.at, '|')) {
    for (const Report& value : values_at(report, at)) found.insert(value.get<std::string>());
  }
  for (const std::string& name : named) {
    checks.expect(found.erase(name) > 0, "provenance", std::string(flag.at),
                  fmt::format("expected {}, which {} names", name, flag.name));
  }
  if (flag.otherwise == "-") return;
  checks.expect(found.size() <= (own ? 1U : 0U), "provenance", std::string(flag.at),
                fmt::format("expected what {} names alone, got {} more", flag.name, found.size()));
}

// Compares one field that repeats a flag.
void check_field(const Report& got,
                 const CommandFlag& flag,
                 const std::vector<std::string>& given,
                 bool is_given,
                 const std::string& at,
                 RuleChecks& checks) {
  const std::string which =
      flag.name.empty() ? std::string("no flag changes it") : std::string(flag.name);
  if (flag.form == kFlag) {
    checks.expect(got == is_given, "provenance", at,
                  fmt::format("expected {}, as the command says ({})", is_given, which));
    return;
  }
  if (!is_given && flag.otherwise == "-") return;
  const std::string text = is_given ? joined_by_commas(given) : std::string(flag.otherwise);
  const bool equal = flag.form == kNumber ? is_number_of(got, text) : got == text;
  checks.expect(equal, "provenance", at,
                fmt::format("expected {}, as the command says ({}), got {}", text, which,
                            got.dump().substr(0, 60)));
}

void check_flags(const Report& report,
                 std::span<const CommandFlag> flags,
                 const ReportCommand& command,
                 RuleChecks& checks) {
  for (const CommandFlag& flag : flags) {
    if (flag.at.empty()) continue;
    const auto given = command.given.find(flag.name);
    const bool is_given = !flag.name.empty() && given != command.given.end();
    const std::vector<std::string> values = is_given ? given->second : std::vector<std::string>();
    if (flag.form == kNames) {
      check_names(report, flag, command, checks);
      continue;
    }
    if (flag.form == kNumbers) {
      const std::vector<std::string> expected = is_given ? values : split(flag.otherwise, ',');
      checks.expect(are_numbers_of(values_at(report, flag.at), expected), "provenance",
                    std::string(flag.at),
                    fmt::format("expected {}, as the command says ({})", joined_by_commas(expected),
                                flag.name));
      continue;
    }
    for (const std::string& at : split(flag.at, '|')) {
      for (const Report& value : values_at(report, at)) {
        check_field(value, flag, values, is_given, at, checks);
      }
    }
  }
}

// "kakeya.eval.served-niah/1": served-niah.
std::string evaluation_of(const Report& report) {
  const std::string schema = report["schema"].get<std::string>();
  const std::string rest = schema.substr(schema.find('.') + 1);
  std::string name = rest.starts_with("eval.") ? rest.substr(5) : rest;
  name.resize(std::min(name.find('/'), name.size()));
  return name;
}

// Names the projections of a report's modes, in the order that reports have.
std::set<std::string> projections_of_modes(const Report& report) {
  std::set<std::string> names;
  if (!report.contains("modes")) return names;
  for (const Report& entry : report["modes"]) {
    const std::vector<KvMode>& modes = former_kv_modes();
    const auto mode = std::ranges::find(modes, entry["mode"].get<std::string>(), &KvMode::name);
    if (mode != modes.end() && !mode->projection.empty()) names.insert(mode->projection);
  }
  return names;
}

}  // namespace

void check_bench_command(const Report& report,
                         std::string_view command,
                         std::size_t words_before,
                         RuleChecks& checks) {
  const auto words = report["command"].get<std::vector<std::string>>();
  if (words.size() < words_before) {
    checks.expect(false, "provenance", "command", "expected the command that makes such a report");
    return;
  }
  const std::vector<CommandFlag> flags = command_flags(command);
  const std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(words_before),
                                      words.end());
  const ReportCommand parsed = parse_command(rest, flags);
  checks.expect(parsed.unknown.empty(), "provenance", "command",
                fmt::format("expected flags of {}, got {}", command, parsed.unknown));
  if (parsed.unknown.empty()) check_flags(report, flags, parsed, checks);
}

ReportCommand command_of(const Report& report, RuleChecks& checks) {
  std::string name = evaluation_of(report);
  const bool served = name.starts_with("served-");
  if (served) name = name.substr(7);
  if (name == "task") name = report["options"]["task"].get<std::string>();
  const auto words = report["command"].get<std::vector<std::string>>();
  const bool of_it = words.size() >= 3 && words[1] == "eval" && words[2] == name;
  checks.expect(of_it, "provenance", "command",
                fmt::format("expected kakeya eval {}, which makes such a report", name));
  if (!of_it) return {};
  std::vector<CommandFlag> flags = served ? command_flags("served") : std::vector<CommandFlag>();
  for (const CommandFlag& flag : command_flags(name)) {
    const auto same = [&](const CommandFlag& other) { return other.name == flag.name; };
    if (flag.name.empty() || std::ranges::none_of(flags, same)) flags.push_back(flag);
  }
  const std::vector<std::string> rest(words.begin() + 3, words.end());
  ReportCommand command = parse_command(rest, flags);
  checks.expect(command.unknown.empty(), "provenance", "command",
                fmt::format("expected flags of kakeya eval {}, got {}", name, command.unknown));
  if (command.unknown.empty()) check_flags(report, flags, command, checks);
  return command;
}

void check_projections(const Report& report, RuleChecks& checks) {
  if (!report.contains("projections")) return;
  std::vector<std::string> names;
  for (const Report& projection : report["projections"]) {
    names.push_back(projection["name"].get<std::string>());
  }
  std::vector<std::string> expected;
  const Report& session = report["session"];
  const bool restores =
      session["evicted_full"] == "restore" || session["evicted_sliding"] == "restore";
  // One that was named is loaded all the same.
  const bool named = session["projection"] != "auto" && session["projection"] != "none";
  const bool is_there = !names.empty() && names.front() == "session";
  if (restores || (named && is_there)) expected.emplace_back("session");
  std::ranges::copy(projections_of_modes(report), std::back_inserter(expected));
  checks.expect(names == expected, "provenance", "projections",
                fmt::format("expected the hashes of those that restored rows: '{}', got '{}'",
                            joined_by_commas(expected), joined_by_commas(names)));
}

}  // namespace kakeya::eval
