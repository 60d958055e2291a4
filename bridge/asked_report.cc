#include "asked_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "formats/printable.h"

namespace kakeya::bridge {
namespace {

constexpr std::string_view kModelWord = "{model}";

std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// "kakeya.eval.niah/2" is of the kind kakeya.eval.niah.
const ReportKind* kind_of(const Preset& preset, const std::string& schema) {
  const auto found =
      std::ranges::find(preset.kinds, schema.substr(0, schema.find('/')), &ReportKind::schema);
  return found == preset.kinds.end() ? nullptr : &*found;
}

std::string names_of_kinds(const Preset& preset) {
  std::string names;
  for (const ReportKind& each : preset.kinds) names += (names.empty() ? "" : " or ") + each.schema;
  return names;
}

// The words of a command, the values in their places.
std::vector<std::string> words_of(const std::vector<std::string>& arguments, const Values& values) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const bool is_place = argument.size() > 2 && argument.front() == '{' && argument != kModelWord;
    const auto value =
        is_place ? values.find(argument.substr(1, argument.size() - 2)) : values.end();
    words.push_back(value == values.end() ? argument : value->second);
  }
  return words;
}

// True if a report's command has these words behind its program: exactly them, or in front of
// others.
bool has_words(const Json& command, const std::vector<std::string>& words, bool all) {
  if (!command.is_array() || command.size() < words.size() + 1) return false;
  if (all && command.size() != words.size() + 1) return false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Json& got = command[i + 1];
    if (!got.is_string()) return false;
    if (words[i] != kModelWord && got != words[i]) return false;
  }
  return true;
}

}  // namespace

std::string problem_of_report(const Preset& preset, const Values& values, const Json& report) {
  const std::string schema = report.is_object() ? text_of(report, "schema") : std::string();
  const ReportKind* const kind = kind_of(preset, schema);
  if (kind == nullptr) {
    return fmt::format("expected a report of {}, got {}", names_of_kinds(preset),
                       schema.empty() ? "one without a schema" : printable(schema));
  }
  const bool is_single = !preset.reports_into_folder;
  const std::vector<std::string> words =
      words_of(is_single ? preset.arguments : kind->command, values);
  const auto command = report.find("command");
  if (command == report.end() || !has_words(*command, words, is_single)) {
    return fmt::format("expected a report of what was asked for, {} {}, got one of {}",
                       preset.program, fmt::join(words, " "),
                       command == report.end() ? "no command" : printable(json_line(*command)));
  }
  const auto backend = values.find("backend");
  if (backend == values.end()) return "";
  // "cpu/avx512" is the backend cpu with what it computes by.
  const std::string got = text_of(report, "backend");
  if (got.substr(0, got.find('/')) == backend->second) return "";
  return fmt::format("expected a report of the backend {}, got one of {}", backend->second,
                     got.empty() ? "none" : printable(got));
}

std::string problem_of_fields(const Preset& preset, const Json& report) {
  for (const std::string& name : preset.fields) {
    if (report.contains(name)) continue;
    return fmt::format("expected a report of {}, got one without '{}'", preset.name, name);
  }
  if (report.contains("schema")) {
    return fmt::format("expected a report of {}, got {}", preset.name,
                       printable(text_of(report, "schema")));
  }
  if (!preset.reports_into_folder) return "";
  const Json& reports = report["reports"];
  if (reports.is_object() && !reports.empty()) return "";
  return "expected reports beside the summary, got none";
}

}  // namespace kakeya::bridge
