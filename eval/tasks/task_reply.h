// The replies to problems that a model was asked, and how many of them it solved.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/report/report_fields.h"
#include "kakeya/status.h"

namespace kakeya::eval {

// The fewest problems of which something is claimed.
inline constexpr std::int64_t kFewestProblems = 20;
// No time of a reply is shorter; one of a single token takes none to decode.
inline constexpr double kShortestTaskSeconds = 1e-9;

enum class TaskVerdict : std::uint8_t {
  kPassed,
  kFailed,
  kTimedOut,
  kCrashed,   // a signal ended the program
  kNoAnswer,  // the reply has no code or no number
};

// "passed", "failed", "timed_out", "crashed", "no_answer"
std::string verdict_name(TaskVerdict verdict);

struct Judgement {
  TaskVerdict verdict = TaskVerdict::kNoAnswer;
  // Why code failed, one line of at most 200 characters: the last one it wrote.
  std::string detail = {};
  std::string got = {};  // of GSM8K: the number; empty: none
};

// How an engine came to a reply. A server says nothing of it.
struct TaskPasses {
  std::int64_t prompt_tokens = 0;
  std::int64_t rounds = 0;  // passes after the prefill
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  double prefill_seconds = 0.0;
};

// The reply to one problem.
struct TaskReply {
  std::string id = {};
  // The hashes of the ids of prompt and reply; of their texts where a server answered.
  std::string prompt_sha256 = {};
  std::string sha256 = {};
  std::optional<std::string> plain_sha256 = {};  // of ids without drafts, if that was asked for
  std::int64_t tokens = 0;                       // of an engine 1 or more
  double decode_seconds = 0.0;
  std::optional<TaskPasses> passes = {};
  Judgement judgement = {};
  std::string expected = {};  // of GSM8K
};

// The summary of the replies.
struct TaskSummary {
  std::int64_t problems = 0;
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t timed_out = 0;
  std::int64_t crashed = 0;
  std::int64_t no_answer = 0;
  std::int64_t tokens = 0;
  double decode_seconds = 0.0;
  // Added up, but for prompts; none if a reply has none.
  std::optional<TaskPasses> passes = {};
  // Replies whose ids are those without drafts; none if a reply was not made both ways.
  std::optional<std::int64_t> equal_plain = {};

  double score() const;
  // Without each reply's first token, which comes of its prompt; 0 without any round.
  double tokens_per_round() const;
  double tokens_per_second() const;
};
TaskSummary task_summary(std::span<const TaskReply> replies);

// As reports and journals have them. Errors of the second: kDataLoss for what is no reply.
Report task_reply_json(const TaskReply& reply);
Result<TaskReply> parse_task_reply(const Report& json);
Report task_summary_json(const TaskSummary& summary);

}  // namespace kakeya::eval
