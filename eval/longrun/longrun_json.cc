// Rows of long runs as reports have them.
#include "eval/longrun/longrun_eval.h"

namespace kakeya::eval {
namespace {

Report bucket_json(const LongRunBucket& row) {
  return {{"begin_seconds", row.begin_seconds},
          {"end_seconds", row.end_seconds},
          {"conversations", row.conversations},
          {"rounds", row.rounds},
          {"tokens", row.tokens},
          {"drafted", row.drafted},
          {"accepted", row.accepted},
          {"tokens_per_second", row.tokens_per_second()},
          {"p50_ms", row.p50_ms},
          {"p95_ms", row.p95_ms},
          {"p99_ms", row.p99_ms},
          {"ledger_bytes", row.ledger_bytes},
          {"resident_bytes", row.resident_bytes}};
}

Report answers_json(const LongRunAnswers& answers) {
  Report json = {
      {"prompt", answers.prompt}, {"answers", answers.answers}, {"equal", answers.equal}};
  if (!answers.sha256.empty()) json["sha256"] = answers.sha256;
  return json;
}

Report failure_json(const LongRunFailure& failure) {
  return {{"conversation", failure.conversation},
          {"prompt", failure.prompt},
          {"seconds", failure.seconds},
          {"error", failure.error}};
}

}  // namespace

void add_longrun_json(Report& report, const LongRunReport& run) {
  report["complete"] = run.complete;
  report["seconds"] = run.seconds;
  report["conversations"] = run.conversations();
  report["tokens"] = run.tokens();
  report["buckets"] = Report::array();
  for (const LongRunBucket& row : run.buckets) report["buckets"].push_back(bucket_json(row));
  report["prompts"] = Report::array();
  for (const LongRunAnswers& prompt : run.prompts) {
    report["prompts"].push_back(answers_json(prompt));
  }
  report["failures"] = Report::array();
  for (const LongRunFailure& failure : run.failures) {
    report["failures"].push_back(failure_json(failure));
  }
  const LongRunVerdict verdict = longrun_verdict(run.buckets);
  report["verdict"] = {{"p50_ratio", verdict.p50_ratio},
                       {"ledger_growth", verdict.ledger_growth},
                       {"resident_growth", verdict.resident_growth},
                       {"flat", verdict.flat()},
                       {"answers_equal", run.answers_equal()}};
}

}  // namespace kakeya::eval
