// Reports of `kakeya eval longrun`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "eval/longrun/longrun_buckets.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

constexpr std::int64_t kFewestRounds = 100;  // behind percentiles of a bucket
constexpr double kShortestBucket = 0.1;      // seconds

std::vector<LongRunBucket> longrun_rows_of(const Report& report) {
  std::vector<LongRunBucket> rows;
  for (const Report& json : report["buckets"]) {
    rows.push_back({.begin_seconds = json["begin_seconds"].get<double>(),
                    .end_seconds = json["end_seconds"].get<double>(),
                    .conversations = json["conversations"].get<std::int64_t>(),
                    .rounds = json["rounds"].get<std::int64_t>(),
                    .tokens = json["tokens"].get<std::int64_t>(),
                    .drafted = json["drafted"].get<std::int64_t>(),
                    .accepted = json["accepted"].get<std::int64_t>(),
                    .p50_ms = json["p50_ms"].get<double>(),
                    .p95_ms = json["p95_ms"].get<double>(),
                    .p99_ms = json["p99_ms"].get<double>(),
                    .ledger_bytes = json["ledger_bytes"].get<std::uint64_t>(),
                    .resident_bytes = json["resident_bytes"].get<std::uint64_t>()});
  }
  return rows;
}

// Options that come of several flags.
void check_length_of_run(const Report& report, RuleChecks& checks) {
  const Report& options = report["options"];
  const ReportCommand command = command_of(report, checks);
  const auto number = [&](const char* name, const char* otherwise) {
    return std::strtod(command.value(name, otherwise).c_str(), nullptr);
  };
  const double minutes = count(options["tokens"]) > 0 ? 0.0 : number("--minutes", "60");
  checks.expect_number(minutes, options["minutes"], "provenance", "options/minutes");
  const double of_bucket = number("--bucket-minutes", "10");
  const bool sound = minutes <= 1e6 && of_bucket >= 1e-4;  // what the command takes
  checks.expect_count(sound ? longrun_buckets(minutes, of_bucket) : 0, options["buckets"],
                      "provenance", "options/buckets");
  check_prompts_asked(count(options["prompts"]), options["set"].get<std::string>(),
                      static_cast<std::int64_t>(number("--limit", "0")), command, "options/prompts",
                      checks);
  checks.expect(
      command.given.contains("--prompts") || options["set"] == command.value("--set", "mt_bench"),
      "provenance", "options/set", "expected what the command says (--set)");
}

// Where bucket `index` has to end: the next one begins there, and of a run by minutes all take
// their part of them.
void check_ends(const Report& report,
                const std::vector<LongRunBucket>& rows,
                std::size_t index,
                RuleChecks& checks) {
  const LongRunBucket& row = rows[index];
  const std::string at = fmt::format("buckets/{}", index);
  const Report& json = report["buckets"][index];
  const double begin = index == 0 ? 0.0 : rows[index - 1].end_seconds;
  checks.expect_number(begin, json["begin_seconds"], "gap", at + "/begin_seconds");
  const double minutes = report["options"]["minutes"].get<double>();
  const auto buckets = report["options"]["buckets"].get<double>();
  if (index + 1 == rows.size()) {
    checks.expect_number(report["seconds"].get<double>(), json["end_seconds"], "gap",
                         at + "/end_seconds");
    checks.expect(row.end_seconds >= 60.0 * minutes, "gap", at + "/end_seconds",
                  fmt::format("expected {} minutes or more, got {} s", minutes, row.end_seconds));
  } else if (minutes > 0.0) {
    checks.expect_number(60.0 * minutes * static_cast<double>(index + 1) / buckets,
                         json["end_seconds"], "gap", at + "/end_seconds");
  }
  checks.expect(row.seconds() >= kShortestBucket, "long-enough", at,
                fmt::format("expected {} s or more, got {}", kShortestBucket, row.seconds()));
}

void check_bucket(const Report& report,
                  const std::vector<LongRunBucket>& rows,
                  std::size_t index,
                  RuleChecks& checks) {
  const LongRunBucket& row = rows[index];
  const std::string at = fmt::format("buckets/{}", index);
  check_ends(report, rows, index, checks);
  checks.expect(row.accepted <= row.drafted, "counts", at + "/accepted",
                "expected no more than drafted tokens");
  checks.expect(row.drafted == 0 || report["options"]["draft_length"] != "0", "drafts-ran",
                at + "/drafted", "expected no drafts where none were asked for");
  checks.expect(row.tokens >= row.rounds, "counts", at + "/tokens",
                "expected a token or more a round");
  // A round gives a token of each session and those accepted; a turn's first token takes none.
  // Turns that are cut off are the last one of each conversation, and those at both ends of the
  // bucket.
  const std::int64_t turns = row.conversations + row.tokens / kLongestTurn + 2;
  const std::int64_t most =
      row.rounds * count(report["options"]["sessions"]) + row.accepted + turns;
  checks.expect(row.tokens <= most, "counts", at + "/tokens",
                fmt::format("expected at most {} of so many rounds and accepted drafts, got {}",
                            most, row.tokens));
  checks.expect(row.rounds >= kFewestRounds, "samples", at + "/rounds",
                fmt::format("expected {} or more, got {}", kFewestRounds, row.rounds));
  checks.expect_number(row.tokens_per_second(), report["buckets"][index]["tokens_per_second"],
                       "headline", at + "/tokens_per_second");
  checks.expect(row.p50_ms <= row.p95_ms && row.p95_ms <= row.p99_ms, "headline", at + "/p95_ms",
                "expected no less than the median and no more than the 99th of a hundred");
  // Half of the rounds take the median or longer. One may have begun before.
  const double least = 1e-3 * row.p50_ms * (static_cast<double>(row.rounds) / 2.0 - 1.0);
  checks.expect(least <= 1.01 * row.seconds(), "headline", at + "/p50_ms",
                fmt::format("expected rounds that fit into {} s, got half of them in {}",
                            row.seconds(), least));
}

