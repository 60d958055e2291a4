// Problems with a right answer, asked of a server that holds the model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "eval/prompts/served_text.h"
#include "eval/tasks/task_eval.h"

namespace kakeya::eval {

struct ServedTaskOptions {
  TaskKind kind = TaskKind::kGsm8k;
  std::int64_t parallel = 1;             // most requests at a time
  const PythonRunner* python = nullptr;  // for code; outlives the evaluation
  AskServer ask = {};
  std::function<std::string(std::string_view)> hash = {};  // of texts
};

// The reply to a problem before it is asked: its id, prompt and right answer.
TaskReply served_question(const TaskProblem& problem, const ServedTaskOptions& options);

// Asks, and gives `take` each reply as it comes, on the caller's thread, with its problem's index.
// The first error ends it, after the answers that are under way. Errors: of `ask` and judge_code(),
// with the problem's id; of `take`.
Status ask_server(std::span<const TaskProblem> problems,
                  const ServedTaskOptions& options,
                  const std::function<Status(std::size_t, TaskReply)>& take);

}  // namespace kakeya::eval
