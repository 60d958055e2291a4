// Rules of one line.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "eval/report/line_gate.h"
#include "eval/report/line_kinds.h"
#include "eval/report/probe_limits.h"
#include "eval/report/report_command.h"

namespace kakeya::eval {
namespace {

// An H200, as its data sheet has it: bytes of memory, bf16 and int8 sums without sparsity, blocks;
// a PCIe 5 link of 16 lanes.
constexpr double kMostGbPerSecond = 4800.0;
constexpr double kMostLinkGbPerSecond = 64.0;
constexpr double kMostBf16Tflops = 989.0;
constexpr double kMostInt8Tops = 1979.0;
constexpr double kMultiprocessors = 132.0;
constexpr double kSharedKib = 228.0;
constexpr double kMostThreads = 1024.0;
constexpr double kMostMegahertz = 1980.0;
constexpr double kMostMemoryMegahertz = 3201.0;
constexpr double kMostWatts = 700.0;
constexpr double kMostDegrees = 95.0;
constexpr double kMostMib = 143771.0;

// Half of the last digit that a line has.
constexpr double kHalfOfMs = 0.005;
constexpr double kHalfOfRate = 0.05;

constexpr std::array kLineFlags = {
    CommandFlag{"--backend", "", FlagForm::kUnsaid},
    CommandFlag{"--shape", "", FlagForm::kUnsaid},
    CommandFlag{"--layers", "", FlagForm::kNumber},
    CommandFlag{"--weights", "", FlagForm::kUnsaid},
    CommandFlag{"--context", "", FlagForm::kNumber},
    CommandFlag{"--repetitions", "", FlagForm::kNumber},
    CommandFlag{"--rows", "", FlagForm::kNumbers},
    CommandFlag{"--chunk", "", FlagForm::kNumber},
    CommandFlag{"--sessions", "", FlagForm::kNumbers},
    CommandFlag{"--tokens", "", FlagForm::kNumber},
    CommandFlag{"--acceptance", "", FlagForm::kNames},
};

double number_of(const Report& line, const char* name) {
  return line[name].get<double>();
}

void expect_most(
    const Report& line, const char* name, double most, const std::string& at, RuleChecks& checks) {
  if (!line.contains(name)) return;
  const double got = number_of(line, name);
  checks.expect(got <= most, "within-the-machine", at + name,
                fmt::format("expected at most {}, got {}", most, got));
}

// The first is at most the second, where the line has both.
void expect_order(const Report& line,
                  const char* less,
                  const char* more,
                  const std::string& at,
                  RuleChecks& checks) {
  if (!line.contains(less) || !line.contains(more)) return;
  const double low = number_of(line, less);
  const double high = number_of(line, more);
  checks.expect(low <= high, "headline", at + less,
                fmt::format("expected at most {}, which {} is, got {}", high, more, low));
}

void expect_between(double low,
                    double high,
                    const Report& line,
                    const char* name,
                    const std::string& at,
                    RuleChecks& checks) {
  const double got = number_of(line, name);
  checks.expect(low <= got && got <= high, "headline", at + name,
                fmt::format("expected {:.5g} to {:.5g}, got {}", low, high, got));
}

// A median lies between its extremes, which are no factor of three apart.
void check_extremes(const Report& line,
                    const std::string& name,
                    const std::string& at,
                    RuleChecks& checks) {
  const std::string least = "min_" + name;
  const std::string most = "max_" + name;
  expect_order(line, least.c_str(), name.c_str(), at, checks);
  expect_order(line, name.c_str(), most.c_str(), at, checks);
  if (!line.contains(least) || !line.contains(most)) return;
  check_spread({number_of(line, least.c_str()), number_of(line, most.c_str())}, at + name, checks);
}

// Says whether the numbers of a flag of the command have the one that the line has.
bool is_among(double wanted, const std::vector<std::string>& values) {
  return std::ranges::any_of(values, [&](const std::string& value) {
    char* end = nullptr;
    const double got = std::strtod(value.c_str(), &end);
    return !value.empty() && *end == '\0' && got == wanted;
  });
}

// The line is one of what its command measures. `flag`: the one that says how many `name` are.
void check_line_command(const Report& line,
                        const std::vector<std::string>& benches,
                        const char* name,
                        std::string_view flag,
                        const std::vector<std::string>& otherwise,
                        const std::string& at,
                        RuleChecks& checks) {
  const std::vector<std::string> words = words_of_line(line);
  const bool known = words.size() >= 3 && words[0] == "kakeya" && words[1] == "bench" &&
                     std::ranges::count(benches, words[2]) > 0;
  checks.expect(known, "provenance", at + "command", "expected kakeya bench, which measures this");
  if (!known) return;
  const ReportCommand command =
      parse_command(std::vector<std::string>(words.begin() + 3, words.end()), kLineFlags);
  checks.expect(command.unknown.empty(), "provenance", at + "command",
                fmt::format("expected flags of kakeya bench, got {}", command.unknown));
  if (name == nullptr || !command.unknown.empty()) return;
  const auto given = command.given.find(flag);
  const std::vector<std::string> values = words[2] == "decode" ? std::vector<std::string>{"1"}
                                          : given == command.given.end() ? otherwise
                                                                         : given->second;
  checks.expect(
      is_among(number_of(line, name), values), "provenance", at + name,
      fmt::format("expected what the command measures ({}), got {}", flag, number_of(line, name)));
}

}  // namespace

std::string line_place(std::size_t index) {
  return fmt::format("line {}/", index + 1);
}

std::vector<std::string> words_of_line(const Report& line) {
  std::vector<std::string> words;
  const std::string text = line["command"].get<std::string>();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void check_pass_line(const Report& line, const std::string& at, RuleChecks& checks) {
  check_line_command(line, {"decode", "verify", "prefill"}, "rows", "--rows",
                     {"1", "2", "4", "8", "16", "512"}, at, checks);
  check_extremes(line, "ms", at, checks);
  const double rows = number_of(line, "rows");
  const double ms = number_of(line, "ms");
  if (line.contains("tokens_per_second")) {
    expect_between(1e3 * rows / (ms + kHalfOfMs) - kHalfOfRate,
                   1e3 * rows / std::max(ms - kHalfOfMs, 1e-9) + kHalfOfRate, line,
                   "tokens_per_second", at, checks);
  }
  expect_most(line, "probe_gb_per_s", kMostGbPerSecond, at, checks);
  if (line.contains("gb")) {
    double most = kMostGbPerSecond;
    if (line.contains("probe_gb_per_s")) {
      most = std::min(most, kMostOfProbe * number_of(line, "probe_gb_per_s"));
    }
    const double rate = 1e3 * number_of(line, "gb") / ms;
    checks.expect(rate <= most, "within-the-machine", at + "gb",
                  fmt::format("expected at most {:.0f} GB a second, got {:.0f}", most, rate));
  }
  if (!line.contains("distinct_experts")) return;
  // The shape's routers choose 8 of 128 for a row.
  expect_between(8.0, std::min(8.0 * rows, 128.0), line, "distinct_experts", at, checks);
}

void check_session_line(const Report& line, const std::string& at, RuleChecks& checks) {
  check_line_command(line, {"batch"}, "sessions", "--sessions", {}, at, checks);
  check_extremes(line, "tokens_per_second", at, checks);
  expect_most(line, "probe_gb_per_s", kMostGbPerSecond, at, checks);
  // A step is what a pass takes: between two of them tokens are chosen. Of lines that are kept, 0
  // to 3.6 % of the time.
  constexpr double kMostBetween = 1.05;
  const double ms = number_of(line, "step_ms");
  const double sessions = number_of(line, "sessions");
  expect_between(1e3 * sessions / (ms + kHalfOfMs) / kMostBetween - kHalfOfRate,
                 1e3 * sessions / std::max(ms - kHalfOfMs, 1e-9) + kHalfOfRate, line,
                 "tokens_per_second", at, checks);
}

void check_draft_line(const Report& line, const std::string& at, RuleChecks& checks) {
  check_line_command(line, {"speculative"}, nullptr, "", {}, at, checks);
  check_extremes(line, "tokens_per_second", at, checks);
  checks.expect(line["outputs_equal"] == true, "lossless", at + "outputs_equal",
                "expected true, got false");
  const double a_round = number_of(line, "tokens_per_round");
  const std::string length = line["draft_length"].get<std::string>();
  constexpr double kMostGain = 1.1;  // of tokens a round, as in reports
  checks.expect(number_of(line, "times_plain") <= kMostGain * a_round, "drafts-ran",
                at + "times_plain",
                fmt::format("expected at most 1.1 times {} tokens a round, got {}", a_round,
                            number_of(line, "times_plain")));
  if (length == "auto") return;
  char* end = nullptr;
  const double drafted = length == "plain" ? 0.0 : std::strtod(length.c_str(), &end);
  const bool is_number = length == "plain" || *end == '\0';
  checks.expect(is_number && a_round >= 1.0 && a_round <= drafted + 1.0, "drafts-ran",
                at + "tokens_per_round",
                fmt::format("expected 1 to {}, got {}", drafted + 1.0, a_round));
}

void check_costs_line(const Report& line, const std::string& at, RuleChecks& checks) {
  check_line_command(line, {"speculative"}, nullptr, "", {}, at, checks);
  for (const char* name : {"verify_ms", "draft_ms"}) {
    const std::vector<double> costs = numbers(line[name]);
    // A row or a draft more is no half of the cost, nor twice as much.
    for (std::size_t i = 1; i < costs.size(); ++i) {
      checks.expect(costs[i] < 2.0 * costs[i - 1] && costs[i - 1] < 2.0 * costs[i], "spread",
                    fmt::format("{}{}/{}", at, name, i),
                    fmt::format("expected about {}, got {}", costs[i - 1], costs[i]));
    }
  }
  checks.expect_count(std::ssize(line["verify_ms"]) - 1, Report(line["draft_ms"].size()), "counts",
                      at + "draft_ms");
}

void check_parity_line(const Report& line, const std::string& at, RuleChecks& checks) {
  checks.expect_count(0, line["failed"], "lossless", at + "failed");
  checks.expect(count(line["tests"]) >= 1, "counts", at + "tests", "expected one or more, got 0");
  const std::string text = line["seconds"].get<std::string>();
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  checks.expect(seconds > 0.0 && std::string_view(end) == "s", "fields", at + "seconds",
                fmt::format("expected seconds such as 2.298s, got {}", text.substr(0, 60)));
}

void check_kernel_line(const Report& line, const std::string& at, RuleChecks& checks) {
  checks.expect(count(line["launches"]) >= 1, "counts", at + "launches", "expected one or more");
  expect_most(line, "multiprocessors", kMultiprocessors, at, checks);
  if (line.contains("multiprocessors") && line.contains("blocks")) {
    expect_order(line, "multiprocessors", "blocks", at, checks);
  }
  for (const char* name : {"grid", "block"}) {
    if (!line.contains(name)) continue;
    const std::string text = line[name].get<std::string>();
    double product = 1.0;
    int sides = 0;
    const char* next = text.c_str();
    for (char* end = nullptr; sides < 3; next = *end == ',' ? end + 1 : end) {
      product *= static_cast<double>(std::strtoll(next, &end, 10));
      if (end == next) break;
      ++sides;
    }
    const double most = name == std::string_view("block") ? kMostThreads : 1e9;
    checks.expect(sides == 3 && *next == '\0' && product >= 1.0 && product <= most, "fields",
                  at + name,
                  fmt::format("expected three sizes such as 17,1,1 of at most {} in "
                              "all, got {}",
                              most, text.substr(0, 60)));
  }
}

void check_state_line(const Report& line, const std::string& at, RuleChecks& checks) {
  for (const char* name : {"clocks.sm", "clocks_sm"})
    expect_most(line, name, kMostMegahertz, at, checks);
  for (const char* name : {"clocks.mem", "clocks_mem"})
    expect_most(line, name, kMostMemoryMegahertz, at, checks);
  for (const char* name : {"power.draw", "power_w"})
    expect_most(line, name, kMostWatts, at, checks);
  for (const char* name : {"temperature.gpu", "degrees"})
    expect_most(line, name, kMostDegrees, at, checks);
  expect_most(line, "memory.used", kMostMib, at, checks);
  expect_order(line, "p50_ms", "p99_ms", at, checks);
  expect_order(line, "ledger_bytes", "resident_bytes", at, checks);
}

void check_verdict_line(const Report& line, const std::string& at, RuleChecks& checks) {
  checks.expect_count(0, line["failures"], "lossless", at + "failures");
  checks.expect_count(0, line["ledger_growth"], "bytes", at + "ledger_growth");
  checks.expect(line["flat"] == true, "bytes", at + "flat", "expected true, got false");
  checks.expect(line["answers_equal"] == true, "lossless", at + "answers_equal",
                "expected true, got false");
}

void check_fact_line(const Report& line, const std::string& at, RuleChecks& checks) {
  expect_most(line, "gb_per_s", kMostGbPerSecond, at, checks);
  if (line.contains("ring_kib")) {
    const double kib = number_of(line, "ring_kib") * number_of(line, "blocks");
    checks.expect(kib <= kSharedKib, "within-the-machine", at + "ring_kib",
                  fmt::format("expected {} KiB of shared memory or less, got {}", kSharedKib, kib));
    expect_order(line, "chunk_kib", "ring_kib", at, checks);
  }
  for (const char* none : {"unlike_model_of_16", "mma_unlike_wgmma"}) {
    if (line.contains(none)) checks.expect_count(0, line[none], "lossless", at + none);
  }
  expect_order(line, "unlike_model_of_8_and_8", "sums", at, checks);
  expect_most(line, "upload_pinned_gb_per_s", kMostLinkGbPerSecond, at, checks);
  expect_most(line, "mma_sync_bf16_tflops", kMostBf16Tflops, at, checks);
  expect_most(line, "mma_sync_int8_tops", kMostInt8Tops, at, checks);
  if (line.contains("read_mib")) {
    const double rate = number_of(line, "read_mib") * 1.048576e3 / number_of(line, "pinned_us");
    checks.expect(
        rate <= kMostLinkGbPerSecond, "within-the-machine", at + "pinned_us",
        fmt::format("expected {} GB a second or less, got {:.1f}", kMostLinkGbPerSecond, rate));
  }
  if (line.contains("cold_us")) {
    const double rate = number_of(line, "mib") * 1.048576e3 / number_of(line, "cold_us");
    checks.expect(
        rate <= kMostGbPerSecond, "within-the-machine", at + "cold_us",
        fmt::format("expected {} GB a second or less, got {:.0f}", kMostGbPerSecond, rate));
  }
}

}  // namespace kakeya::eval
