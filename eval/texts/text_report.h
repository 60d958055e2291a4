// The common part of the reports of `kakeya eval perplexity` and `kakeya eval kl`.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "eval/report/report_claims.h"
#include "eval/report/report_command.h"

namespace kakeya::eval {

// Bounds of sets of windows: a set of one window has had none since the second version.
inline constexpr std::string_view kInterval = R"(
sets/*/low number checked
sets/*/high number checked
)";
inline constexpr std::string_view kOptionalInterval = R"(
sets/*/low? number checked
sets/*/high? number checked
)";

inline constexpr CommandFlag kTextFlags[] = {
    {"--texts", "", FlagForm::kNames, "sets/*/set", "wikitext2,prose,code"},
    {"--file", "", FlagForm::kUnsaid},
    {"--length", "", FlagForm::kNumber, "options/length|options/window", "512"},
    {"--limit", "", FlagForm::kNumber, "options/limit", "0"},
    {"--counted", "", FlagForm::kText, "options/counted", "all"},
    {"", "", FlagForm::kText, "session/draft", "none"},
    {"--draft", "", FlagForm::kUnsaid},
    {"--reference", "", FlagForm::kText, "reference/model"},
    {"--reference-backend", "", FlagForm::kUnsaid},
    {"--reference-compute", "", FlagForm::kText, "reference/compute", "f32"},
};

// Gives the interval of a set, of which a set of one window has none.
inline std::optional<std::pair<double, double>> interval_of(const Report& set) {
  if (!set.contains("low") || !set.contains("high")) return std::nullopt;
  return std::pair(field_number(set["low"]), field_number(set["high"]));
}

}  // namespace kakeya::eval
