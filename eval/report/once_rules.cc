// Rules of every kind of report: no row stands there twice, and what was timed fits into the run.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

// Lists of rows of which no two may have the same values at `keys`.
struct UniqueRows {
  std::string_view kind;  // the beginning of the report's kind
  std::string_view list;
  std::vector<std::string_view> keys;
};

const std::vector<UniqueRows>& unique_rows() {
  static const std::vector<UniqueRows> kLists = {
      {"kakeya.eval.spec", "sets", {"set"}},
      {"kakeya.eval.kv", "modes", {"mode"}},
      {"kakeya.eval.kv", "texts", {"set", "length"}},
      {"kakeya.eval.kv", "needles", {"set", "length"}},
      {"kakeya.eval.perplexity", "sets", {"set"}},
      // A sum of hundreds of logarithms is that of no second window of the same text.
      {"kakeya.eval.perplexity", "sets/*/windows", {"text", "tokens", "nll"}},
      {"kakeya.eval.kl", "sets", {"set"}},
      {"kakeya.eval.kl", "sets/*/windows", {"text", "tokens", "reference_nll"}},
      {"kakeya.eval.overlap", "sets", {"set"}},
      {"kakeya.eval.overlap", "sets/*/text", {"rows"}},
      {"kakeya.eval.overlap", "sets/*/drafts", {"rows"}},
      {"kakeya.eval.niah", "modes", {"mode"}},
      {"kakeya.eval.niah", "samples", {"sha256"}},
      {"kakeya.eval.served-niah", "samples", {"sha256"}},
      {"kakeya.eval.task", "rows", {"id"}},
      {"kakeya.eval.task", "rows", {"prompt_sha256"}},
      {"kakeya.eval.served-task", "rows", {"id"}},
      {"kakeya.eval.served-task", "rows", {"prompt_sha256"}},
      {"kakeya.eval.drafter-parity", "rows", {"prompt", "context"}},
      {"kakeya.longrun", "prompts", {"prompt"}},
      {"kakeya.multitenant", "arms", {"arm"}},
      {"kakeya.bench.", "passes", {"rows"}},
      {"kakeya.bench.operations", "operations", {"name"}},
      {"kakeya.bench.batch", "results", {"sessions"}},
      {"kakeya.servers", "measures", {"clients"}},
      {"kakeya.servers", "measures/*/pairs", {"kakeya", "llama.cpp"}},
      {"kakeya.peers", "measures", {"measure"}}};
  return kLists;
}

// Two lists whose samples belong together, one by one. A clock counts nanoseconds: that both of a
// pair come back together is a copy, where one of them might by chance.
struct PairedSamples {
  std::string_view kind;
  std::string_view rows;
  std::string_view one;
  std::string_view other;
};

constexpr PairedSamples kPairs[] = {
    {"kakeya.eval.spec", "sets/*", "plain_seconds", "speculative_seconds"},
    {"kakeya.multitenant", "arms/*", "solo_seconds", "together_seconds"},
    {"kakeya.bench.", "passes/*", "sample_seconds", "sample_probe_gb_per_s"},
    {"kakeya.peers", "measures/*", "engines/kakeya/seconds", "engines/llama.cpp/seconds"}};

// Times of which no two overlap, so that they add up to no more than the run took.
struct TimedSamples {
  std::string_view kind;
  std::string_view at;
};

constexpr TimedSamples kTimes[] = {{"kakeya.eval.spec", "sets/*/plain_seconds/*"},
                                   {"kakeya.eval.spec", "sets/*/speculative_seconds/*"},
                                   {"kakeya.eval.perplexity", "sets/*/seconds"},
                                   {"kakeya.eval.kl", "sets/*/seconds"},
                                   {"kakeya.eval.niah", "samples/*/replies/*/seconds"},
                                   {"kakeya.eval.served-niah", "samples/*/replies/*/seconds"},
                                   {"kakeya.eval.task", "rows/*/prefill_seconds"},
                                   {"kakeya.eval.task", "rows/*/decode_seconds"},
                                   {"kakeya.eval.served-task", "rows/*/decode_seconds"},
                                   {"kakeya.longrun", "seconds"},
                                   {"kakeya.multitenant", "arms/*/solo_seconds/*"},
                                   {"kakeya.multitenant", "arms/*/together_seconds/*"},
                                   {"kakeya.bench.", "passes/*/sample_seconds/*"},
                                   {"kakeya.bench.operations", "sample_seconds/*"},
                                   {"kakeya.peers", "measures/*/engines/kakeya/seconds/*"},
                                   {"kakeya.peers", "measures/*/engines/llama.cpp/seconds/*"},
                                   {"kakeya.peers", "starts/kakeya/*/seconds"},
                                   {"kakeya.peers", "starts/llama.cpp/*/seconds"}};

void check_unique(const std::vector<std::string>& rows, const std::string& at, RuleChecks& checks) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    checks.expect(seen.insert(rows[i]).second, "once", at,
                  fmt::format("expected each row once, got number {} again: {}", i + 1,
                              rows[i].substr(0, 80)));
  }
}

// Adds up times that are kept as tokens a second.
double seconds_behind_speeds(const Report& report, const std::string& kind) {
  double sum = 0.0;
  // While a prompt arrives, tokens of that time alone are counted, which is not said.
  if (kind.starts_with("kakeya.bench.batch") && count(report["arriving"]) == 0) {
    for (const Report& result : report["results"]) {
      const auto tokens = static_cast<double>(count(result["sessions"]) * count(report["tokens"]));
      for (const double speed : numbers(result["samples"])) sum += tokens / speed;
    }
  }
  if (!kind.starts_with("kakeya.servers")) return sum;
  for (const Report& pair : values_at(report, "measures/*/pairs/*")) {
    for (const char* engine : {"kakeya", "llama.cpp"}) {
      sum += pair[engine]["tokens"].get<double>() / pair[engine]["tokens_per_second"].get<double>();
    }
  }
  return sum;
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
  const std::string kind = report["schema"].get<std::string>();
  for (const UniqueRows& unique : unique_rows()) {
    if (!kind.starts_with(std::string(unique.kind))) continue;
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
  for (const PairedSamples& paired : kPairs) {
    if (!kind.starts_with(std::string(paired.kind))) continue;
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
  if (is_resumed(report)) return;
  const std::string kind = report["schema"].get<std::string>();
  double sum = seconds_behind_speeds(report, kind);
  for (const TimedSamples& timed : kTimes) {
    if (!kind.starts_with(std::string(timed.kind))) continue;
    for (const Report& value : values_at(report, timed.at)) sum += value.get<double>();
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
