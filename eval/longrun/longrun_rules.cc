// Reports of `kakeya eval longrun`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "eval/longrun/longrun_report.h"
#include "eval/report/derived_checks.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"

namespace kakeya::eval {
namespace {

constexpr std::int64_t kFewestRounds = 100;  // behind percentiles of a bucket
constexpr double kShortestBucket = 0.1;      // seconds

// Options that come of several flags.
void check_length_of_run(const Report& report, const LongRunReport& run, RuleChecks& checks) {
  const LongRunFlagValues& options = run.options;
  const Report& says = report["options"];
  const ReportCommand command = command_of(report, checks);
  const auto number = [&](const char* name, const char* otherwise) {
    return std::strtod(command.value(name, otherwise).c_str(), nullptr);
  };
  const double minutes = options.tokens > 0 ? 0.0 : number("--minutes", "60");
  checks.expect_number(minutes, says["minutes"], "provenance", "options/minutes");
  const double of_bucket = number("--bucket-minutes", "10");
  const bool sound = minutes <= 1e6 && of_bucket >= 1e-4;  // what the command takes
  checks.expect_count(sound ? longrun_buckets(minutes, of_bucket) : 0, says["buckets"],
                      "provenance", "options/buckets");
  check_prompts_asked(options.prompts, options.set,
                      static_cast<std::int64_t>(number("--limit", "0")), command, "options/prompts",
                      checks);
  checks.expect(
      command.given.contains("--prompts") || options.set == command.value("--set", "mt_bench"),
      "provenance", "options/set", "expected what the command says (--set)");
  checks.expect((options.minutes > 0.0) != (options.tokens > 0), "counts", "options/minutes",
                "expected minutes or tokens");
  checks.expect(options.buckets >= kFewestBuckets, "samples", "options/buckets",
                fmt::format("expected {} or more, got {}", kFewestBuckets, options.buckets));
}

// Where bucket `index` has to end: the next one begins there, and of a run by minutes all take
// their part of them.
void check_ends(const LongRunReport& run, std::size_t index, RuleChecks& checks) {
  const LongRunBucket& row = run.buckets[index];
  const std::string at = fmt::format("buckets/{}", index);
  const double begin = index == 0 ? 0.0 : run.buckets[index - 1].end_seconds;
  checks.expect_number(begin, row.begin_seconds, "gap", at + "/begin_seconds");
  const double minutes = run.options.minutes;
  if (index + 1 == run.buckets.size()) {
    checks.expect_number(run.seconds, row.end_seconds, "gap", at + "/end_seconds");
    checks.expect(row.end_seconds >= 60.0 * minutes, "gap", at + "/end_seconds",
                  fmt::format("expected {} minutes or more, got {} s", minutes, row.end_seconds));
  } else if (minutes > 0.0) {
    const auto buckets = static_cast<double>(run.options.buckets);
    checks.expect_number(60.0 * minutes * static_cast<double>(index + 1) / buckets, row.end_seconds,
                         "gap", at + "/end_seconds");
  }
  checks.expect(row.seconds() >= kShortestBucket, "long-enough", at,
                fmt::format("expected {} s or more, got {}", kShortestBucket, row.seconds()));
}

void check_bucket(const LongRunReport& run, std::size_t index, RuleChecks& checks) {
  const LongRunBucket& row = run.buckets[index];
  const std::string at = fmt::format("buckets/{}", index);
  check_ends(run, index, checks);
  checks.expect(row.accepted <= row.drafted, "counts", at + "/accepted",
                "expected no more than drafted tokens");
  checks.expect(row.drafted == 0 || run.options.draft_length != "0", "drafts-ran", at + "/drafted",
                "expected no drafts where none were asked for");
  checks.expect(row.tokens >= row.rounds, "counts", at + "/tokens",
                "expected a token or more a round");
  // A round gives a token of each session and those accepted; a turn's first token takes none.
  // Turns that are cut off are the last one of each conversation, and those at both ends of the
  // bucket.
  const std::int64_t turns = row.conversations + row.tokens / kLongestTurn + 2;
  const std::int64_t most = row.rounds * run.options.sessions + row.accepted + turns;
  checks.expect(row.tokens <= most, "counts", at + "/tokens",
                fmt::format("expected at most {} of so many rounds and accepted drafts, got {}",
                            most, row.tokens));
  checks.expect(row.rounds >= kFewestRounds, "samples", at + "/rounds",
                fmt::format("expected {} or more, got {}", kFewestRounds, row.rounds));
  checks.expect(row.p50_ms <= row.p95_ms && row.p95_ms <= row.p99_ms, "headline", at + "/p95_ms",
                "expected no less than the median and no more than the 99th of a hundred");
  // Half of the rounds take the median or longer. One may have begun before.
  const double least = 1e-3 * row.p50_ms * (static_cast<double>(row.rounds) / 2.0 - 1.0);
  checks.expect(least <= 1.01 * row.seconds(), "headline", at + "/p50_ms",
                fmt::format("expected rounds that fit into {} s, got half of them in {}",
                            row.seconds(), least));
}

// Each answer of a prompt is its first one.
void check_answers(const LongRunReport& run, RuleChecks& checks) {
  std::int64_t answers = 0;
  const std::int64_t conversations = run.conversations();
  const auto prompts = std::max<std::int64_t>(1, run.options.prompts);
  checks.expect_count(std::min(prompts, conversations), run.prompts.size(), "counts", "prompts");
  for (std::size_t i = 0; i < run.prompts.size(); ++i) {
    const LongRunAnswers& prompt = run.prompts[i];
    const std::string at = fmt::format("prompts/{}", i);
    answers += prompt.answers;
    // They are asked in turns.
    const std::int64_t before = conversations - static_cast<std::int64_t>(i);
    const std::int64_t asked = (before + prompts - 1) / prompts;
    checks.expect(prompt.answers <= asked, "counts", at + "/answers",
                  fmt::format("expected at most {}, got {}", asked, prompt.answers));
    checks.expect_count(prompt.answers, prompt.equal, "lossless", at + "/equal");
    checks.expect(prompt.sha256.empty() == (prompt.answers == 0), "lossless", at + "/sha256",
                  "expected a hash of the answers, where there are some");
  }
  // Those that the end of the run cut off are one a session, at most.
  const std::int64_t others = conversations - answers - std::ssize(run.failures);
  checks.expect(others >= 0 && others <= run.options.sessions, "counts", "prompts",
                fmt::format("expected at most {} conversations without an answer, got {}",
                            run.options.sessions, others));
}

void check_longrun(const Report& report, RuleChecks& checks) {
  const auto read = read_report_fields<LongRunReport>(report, checks);
  if (!read) return;
  const LongRunReport& run = *read;
  check_derived(report, run, checks);
  check_length_of_run(report, run, checks);
  checks.expect(run.complete, "gap", "complete", "expected a run that came to its end");
  checks.expect(
      std::ssize(run.buckets) == run.options.buckets, "gap", "buckets",
      fmt::format("expected {} to the last one, got {}", run.options.buckets, run.buckets.size()));
  for (std::size_t i = 0; i < run.buckets.size(); ++i) check_bucket(run, i, checks);
  checks.expect(run.tokens() >= run.options.tokens, "counts", "tokens",
                "expected as many as were asked for");
  check_answers(run, checks);
  checks.expect(run.failures.empty(), "lossless", "failures",
                "expected an answer of every conversation");
}

std::vector<ClaimGroup> longrun_claims(const Report& report) {
  const auto run = read_fields<LongRunReport>(report);
  if (!run) return {};
  ClaimGroup time{.title = "A round, by bucket",
                  .unit = "ms, median and 95 of 100",
                  .better = Better::kLess,
                  .interval = "median and 95 of 100 rounds"};
  ClaimGroup memory{.title = "Memory, by bucket", .unit = "MiB", .better = Better::kLess};
  const auto mebibytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
  for (const LongRunBucket& bucket : run->buckets) {
    const std::string name = fmt::format("from {:.0f} s on", bucket.begin_seconds);
    time.claims.push_back(
        {.name = name, .value = bucket.p50_ms, .interval = {{bucket.p50_ms, bucket.p95_ms}}});
    memory.claims.push_back({.name = name + ", ledger", .value = mebibytes(bucket.ledger_bytes)});
    memory.claims.push_back(
        {.name = name + ", resident", .value = mebibytes(bucket.resident_bytes)});
  }
  return {std::move(time), std::move(memory)};
}

using enum FlagForm;

constexpr CommandFlag kLongRunFlags[] = {
    {"--minutes", "", kNumber, "options/minutes"},
    {"--tokens", "", kNumber, "options/tokens", "0"},
    {"--bucket-minutes", "", kUnsaid},
    {"--sessions", "", kNumber, "options/sessions", "1"},
    {"--set", "", kText, "options/set"},
    {"--prompts", "", kUnsaid},
    {"--limit", "", kUnsaid},
    {"--temperature", "", kNumber, "options/temperature", "1"},
    {"--seed", "", kNumber, "options/seed", "0"},
    {"--window", "", kNumber, "options/window|session/window", "1024"},
    {"--sink", "", kNumber, "options/sink|session/sink", "4"},
    {"--evicted-full", "", kText, "options/evicted_full|session/evicted_full", "drop"},
    {"--evicted-sliding", "", kText, "options/evicted_sliding|session/evicted_sliding", "keep"},
};

}  // namespace

const ReportKind& longrun_report() {
  static const ReportKind kKind = {.name = "kakeya.longrun",
                                   .schemas = engine_schemas(1, list_fields<LongRunReport>()),
                                   .check = check_longrun,
                                   .claims = longrun_claims,
                                   .unique_rows = {{"prompts", {"prompt"}}},
                                   .timed_samples = {"seconds"},
                                   .commands = {"longrun"},
                                   .flags = kLongRunFlags};
  return kKind;
}

}  // namespace kakeya::eval
