#include "eval/tasks/task_reply.h"

#include <algorithm>

namespace kakeya::eval {

std::string verdict_name(TaskVerdict verdict) {
  switch (verdict) {
    case TaskVerdict::kPassed:
      return "passed";
    case TaskVerdict::kFailed:
      return "failed";
    case TaskVerdict::kTimedOut:
      return "timed_out";
    case TaskVerdict::kCrashed:
      return "crashed";
    case TaskVerdict::kNoAnswer:
      break;
  }
  return "no_answer";
}

double TaskSummary::score() const {
  return problems == 0 ? 0.0 : static_cast<double>(passed) / static_cast<double>(problems);
}

double TaskSummary::tokens_per_round() const {
  if (!passes || passes->rounds == 0) return 0.0;
  return static_cast<double>(tokens - problems) / static_cast<double>(passes->rounds);
}

double TaskSummary::tokens_per_second() const {
  // A server need not say how many tokens a reply has.
  const std::int64_t decoded = std::max<std::int64_t>(tokens - problems, 0);
  return static_cast<double>(decoded) / std::max(decode_seconds, kShortestTaskSeconds);
}

TaskSummary task_summary(std::span<const TaskReply> replies) {
  TaskSummary summary{.problems = std::ssize(replies), .passes = TaskPasses{}};
  std::int64_t compared = 0;
  std::int64_t equal = 0;
  for (const TaskReply& reply : replies) {
    switch (reply.judgement.verdict) {
      case TaskVerdict::kPassed:
        ++summary.passed;
        break;
      case TaskVerdict::kFailed:
        ++summary.failed;
        break;
      case TaskVerdict::kTimedOut:
        ++summary.timed_out;
        break;
      case TaskVerdict::kCrashed:
        ++summary.crashed;
        break;
      case TaskVerdict::kNoAnswer:
        ++summary.no_answer;
        break;
    }
    summary.tokens += reply.tokens;
    summary.decode_seconds += reply.decode_seconds;
    if (!reply.passes) summary.passes.reset();
    if (summary.passes) {
      summary.passes->rounds += reply.passes->rounds;
      summary.passes->drafted += reply.passes->drafted;
      summary.passes->accepted += reply.passes->accepted;
    }
    if (!reply.plain_sha256) continue;
    ++compared;
    if (*reply.plain_sha256 == reply.sha256) ++equal;
  }
  if (compared > 0 && compared == summary.problems) summary.equal_plain = equal;
  return summary;
}

}  // namespace kakeya::eval
