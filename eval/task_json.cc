// Replies to problems and what they add up to, as reports and journals have them.
#include "base/status.h"
#include "niah_eval.h"
#include "task_eval.h"

namespace kakeya::eval {
namespace {

// False: a field is missing or of another type.
bool take_text(const Report& json, const char* name, std::string& to) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) return false;
  to = found->get<std::string>();
  return true;
}

bool take_count(const Report& json, const char* name, std::int64_t& to) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer() || *found < 0) return false;
  to = found->get<std::int64_t>();
  return true;
}

bool take_seconds(const Report& json, const char* name, double& to) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return false;
  to = found->get<double>();
  return true;
}

void add_passes(Report& json, const TaskPasses& passes) {
  json["rounds"] = passes.rounds;
  json["drafted"] = passes.drafted;
  json["accepted"] = passes.accepted;
}

// All of them or none.
bool take_passes(const Report& json, std::optional<TaskPasses>& to) {
  if (!json.contains("rounds")) return true;
  TaskPasses& passes = to.emplace();
  return take_count(json, "prompt_tokens", passes.prompt_tokens) &&
         take_count(json, "rounds", passes.rounds) && take_count(json, "drafted", passes.drafted) &&
         take_count(json, "accepted", passes.accepted) &&
         take_seconds(json, "prefill_seconds", passes.prefill_seconds);
}

bool take_verdict(const Report& json, TaskVerdict& to) {
  std::string name;
  if (!take_text(json, "verdict", name)) return false;
  for (const TaskVerdict verdict :
       {TaskVerdict::kPassed, TaskVerdict::kFailed, TaskVerdict::kTimedOut, TaskVerdict::kCrashed,
        TaskVerdict::kNoAnswer}) {
    if (verdict_name(verdict) != name) continue;
    to = verdict;
    return true;
  }
  return false;
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
  const bool whole = json.is_object() && take_text(json, "id", reply.id) &&
                     take_text(json, "prompt_sha256", reply.prompt_sha256) &&
                     take_text(json, "sha256", reply.sha256) &&
                     take_count(json, "tokens", reply.tokens) &&
                     take_seconds(json, "decode_seconds", reply.decode_seconds) &&
                     take_passes(json, reply.passes) && take_verdict(json, reply.judgement.verdict);
  if (!whole) return data_loss("expected a reply, got {}", json.dump().substr(0, 80));
  std::string plain;
  if (take_text(json, "plain_sha256", plain)) reply.plain_sha256 = plain;
  take_text(json, "detail", reply.judgement.detail);
  take_text(json, "expected", reply.expected);
  take_text(json, "got", reply.judgement.got);
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
