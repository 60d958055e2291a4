// Rules by which reports are of commits that the repository has, and of no time before them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "eval/report/report_gate.h"

namespace kakeya::eval {

// All commits that HEAD came from, by their hashes: when each was made, in seconds since 1970.
using CommitHistory = std::map<std::string, std::int64_t, std::less<>>;

// When the commit whose hash begins so was made; nothing: there is none, or there are several.
std::optional<std::int64_t> commit_time(const CommitHistory& history, const std::string& prefix);

// Seconds since 1970 of a time such as 2026-11-23T18:53:06Z; nothing: there is no such day.
std::optional<std::int64_t> seconds_of_time(const std::string& time);

// Checks commit and date of a report that check_report() found nothing in. `history` null: nobody
// knows it. `now`: in seconds since 1970.
std::vector<GateFinding> check_history(const Report& report,
                                       const CommitHistory* history,
                                       std::int64_t now);

// Checks the commits that lines (line_gate.h) name.
std::vector<GateFinding> check_line_history(const std::vector<Report>& lines,
                                            const CommitHistory& history);

}  // namespace kakeya::eval
