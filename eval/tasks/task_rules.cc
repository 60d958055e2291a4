// Reports of `kakeya eval humaneval` and `kakeya eval gsm8k`, by an engine or a server.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/report/bootstrap.h"
#include "eval/report/builtin_sets.h"
#include "eval/report/report_kinds.h"
#include "eval/report/report_rules.h"
#include "eval/report/report_schemas.h"
#include "eval/tasks/task_problems.h"
#include "eval/tasks/task_reply.h"

namespace kakeya::eval {
namespace {

// The verdict follows from what else a row says, where that is a number.
void check_verdict(const Report& options,
                   const TaskReply& reply,
                   const std::string& at,
                   RuleChecks& checks) {
  if (options["task"] == "humaneval") {
    checks.expect(reply.expected.empty() && reply.judgement.got.empty(), "fields", at,
                  "expected no number where code is asked for");
    return;
  }
  checks.expect(!reply.expected.empty() && normal_number(reply.expected) == reply.expected,
                "fields", at + "/expected", "expected a number");
  const Judgement& judged = reply.judgement;
  const TaskVerdict verdict = judged.got.empty()             ? TaskVerdict::kNoAnswer
                              : judged.got == reply.expected ? TaskVerdict::kPassed
                                                             : TaskVerdict::kFailed;
  checks.expect(
      judged.verdict == verdict, "recall", at + "/verdict",
      fmt::format("expected {}, got {}", verdict_name(verdict), verdict_name(judged.verdict)));
}

// A reply is judged by nothing but itself and its problem, and of an engine its hash is that of its
// tokens.
void check_equal_replies(const std::vector<TaskReply>& replies, RuleChecks& checks) {
  std::map<std::string, const TaskReply*> seen;
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const TaskReply& reply = replies[i];
    const auto [found, is_new] = seen.emplace(reply.sha256, &reply);
    if (is_new) continue;
    const TaskReply& first = *found->second;
    const auto has_answer = [](const TaskReply& each) {
      return each.judgement.verdict != TaskVerdict::kNoAnswer;
    };
    const bool same_tokens = !reply.passes || reply.tokens == first.tokens;
    checks.expect(same_tokens && has_answer(reply) == has_answer(first) &&
                      reply.judgement.got == first.judgement.got,
                  "recall", fmt::format("rows/{}", i),
                  fmt::format("expected tokens and answer of the equal reply to {}", first.id));
  }
}

// Problems that come with the program are known, and so are their answers.
void check_problems(const Report& report,
                    const ReportCommand& command,
                    const std::vector<TaskReply>& replies,
                    RuleChecks& checks) {
  const auto task = report["options"]["task"].get<std::string>();
  check_prompts_asked(std::ssize(replies), task, count(report["options"]["limit"]), command, "rows",
                      checks);
  const std::string_view known = builtin_problems_sha256(task);
  const bool own = command.given.contains("--data");
  checks.expect(own || report["problems_sha256"] == known, "provenance", "problems_sha256",
                "expected that of the problems that come with the program");
  if (task != "gsm8k" || report["problems_sha256"] != known) return;
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const std::string answer = builtin_answer(replies[i].id);
    checks.expect(
        replies[i].expected == answer, "recall", fmt::format("rows/{}/expected", i),
        fmt::format("expected '{}' of {}, got {}", answer, replies[i].id, replies[i].expected));
  }
}

// Checks an engine's fields of a row.
void check_passes_of_row(const Report& report,
                         const TaskReply& reply,
                         const std::string& at,
                         RuleChecks& checks) {
  const Report& options = report["options"];
  const TaskPasses passes = reply.passes.value_or(TaskPasses{});
  // The first token comes of the prompt; a round gives one and those accepted, of which some may
  // lie behind the reply's end.
  const std::int64_t decoded = reply.tokens - 1;
  checks.expect(passes.rounds <= decoded && passes.rounds + passes.accepted >= decoded, "counts",
                at + "/rounds",
                fmt::format("expected rounds and accepted drafts to give {} tokens, got {} and {}",
                            decoded, passes.rounds, passes.accepted));
  checks.expect(passes.accepted <= passes.drafted, "counts", at + "/accepted",
                "expected no more accepted than drafted tokens");
  const bool drafts = report["draft"] != "none" && options["draft_length"] != "0";
  checks.expect(drafts || passes.drafted == 0, "drafts-ran", at + "/drafted",
                "expected no drafts where none were asked for");
  checks.expect(reply.plain_sha256.has_value() == options["compare_plain"].get<bool>(), "lossless",
                at + "/plain_sha256", "expected it where replies are compared, and only there");
}

