// The rules of report_gate.h, by kinds of reports. Each reads a report whose fields were checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/report/bootstrap.h"
#include "eval/report/report_command.h"
#include "eval/report/report_gate.h"

namespace kakeya::eval {

// Collects findings.
class RuleChecks {
 public:
  explicit RuleChecks(std::vector<GateFinding>& findings) : findings_(findings) {}

  // Rules read on as if nothing had been found.
  void expect(bool holds, const char* rule, const std::string& at, std::string says);
  // Equal but for the rounding of doubles that were computed in another order.
  void expect_number(double expected, const Report& got, const char* rule, const std::string& at);
  void expect_count(std::int64_t expected,
                    const Report& got,
                    const char* rule,
                    const std::string& at);

 private:
  std::vector<GateFinding>& findings_;
};

constexpr std::size_t kFewestSamples = 5;   // behind a ratio of times
constexpr double kShortestSample = 0.1;     // seconds of one of them
constexpr std::int64_t kFewestAnswers = 5;  // behind a recall

std::int64_t count(const Report& value);
std::vector<double> numbers(const Report& list);
// The values at "modes/*/mode", or the one at "options/limit"; none where the report has none.
std::vector<Report> values_at(const Report& report, std::string_view at);
// The largest and the smallest of one value or more.
double largest(const std::vector<double>& values);
double smallest(const std::vector<double>& values);

// Row k of windows into which texts were cut: all but a text's last are full, which is one token
// less than `window`, for its first is not predicted.
void check_window(const Report& windows,
                  std::size_t k,
                  std::int64_t window,
                  const std::string& at,
                  RuleChecks& checks);

// The interval of a set's windows: there where they are two or more, and as it should be.
void check_interval(const Report& set,
                    const Interval& interval,
                    const std::string& at,
                    RuleChecks& checks);

// No sample takes much longer than another one.
void check_spread(const std::vector<double>& seconds, const std::string& at, RuleChecks& checks);

void check_provenance(const Report& report, RuleChecks& checks);
void check_once(const Report& report, RuleChecks& checks);
void check_run_time(const Report& report, RuleChecks& checks);
// The command of an evaluation's report; what the report says of its flags is compared with it.
ReportCommand command_of(const Report& report, RuleChecks& checks);
// The prompts of a set are as many as the command asks for.
void check_prompts_asked(std::int64_t got,
                         const std::string& set,
                         std::int64_t limit,
                         const ReportCommand& command,
                         const std::string& at,
                         RuleChecks& checks);
// The texts that a report's windows are cut from.
void check_texts_asked(const Report& report, const ReportCommand& command, RuleChecks& checks);
// The modes are those that are named, or some of the others where none is, each beside its control.
void check_modes_asked(const Report& report,
                       const std::vector<std::string>& named,
                       const std::vector<std::string>& otherwise,
                       RuleChecks& checks);
// Compares a benchmark's report with its command, whose flags begin behind so many words.
void check_bench_command(const Report& report,
                         std::string_view command,
                         std::size_t words_before,
                         RuleChecks& checks);
// Checks that reports of versions which name what restored rows name all of it.
void check_projections(const Report& report, RuleChecks& checks);

}  // namespace kakeya::eval
