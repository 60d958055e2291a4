// Asks a model the problems of a set, greedily and with drafts if the engine has them, and judges
// its replies.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/tasks/python_runner.h"
#include "eval/tasks/task_problems.h"
#include "eval/tasks/task_reply.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

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

}  // namespace kakeya::eval
