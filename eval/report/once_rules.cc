// Rules of every kind of report: no row stands there twice, and what was timed fits into the run.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/report_kind.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

void check_unique(const std::vector<std::string>& rows, const std::string& at, RuleChecks& checks) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    checks.expect(seen.insert(rows[i]).second, "once", at,
                  fmt::format("expected each row once, got number {} again: {}", i + 1,
                              rows[i].substr(0, 80)));
  }
}

// Parts of a journal were timed by earlier runs.
bool is_resumed(const Report& report) {
  return std::ranges::any_of(report["command"], [](const Report& word) {
    const auto text = word.get<std::string>();
    return text == "--resume" || text.starts_with("--resume=");
  });
}

}  // namespace

void check_once(const Report& report, RuleChecks& checks) {
  const ReportKind* kind = find_report_kind(report["schema"].get<std::string>());
  if (kind == nullptr) return;
  for (const UniqueRows& unique : kind->unique_rows) {
    for (const Report& list : values_at(report, unique.list)) {
      std::vector<std::string> rows;
      for (const Report& row : list) {
        std::string& key = rows.emplace_back();
        for (const std::string_view name : unique.keys) {
          key += row[std::string(name)].dump() + " ";
        }
      }
      check_unique(rows, std::string(unique.list), checks);
    }
  }
  for (const PairedSamples& paired : kind->paired_samples) {
    for (const Report& row : values_at(report, paired.rows)) {
      const std::vector<double> one = numbers(values_at(row, paired.one).front());
      const std::vector<double> other = numbers(values_at(row, paired.other).front());
      std::vector<std::string> pairs;
      for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i) {
        pairs.push_back(fmt::format("{} and {}", one[i], other[i]));
      }
      check_unique(pairs, fmt::format("{}/{}", paired.rows, paired.one), checks);
    }
  }
}

void check_run_time(const Report& report, RuleChecks& checks) {
  const ReportKind* kind = find_report_kind(report["schema"].get<std::string>());
  if (kind == nullptr || is_resumed(report)) return;
  double sum = kind->seconds_behind_speeds == nullptr ? 0.0 : kind->seconds_behind_speeds(report);
  for (const std::string_view at : kind->timed_samples) {
    for (const Report& value : values_at(report, at)) sum += value.get<double>();
  }
  // A server answers so many at once.
  const bool served = report.contains("options") && report["options"].contains("parallel");
  const double most = report["conditions"]["seconds"].get<double>() *
                      (served ? report["options"]["parallel"].get<double>() : 1.0);
  // Thousands of doubles were added up, each of which rounds by 1e-16 of the sum.
  checks.expect(sum <= most * (1.0 + 1e-12), "within-the-run", "conditions/seconds",
                fmt::format("expected {:.3f} or more, which samples took, got {:.3f}", sum, most));
}

}  // namespace kakeya::eval
