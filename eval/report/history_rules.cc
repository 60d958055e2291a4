#include "eval/report/history_rules.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "eval/report/line_gate.h"

namespace kakeya::eval {

std::optional<std::int64_t> commit_time(const CommitHistory& history, const std::string& prefix) {
  const auto first = history.lower_bound(prefix);
  if (first == history.end() || !first->first.starts_with(prefix)) return std::nullopt;
  const auto next = std::next(first);
  if (next != history.end() && next->first.starts_with(prefix)) return std::nullopt;
  return first->second;
}

std::optional<std::int64_t> seconds_of_time(const std::string& time) {
  if (time.size() != std::string_view("2026-11-23T18:53:06Z").size()) return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = -1;
    std::from_chars(time.data() + at, time.data() + at + digits, value);
    return value;
  };
  namespace chrono = std::chrono;
  const chrono::year_month_day day{chrono::year(number(0, 4)),
                                   chrono::month(static_cast<unsigned>(number(5, 2))),
                                   chrono::day(static_cast<unsigned>(number(8, 2)))};
  const int hours = number(11, 2);
  const int minutes = number(14, 2);
  const int seconds = number(17, 2);
  if (!day.ok() || hours > 23 || minutes > 59 || seconds > 60) return std::nullopt;
  return chrono::sys_days(day).time_since_epoch() / chrono::seconds(1) + 3600 * hours +
         60 * minutes + seconds;
}

std::vector<GateFinding> check_history(const Report& report,
                                       const CommitHistory* history,
                                       std::int64_t now) {
  constexpr std::int64_t kClocksDiffer = 600;
  std::vector<GateFinding> findings;
  const auto find = [&](const char* at, std::string says) {
    findings.push_back({"history", at, std::move(says)});
  };
  const auto text = report["conditions"]["started"].get<std::string>();
  const std::optional<std::int64_t> started = seconds_of_time(text);
  if (!started) {
    find("conditions/started", "expected a day that there is, got " + text);
  } else if (const double ended =
                 report["conditions"]["seconds"].get<double>() + static_cast<double>(*started);
             ended > static_cast<double>(now + kClocksDiffer)) {
    find("conditions/started", "expected a run that has ended, got " + text);
  }
  if (history == nullptr) return findings;
  const auto commit = report["commit"].get<std::string>();
  const std::optional<std::int64_t> made = commit_time(*history, commit);
  if (!made) {
    find("commit", "expected one that HEAD came from, got " + commit);
  } else if (started && *started + kClocksDiffer < *made) {
    find("conditions/started", fmt::format("expected a run of a commit that was there ({} seconds "
                                           "later), got {}",
                                           *made - *started, text));
  }
  return findings;
}

std::vector<GateFinding> check_line_history(const std::vector<Report>& lines,
                                            const CommitHistory& history) {
  std::vector<GateFinding> findings;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string commit = commit_of_line(lines[i]);
    if (commit.empty() || commit_time(history, commit)) continue;
    findings.push_back({"history", fmt::format("line {}/code", i + 1),
                        "expected a commit that HEAD came from, got " + commit});
  }
  return findings;
}

}  // namespace kakeya::eval
