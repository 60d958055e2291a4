// Replies to problems and what they add up to, as reports and journals have them.
#include <optional>
#include <string>

#include "base/status.h"
#include "eval/report/bootstrap.h"
#include "eval/report/field_reader.h"
#include "eval/tasks/task_reply.h"

namespace kakeya::eval {
namespace {

void add_passes(Report& json, const TaskPasses& passes) {
  json["rounds"] = passes.rounds;
  json["drafted"] = passes.drafted;
  json["accepted"] = passes.accepted;
}

// None of an unknown name.
std::optional<TaskVerdict> verdict_of(const std::string& name) {
  for (const TaskVerdict verdict :
       {TaskVerdict::kPassed, TaskVerdict::kFailed, TaskVerdict::kTimedOut, TaskVerdict::kCrashed,
        TaskVerdict::kNoAnswer}) {
    if (verdict_name(verdict) == name) return verdict;
  }
  return std::nullopt;
}

}  // namespace

Report task_reply_json(const TaskReply& reply) {
  Report json = {{"id", reply.id}, {"prompt_sha256", reply.prompt_sha256}};
  if (reply.passes) json["prompt_tokens"] = reply.passes->prompt_tokens;
  json["sha256"] = reply.sha256;
  json["tokens"] = reply.tokens;
  if (reply.passes) {
    add_passes(json, *reply.passes);
    json["prefill_seconds"] = reply.passes->prefill_seconds;
  }
  json["decode_seconds"] = reply.decode_seconds;
  json["verdict"] = verdict_name(reply.judgement.verdict);
  if (reply.plain_sha256) json["plain_sha256"] = *reply.plain_sha256;
  // Absent, not empty.
  if (!reply.judgement.detail.empty()) json["detail"] = reply.judgement.detail;
  if (!reply.expected.empty()) json["expected"] = reply.expected;
  if (!reply.judgement.got.empty()) json["got"] = reply.judgement.got;
  return json;
}

Result<TaskReply> parse_task_reply(const Report& json) {
  TaskReply reply;
  std::string verdict;
  FieldReader fields(json);
  fields.take("id", reply.id)
      .take("prompt_sha256", reply.prompt_sha256)
      .take("sha256", reply.sha256)
      .take("tokens", reply.tokens)
      .take("decode_seconds", reply.decode_seconds)
      .take("verdict", verdict)
      .take_if_there("plain_sha256", reply.plain_sha256)
      .take_if_there("detail", reply.judgement.detail)
      .take_if_there("expected", reply.expected)
      .take_if_there("got", reply.judgement.got);
  if (fields.whole() && json.contains("rounds")) {  // all that an engine knows of its passes
    TaskPasses& passes = reply.passes.emplace();
    fields.take("prompt_tokens", passes.prompt_tokens)
        .take("rounds", passes.rounds)
        .take("drafted", passes.drafted)
        .take("accepted", passes.accepted)
        .take("prefill_seconds", passes.prefill_seconds);
  }
  KAKEYA_TRY(fields.status("a reply"));
  const auto known = verdict_of(verdict);
  if (!known) return data_loss("expected a verdict, got '{}'", verdict);
  reply.judgement.verdict = *known;
  return reply;
}

Report task_summary_json(const TaskSummary& summary) {
  const auto interval = wilson_interval(summary.passed, summary.problems);
  Report json = {{"problems", summary.problems}, {"passed", summary.passed},
                 {"failed", summary.failed},     {"timed_out", summary.timed_out},
                 {"crashed", summary.crashed},   {"no_answer", summary.no_answer},
                 {"score", summary.score()},     {"low", interval.low},
                 {"high", interval.high},        {"tokens", summary.tokens}};
  if (summary.passes) add_passes(json, *summary.passes);
  json["decode_seconds"] = summary.decode_seconds;
  if (summary.passes) json["tokens_per_round"] = summary.tokens_per_round();
  json["tokens_per_second"] = summary.tokens_per_second();
  if (summary.equal_plain) json["equal_plain"] = *summary.equal_plain;
  return json;
}

}  // namespace kakeya::eval