// Sums over the rows.
void check_sums(const Report& report, const std::vector<LongRunBucket>& rows, RuleChecks& checks) {
  std::int64_t tokens = 0;
  std::int64_t conversations = 0;
  for (const LongRunBucket& row : rows) {
    tokens += row.tokens;
    conversations += row.conversations;
  }
  checks.expect_count(tokens, report["tokens"], "counts", "tokens");
  checks.expect_count(conversations, report["conversations"], "counts", "conversations");
  checks.expect(tokens >= count(report["options"]["tokens"]), "counts", "tokens",
                "expected as many as were asked for");
}

// Each answer of a prompt is its first one.
void check_answers(const Report& report, RuleChecks& checks) {
  std::int64_t answers = 0;
  bool equal = true;
  const auto prompts = std::max<std::int64_t>(1, count(report["options"]["prompts"]));
  checks.expect_count(std::min(prompts, count(report["conversations"])),
                      Report(report["prompts"].size()), "counts", "prompts");
  for (std::size_t i = 0; i < report["prompts"].size(); ++i) {
    const Report& prompt = report["prompts"][i];
    const std::string at = fmt::format("prompts/{}", i);
    answers += count(prompt["answers"]);
    equal = equal && prompt["answers"] == prompt["equal"];
    // They are asked in turns.
    const std::int64_t before = count(report["conversations"]) - static_cast<std::int64_t>(i);
    const std::int64_t asked = (before + prompts - 1) / prompts;
    checks.expect(count(prompt["answers"]) <= asked, "counts", at + "/answers",
                  fmt::format("expected at most {}, got {}", asked, count(prompt["answers"])));
    checks.expect_count(count(prompt["answers"]), prompt["equal"], "lossless", at + "/equal");
    checks.expect(prompt.contains("sha256") == (count(prompt["answers"]) > 0), "lossless",
                  at + "/sha256", "expected a hash of the answers, where there are some");
  }
  checks.expect(report["verdict"]["answers_equal"].get<bool>() == equal, "lossless",
                "verdict/answers_equal", fmt::format("expected {}, got {}", equal, !equal));
  // Those that the end of the run cut off are one a session, at most.
  const std::int64_t others = count(report["conversations"]) - answers -
                              static_cast<std::int64_t>(report["failures"].size());
  checks.expect(others >= 0 && others <= count(report["options"]["sessions"]), "counts", "prompts",
                fmt::format("expected at most {} conversations without an answer, got {}",
                            count(report["options"]["sessions"]), others));
}

}  // namespace

void check_longrun(const Report& report, RuleChecks& checks) {
  check_length_of_run(report, checks);
  const Report& options = report["options"];
  checks.expect(report["complete"].get<bool>(), "gap", "complete",
                "expected a run that came to its end");
  checks.expect((options["minutes"].get<double>() > 0.0) != (count(options["tokens"]) > 0),
                "counts", "options/minutes", "expected minutes or tokens");
  checks.expect(
      count(options["buckets"]) >= kFewestBuckets, "samples", "options/buckets",
      fmt::format("expected {} or more, got {}", kFewestBuckets, count(options["buckets"])));
  const std::vector<LongRunBucket> rows = longrun_rows_of(report);
  checks.expect(
      std::ssize(rows) == count(options["buckets"]), "gap", "buckets",
      fmt::format("expected {} to the last one, got {}", count(options["buckets"]), rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) check_bucket(report, rows, i, checks);
  check_sums(report, rows, checks);
  check_answers(report, checks);
  checks.expect(report["failures"].empty(), "lossless", "failures",
                "expected an answer of every conversation");
  const LongRunVerdict verdict = longrun_verdict(rows);
  const Report& says = report["verdict"];
  checks.expect_number(verdict.p50_ratio, says["p50_ratio"], "headline", "verdict/p50_ratio");
  checks.expect_count(static_cast<std::int64_t>(verdict.ledger_growth), says["ledger_growth"],
                      "bytes", "verdict/ledger_growth");
  checks.expect_count(static_cast<std::int64_t>(verdict.resident_growth), says["resident_growth"],
                      "bytes", "verdict/resident_growth");
  checks.expect(says["flat"].get<bool>() == verdict.flat(), "bytes", "verdict/flat",
                fmt::format("expected {}, got {}", verdict.flat(), !verdict.flat()));
}

}  // namespace kakeya::eval
