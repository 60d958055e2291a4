// Reports of `kakeya eval humaneval` and `kakeya eval gsm8k`.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "niah_eval.h"
#include "report_rules.h"
#include "task_eval.h"

namespace kakeya::eval {
namespace {

// A problem's row by itself.
void check_row(const Report& report,
               const TaskReply& reply,
               const std::string& at,
               RuleChecks& checks) {
  const Report& options = report["options"];
  const std::int64_t most = count(options["max_tokens"]);
  checks.expect(reply.tokens >= 1 && reply.tokens <= most, "never-past-the-end", at + "/tokens",
                fmt::format("expected 1 to {}, got {}", most, reply.tokens));
  // The first token comes of the prompt; a round gives one and those accepted, of which some may
  // lie behind the reply's end.
  const std::int64_t decoded = reply.tokens - 1;
  checks.expect(reply.rounds <= decoded && reply.rounds + reply.accepted >= decoded, "counts",
                at + "/rounds",
                fmt::format("expected rounds and accepted drafts to give {} tokens, got {} and {}",
                            decoded, reply.rounds, reply.accepted));
  checks.expect(reply.accepted <= reply.drafted, "counts", at + "/accepted",
                "expected no more accepted than drafted tokens");
  const bool drafts = report["draft"] != "none" && options["draft_length"] != "0";
  checks.expect(drafts || reply.drafted == 0, "drafts-ran", at + "/drafted",
                "expected no drafts where none were asked for");
  checks.expect(reply.plain_sha256.has_value() == options["compare_plain"].get<bool>(), "lossless",
                at + "/plain_sha256", "expected it where replies are compared, and only there");
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

// What kept code from doing harm is there where code ran.
void check_confinement(const Report& report, RuleChecks& checks) {
  const bool code = report["options"]["task"] == "humaneval";
  const bool named = report.contains("python");
  checks.expect(code == named, "provenance", "python",
                "expected it where code ran, and only there");
  if (!named) return;
  const Report& python = report["python"];
  const bool unconfined = python["unconfined"].get<bool>();
  checks.expect(unconfined == (std::ranges::count(report["command"], "--unconfined") > 0),
                "provenance", "python/unconfined", "expected what the command says");
  for (const char* name : {"network_blocked", "files_blocked"}) {
    checks.expect(unconfined || python[name].get<bool>(), "provenance",
                  std::string("python/") + name, "expected true without --unconfined");
  }
}

void check_summary(const Report& report,
                   const std::vector<TaskReply>& replies,
                   RuleChecks& checks) {
  const TaskSummary summary = task_summary(replies);
  const Report& got = report["summary"];
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
  for (const auto& [name, expected] : {std::pair("tokens", summary.tokens),
                                       {"rounds", summary.rounds},
                                       {"drafted", summary.drafted},
                                       {"accepted", summary.accepted}}) {
    checks.expect_count(expected, got[name], "counts", std::string("summary/") + name);
  }
  for (const auto& [name, expected] : {std::pair("decode_seconds", summary.decode_seconds),
                                       {"tokens_per_round", summary.tokens_per_round()},
                                       {"tokens_per_second", summary.tokens_per_second()}}) {
    checks.expect_number(expected, got[name], "headline", std::string("summary/") + name);
  }
  const bool compared = got.contains("equal_plain");
  checks.expect(compared == summary.equal_plain.has_value(), "lossless", "summary/equal_plain",
                "expected it where all replies were also made without drafts, and only there");
  if (!compared || !summary.equal_plain) return;
  checks.expect_count(*summary.equal_plain, got["equal_plain"], "lossless", "summary/equal_plain");
  checks.expect(*summary.equal_plain == summary.problems, "lossless", "summary/equal_plain",
                "expected no reply to differ from that without drafts");
}

}  // namespace

void check_tasks(const Report& report, RuleChecks& checks) {
  const Report& options = report["options"];
  checks.expect(options["task"] == "humaneval" || options["task"] == "gsm8k", "schema",
                "options/task", "expected humaneval or gsm8k");
  checks.expect(options["prompt"] == "chat" || options["prompt"] == "raw", "schema",
                "options/prompt", "expected chat or raw");
  check_confinement(report, checks);
  std::vector<TaskReply> replies;
  std::set<std::string> ids;
  for (const Report& row : report["rows"]) {
    const std::string at = fmt::format("rows/{}", replies.size());
    auto reply = parse_task_reply(row);
    checks.expect(reply.has_value(), "fields", at, "expected a reply with a verdict");
    replies.push_back(std::move(reply).value_or(TaskReply{}));
    checks.expect(ids.insert(replies.back().id).second, "counts", at + "/id",
                  "expected each problem once");
    check_row(report, replies.back(), at, checks);
  }
  const std::int64_t limit = count(options["limit"]);
  checks.expect(limit == 0 || std::ssize(replies) <= limit, "counts", "rows",
                "expected no more than the limit");
  checks.expect(std::ssize(replies) >= kFewestProblems, "samples", "rows",
                fmt::format("expected {} problems or more behind a score, got {}", kFewestProblems,
                            replies.size()));
  check_summary(report, replies, checks);
}

}  // namespace kakeya::eval
