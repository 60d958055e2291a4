// Rules by which a report has the rows that its command asks for, no fewer and no others.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/builtin_sets.h"
#include "eval/report/kv_modes.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

// Without a folder or a file of the user's own, sets are those that come with the program.
std::optional<std::int64_t> prompts_asked(const std::string& set,
                                          std::int64_t limit,
                                          const ReportCommand& command) {
  for (const char* own : {"--data", "--prompts", "--file"}) {
    if (command.given.contains(own)) return std::nullopt;
  }
  return builtin_prompts(set, limit);
}

}  // namespace

void check_prompts_asked(std::int64_t got,
                         const std::string& set,
                         std::int64_t limit,
                         const ReportCommand& command,
                         const std::string& at,
                         RuleChecks& checks) {
  checks.expect(limit == 0 || got <= limit, "counts", at,
                fmt::format("expected at most {} (--limit), got {}", limit, got));
  if (const auto asked = prompts_asked(set, limit, command)) {
    checks.expect(got == *asked, "counts", at,
                  fmt::format("expected {} of {}, got {}", *asked, set, got));
  }
}

void check_texts_asked(const Report& report, const ReportCommand& command, RuleChecks& checks) {
  const std::int64_t limit = count(report["options"]["limit"]);
  for (std::size_t i = 0; i < report["sets"].size(); ++i) {
    const Report& set = report["sets"][i];
    const std::string at = fmt::format("sets/{}/windows", i);
    std::set<std::string> texts;
    std::string before;
    for (const Report& window : set["windows"]) {
      const auto text = window["text"].get<std::string>();
      const bool begins = texts.insert(text).second;
      checks.expect(begins || text == before, "once", at,
                    fmt::format("expected the windows of {} one behind the other", text));
      before = text;
    }
    check_prompts_asked(std::ssize(texts), set["set"].get<std::string>(), limit, command, at,
                        checks);
  }
}

void check_modes_asked(const Report& report,
                       const std::vector<std::string>& named,
                       const std::vector<std::string>& otherwise,
                       RuleChecks& checks) {
  const bool by_name = !named.empty();
  // A report that names a removed mode is judged by the table of its time.
  const bool is_former = std::ranges::any_of(report["modes"], [](const Report& entry) {
    return !refused_kv_mode(entry["mode"].get<std::string>()).empty() ||
           !refused_kv_mode(entry.value("control", std::string(kExactMode))).empty();
  });
  std::vector<KvMode> table = is_former ? former_kv_modes() : kv_modes();
  // Some were removed when that control was no mode any more.
  constexpr std::string_view kControl = "int4r";
  const bool has_control = std::ranges::any_of(report["modes"], [&](const Report& entry) {
    return entry["mode"] == kControl || entry.value("control", std::string()) == kControl;
  });
  for (KvMode& mode : table) {
    if (!has_control && mode.control == kControl) mode.control.clear();
  }
  const auto chosen = choose_kv_modes(by_name ? named : otherwise, table);
  checks.expect(chosen.has_value(), "provenance", "modes/*/mode", "expected modes that are known");
  if (!chosen) return;
  std::set<std::string> asked;
  std::set<std::string> there;
  for (const KvMode& mode : *chosen) asked.insert(mode.name);
  for (std::size_t i = 0; i < report["modes"].size(); ++i) {
    const Report& entry = report["modes"][i];
    const auto name = entry["mode"].get<std::string>();
    const std::string at = fmt::format("modes/{}", i);
    there.insert(name);
    checks.expect(asked.contains(name), "provenance", at + "/mode",
                  fmt::format("expected a mode that the command asks for, got {}", name));
    const auto mode = std::ranges::find(*chosen, name, &KvMode::name);
    if (mode == chosen->end()) continue;
    const std::string control = entry.value("control", std::string());
    checks.expect(control == mode->control, "same-run", at + "/control",
                  fmt::format("expected '{}', got '{}'", mode->control, control));
  }
  for (const KvMode& mode : *chosen) {
    // Where no mode is named, those without a projection are left out, and a kind of report has
    // had more of them with time.
    if (!by_name && !there.contains(mode.name)) continue;
    checks.expect(there.contains(mode.name), "provenance", "modes/*/mode",
                  fmt::format("expected {}, which the command asks for", mode.name));
    checks.expect(mode.control.empty() || there.contains(mode.control), "same-run", "modes/*/mode",
                  fmt::format("expected {} beside {}", mode.control, mode.name));
  }
}

}  // namespace kakeya::eval
