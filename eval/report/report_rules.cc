#include "eval/report/report_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace kakeya::eval {
namespace {

void collect_values(const Report& value,
                    std::span<const std::string> names,
                    std::vector<Report>& found) {
  if (names.empty()) {
    found.push_back(value);
  } else if (names.front() == "*" && value.is_array()) {
    for (const Report& element : value) collect_values(element, names.subspan(1), found);
  } else if (value.is_object() && value.contains(names.front())) {
    collect_values(value[names.front()], names.subspan(1), found);
  }
}

}  // namespace

void RuleChecks::expect(bool holds, const char* rule, const std::string& at, std::string says) {
  if (!holds) findings_.push_back({rule, at, std::move(says)});
}

void RuleChecks::expect_number(double expected,
                               const Report& got,
                               const char* rule,
                               const std::string& at) {
  const double value = got.get<double>();
  const double tolerance = 1e-12 * std::max(std::abs(expected), std::abs(value));
  // An infinite tolerance would allow anything.
  const bool finite = std::isfinite(expected) && std::isfinite(value);
  expect(finite && std::abs(value - expected) <= tolerance, rule, at,
         fmt::format("expected {}, got {}", expected, value));
}

void RuleChecks::expect_count(std::int64_t expected,
                              const Report& got,
                              const char* rule,
                              const std::string& at) {
  expect(count(got) == expected, rule, at,
         fmt::format("expected {}, got {}", expected, count(got)));
}

std::int64_t count(const Report& value) {
  return value.get<std::int64_t>();
}

std::vector<double> numbers(const Report& list) {
  return list.get<std::vector<double>>();
}

std::vector<Report> values_at(const Report& report, std::string_view at) {
  std::vector<Report> found;
  collect_values(report, names_of(at), found);
  return found;
}

double largest(const std::vector<double>& values) {
  return *std::ranges::max_element(values);
}

double smallest(const std::vector<double>& values) {
  return *std::ranges::min_element(values);
}

void check_window(const Report& windows,
                  std::size_t k,
                  std::int64_t window,
                  const std::string& at,
                  RuleChecks& checks) {
  const Report& row = windows[k];
  const bool is_last = k + 1 == windows.size() || windows[k + 1]["text"] != row["text"];
  const std::int64_t fewest = is_last ? 1 : window - 1;
  const std::int64_t tokens = count(row["tokens"]);
  checks.expect(tokens >= fewest && tokens < window, "counts", at + "/tokens",
                fmt::format("expected {} to {}, got {}", fewest, window - 1, tokens));
}

void check_interval(const Report& set,
                    const Interval& interval,
                    const std::string& at,
                    RuleChecks& checks) {
  const bool has = has_interval(set["windows"].size());
  for (const auto& [name, expected] :
       {std::pair("low", interval.low), std::pair("high", interval.high)}) {
    const std::string here = at + "/" + name;
    checks.expect(has == set.contains(name), "samples", here,
                  has ? "expected it, of so many windows"
                      : "expected no interval of one window, which says nothing of others");
    if (has && set.contains(name)) checks.expect_number(expected, set[name], "headline", here);
  }
}

void check_spread(const std::vector<double>& seconds, const std::string& at, RuleChecks& checks) {
  constexpr double kWidest = 3.0;
  const double spread = largest(seconds) / smallest(seconds);
  checks.expect(spread <= kWidest, "spread", at,
                fmt::format("expected samples within a factor of {}, got {:.2f}", kWidest, spread));
}

void check_provenance(const Report& report, RuleChecks& checks) {
  checks.expect(!report["dirty"].get<bool>(), "provenance", "dirty",
                "expected a commit without changes, got true");
  if (!report.contains("threads")) return;
  const std::int64_t threads = count(report["threads"]);
  const std::int64_t cpus = count(report["machine"]["cpus"]);
  checks.expect(threads >= 1 && threads <= cpus, "provenance", "threads",
                fmt::format("expected 1 to {}, got {}", cpus, threads));
  if (!report.contains("bench")) return;
  const std::string bench = report["bench"].get<std::string>();
  checks.expect(report["schema"] == "kakeya.bench." + bench + "/1", "provenance", "bench",
                "expected the benchmark that the schema names, got " + bench);
}

}  // namespace kakeya::eval