// Checks that reports where code ran say what kept it from doing harm.
void check_confinement(const Report& report, RuleChecks& checks) {
  const bool code = report["options"]["task"] == "humaneval";
  const bool named = report.contains("python");
  checks.expect(code == named, "provenance", "python",
                "expected it where code ran, and only there");
  if (!named) return;
  const Report& python = report["python"];
  const bool unconfined = python["unconfined"].get<bool>();
  for (const char* name : {"network_blocked", "files_blocked"}) {
    checks.expect(unconfined || python[name].get<bool>(), "provenance",
                  std::string("python/") + name, "expected true without --unconfined");
  }
}

void check_summary(const TaskSummary& summary, const Report& got, RuleChecks& checks) {
  const auto interval = wilson_interval(summary.passed, summary.problems);
  for (const auto& [name, expected] : {std::pair("problems", summary.problems),
                                       {"passed", summary.passed},
                                       {"failed", summary.failed},
                                       {"timed_out", summary.timed_out},
                                       {"crashed", summary.crashed},
                                       {"no_answer", summary.no_answer}}) {
    checks.expect_count(expected, got[name], "recall", std::string("summary/") + name);
  }
  for (const auto& [name, expected] :
       {std::pair("score", summary.score()), {"low", interval.low}, {"high", interval.high}}) {
    checks.expect_number(expected, got[name], "recall", std::string("summary/") + name);
  }
  checks.expect_count(summary.tokens, got["tokens"], "counts", "summary/tokens");
  for (const auto& [name, expected] : {std::pair("decode_seconds", summary.decode_seconds),
                                       {"tokens_per_second", summary.tokens_per_second()}}) {
    checks.expect_number(expected, got[name], "headline", std::string("summary/") + name);
  }
}

// The part of a summary that an engine's reports have besides.
void check_summary_of_passes(const TaskSummary& summary, const Report& got, RuleChecks& checks) {
  const TaskPasses passes = summary.passes.value_or(TaskPasses{});
  for (const auto& [name, expected] : {std::pair("rounds", passes.rounds),
                                       {"drafted", passes.drafted},
                                       {"accepted", passes.accepted}}) {
    checks.expect_count(expected, got[name], "counts", std::string("summary/") + name);
  }
  checks.expect_number(summary.tokens_per_round(), got["tokens_per_round"], "headline",
                       "summary/tokens_per_round");
  const bool compared = got.contains("equal_plain");
  checks.expect(compared == summary.equal_plain.has_value(), "lossless", "summary/equal_plain",
                "expected it where all replies were also made without drafts, and only there");
  if (!compared || !summary.equal_plain) return;
  checks.expect_count(*summary.equal_plain, got["equal_plain"], "lossless", "summary/equal_plain");
  checks.expect(*summary.equal_plain == summary.problems, "lossless", "summary/equal_plain",
                "expected no reply to differ from that without drafts");
}

// Checks the common part of reports of engines and of servers. Returns the rows.
std::vector<TaskReply> check_replies(const Report& report,
                                     std::int64_t fewest_tokens,
                                     RuleChecks& checks) {
  const Report& options = report["options"];
  checks.expect(options["task"] == "humaneval" || options["task"] == "gsm8k", "schema",
                "options/task", "expected humaneval or gsm8k");
  const ReportCommand command = command_of(report, checks);
  if (options.contains("prompt")) {
    const bool raw = command.given.contains("--raw");
    checks.expect(options["prompt"] == (raw ? "raw" : "chat"), "provenance", "options/prompt",
                  "expected what the command says (--raw)");
  }
  check_confinement(report, checks);
  const std::int64_t most = count(options["max_tokens"]);
  std::vector<TaskReply> replies;
  for (const Report& row : report["rows"]) {
    const std::string at = fmt::format("rows/{}", replies.size());
    auto parsed = parse_task_reply(row);
    checks.expect(parsed.has_value(), "fields", at, "expected a reply with a verdict");
    const TaskReply& reply = replies.emplace_back(std::move(parsed).value_or(TaskReply{}));
    checks.expect(reply.tokens >= fewest_tokens && reply.tokens <= most, "never-past-the-end",
                  at + "/tokens",
                  fmt::format("expected {} to {}, got {}", fewest_tokens, most, reply.tokens));
    check_verdict(options, reply, at, checks);
  }
  check_problems(report, command, replies, checks);
  check_equal_replies(replies, checks);
  checks.expect(std::ssize(replies) >= kFewestProblems, "samples", "rows",
                fmt::format("expected {} problems or more behind a score, got {}", kFewestProblems,
                            replies.size()));
  check_summary(task_summary(replies), report["summary"], checks);
  return replies;
}

