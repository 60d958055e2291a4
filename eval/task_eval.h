// How many problems of a set a model solves, greedily and with drafts if the engine has them, and
// how sure one may be of that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "python_runner.h"
#include "report_fields.h"
#include "runtime/engine_impl.h"
#include "task_problems.h"

namespace kakeya::eval {

// Of fewer problems nothing is claimed.
inline constexpr std::int64_t kFewestProblems = 20;

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

// A reply to a problem of GSM8K.
Judgement judge_number(const TaskProblem& problem, std::string_view reply);
// Code passes if its program reaches the end of the test, which then says a word that is made
// anew for each run, and exits with 0. Errors: as PythonRunner::run.
Result<Judgement> judge_code(const TaskProblem& problem,
                             std::string_view reply,
                             bool raw,
                             const PythonRunner& python);

// The verdict on a reply. `python` is for code, and may be null else. Errors: as judge_code.
Result<Judgement> judge(TaskKind kind,
                        const TaskProblem& problem,
                        std::string_view reply,
                        bool raw,
                        const PythonRunner* python);

// How an engine came to a reply. A server says nothing of it.
struct TaskPasses {
  std::int64_t prompt_tokens = 0;
  std::int64_t rounds = 0;  // passes after the prefill
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  double prefill_seconds = 0.0;
};

// What became of one problem.
struct TaskReply {
  std::string id = {};
  // Of the ids of prompt and reply; of their texts where a server answered.
  std::string prompt_sha256 = {};
  std::string sha256 = {};
  std::optional<std::string> plain_sha256 = {};  // of ids without drafts, if that was asked for
  std::int64_t tokens = 0;                       // of an engine 1 or more
  double decode_seconds = 0.0;
  std::optional<TaskPasses> passes = {};
  Judgement judgement = {};
  std::string expected = {};  // of GSM8K
};

// What the replies add up to.
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

struct TaskOptions {
  TaskKind kind = TaskKind::kGsm8k;
  bool raw = false;
  SessionOptions session = {};
  std::int64_t max_tokens = 512;                 // most tokens of a reply
  std::int64_t draft_length = kAutoDraftLength;  // GenerateOptions::draft_length
  bool compare_plain = false;                    // each reply also without drafts
  const PythonRunner* python = nullptr;          // for code; outlives the evaluation
  std::function<std::string(std::span<const TokenId>)> hash = {};
};

// Asks problems one after the other, in one session.
class TaskEvaluation {
 public:
  // Errors: of the tokenizer and the template, with the problem's id; kInvalidArgument for a
  // problem that leaves no room for a reply in the session; kResourceExhausted.
  static Result<std::unique_ptr<TaskEvaluation>> create(EngineImpl& engine,
                                                        std::span<const TaskProblem> problems,
                                                        const TaskOptions& options);

  std::size_t size() const { return problems_.size(); }
  // With everything that is known before it is asked.
  const TaskReply& question(std::size_t index) const { return questions_[index]; }
  // Errors: of the session and judge_code(), with the problem's id.
  Result<TaskReply> ask(std::size_t index);

 private:
  TaskEvaluation(EngineImpl& engine, std::span<const TaskProblem> problems, TaskOptions options)
      : engine_(engine),
        problems_(problems.begin(), problems.end()),
        options_(std::move(options)) {}
  Status prepare();
  Status fill(std::size_t index, TaskReply& reply);

  EngineImpl& engine_;
  std::vector<TaskProblem> problems_;
  TaskOptions options_;
  std::vector<std::vector<TokenId>> prompts_;
  std::vector<TaskReply> questions_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Session> plain_;
};

// As reports and journals have them. Errors of the second: kDataLoss for what is no reply.
Report task_reply_json(const TaskReply& reply);
Result<TaskReply> parse_task_reply(const Report& json);
Report task_summary_json(const TaskSummary& summary);

}  // namespace kakeya::eval