void check_tasks(const Report& report, RuleChecks& checks) {
  const Report& options = report["options"];
  checks.expect(options["prompt"] == "chat" || options["prompt"] == "raw", "schema",
                "options/prompt", "expected chat or raw");
  const std::vector<TaskReply> replies = check_replies(report, 1, checks);
  for (std::size_t i = 0; i < replies.size(); ++i) {
    check_passes_of_row(report, replies[i], fmt::format("rows/{}", i), checks);
  }
  check_summary_of_passes(task_summary(replies), report["summary"], checks);
}

void check_served_tasks(const Report& report, RuleChecks& checks) {
  // A server need not say how many tokens a reply has.
  check_replies(report, 0, checks);
}

std::vector<ClaimGroup> task_claims(const Report& report) {
  const Report& summary = report["summary"];
  const bool code = report["options"]["task"] == "humaneval";
  const std::string name = code ? "HumanEval" : "GSM8K";
  ClaimGroup score{.title = "Problems solved",
                   .unit = code ? "pass@1" : "exact match",
                   .better = Better::kMore,
                   .interval = kConfidence};
  score.claims.push_back(
      {.name = name,
       .value = field_number(summary["score"]),
       .interval = {{field_number(summary["low"]), field_number(summary["high"])}}});
  if (!summary.contains("tokens_per_round")) return {std::move(score)};  // of a server
  ClaimGroup tokens{.title = "Tokens of a round", .unit = "tokens", .better = Better::kMore};
  tokens.claims.push_back({.name = name, .value = field_number(summary["tokens_per_round"])});
  return {std::move(score), std::move(tokens)};
}

// The fields of all reports of tasks, and of an engine's.
constexpr std::string_view kTaskFields = R"(
options/task text checked
options/max_tokens count stated
options/limit count stated
problems_sha256 hash result
python?/version text stated
python?/seconds seconds stated
python?/network_blocked flag checked
python?/files_blocked flag checked
python?/unconfined flag checked
rows/*/id text measured
rows/*/prompt_sha256 hash result
rows/*/sha256 hash result
rows/*/tokens count measured
rows/*/decode_seconds seconds measured
rows/*/verdict text measured
rows/*/detail? text stated
rows/*/expected? text measured
rows/*/got? text measured
summary/problems count checked
summary/passed count checked
summary/failed count checked
summary/timed_out count checked
summary/crashed count checked
summary/no_answer count checked
summary/score share checked
summary/low share checked
summary/high share checked
summary/tokens count checked
summary/decode_seconds seconds checked
summary/tokens_per_second number checked
)";
constexpr std::string_view kTaskPassFields = R"(
draft text stated
options/prompt text checked
options/draft_length text stated
options/compare_plain flag checked
rows/*/prompt_tokens count result
rows/*/plain_sha256? hash measured
rows/*/rounds count measured
rows/*/drafted count measured
rows/*/accepted count measured
rows/*/prefill_seconds seconds stated
summary/rounds count checked
summary/drafted count checked
summary/accepted count checked
summary/tokens_per_round number checked
summary/equal_plain? count checked
)";

using enum FlagForm;

constexpr CommandFlag kTaskFlags[] = {
    {"--limit", "", kNumber, "options/limit", "0"},
    {"--max-tokens", "-n", kNumber, "options/max_tokens", "512"},
    {"--raw", "", kUnsaidFlag},  // check_tasks()
    {"--compare-plain", "", kFlag, "options/compare_plain"},
    {"--run-code", "", kUnsaidFlag},
    {"--seconds", "", kNumber, "python/seconds", "3"},
    {"--python", "", kUnsaid},
    {"--unconfined", "", kFlag, "python/unconfined"},
};

}  // namespace

const ReportKind& task_report() {
  static const ReportKind kKind = {
      .name = "kakeya.eval.task",
      .schemas = engine_schemas(1, fields_of({kTaskFields, kTaskPassFields})),
      .check = check_tasks,
      .claims = task_claims,
      .unique_rows = {{"rows", {"id"}}, {"rows", {"prompt_sha256"}}},
      .timed_samples = {"rows/*/prefill_seconds", "rows/*/decode_seconds"},
      .commands = {"gsm8k", "humaneval"},
      .flags = kTaskFlags};
  return kKind;
}

const ReportKind& served_task_report() {
  static const ReportKind kKind = {.name = "kakeya.eval.served-task",
                                   .schemas = {{1, fields_of({kProvenance, kTaskFields, kServed})}},
                                   .check = check_served_tasks,
                                   .claims = task_claims,
                                   .unique_rows = {{"rows", {"id"}}, {"rows", {"prompt_sha256"}}},
                                   .timed_samples = {"rows/*/decode_seconds"}};
  return kKind;
}

}  // namespace kakeya::eval
