#include "eval/tasks/served_tasks.h"

#include <utility>
#include <vector>

#include "base/status.h"

namespace kakeya::eval {
namespace {

Result<TaskReply> reply_to(const TaskProblem& problem,
                           const ServedTaskOptions& options,
                           Result<ServedText> answer) {
  TaskReply reply = served_question(problem, options);
  if (!answer) return Unexpected(answer.error().with_context(problem.id));
  reply.sha256 = options.hash(answer->text);
  reply.tokens = answer->tokens;
  reply.decode_seconds = answer->seconds;
  auto judgement = judge(options.kind, problem, answer->text, /*raw=*/false, options.python);
  if (!judgement) return Unexpected(judgement.error().with_context(problem.id));
  reply.judgement = std::move(*judgement);
  return reply;
}

}  // namespace

TaskReply served_question(const TaskProblem& problem, const ServedTaskOptions& options) {
  const std::string prompt = task_prompt(options.kind, problem, /*raw=*/false);
  return {.id = problem.id, .prompt_sha256 = options.hash(prompt), .expected = problem.answer};
}

Status ask_server(std::span<const TaskProblem> problems,
                  const ServedTaskOptions& options,
                  const std::function<Status(std::size_t, TaskReply)>& take) {
  std::vector<std::string> prompts;
  for (const TaskProblem& problem : problems) {
    prompts.push_back(task_prompt(options.kind, problem, /*raw=*/false));
  }
  const auto judge_and_take = [&](std::size_t index, Result<ServedText> text) -> Status {
    KAKEYA_ASSIGN_OR_RETURN(TaskReply reply, reply_to(problems[index], options, std::move(text)));
    return take(index, std::move(reply));
  };
  return ask_in_parallel(prompts, options.parallel, options.ask, judge_and_take);
}

}  // namespace kakeya::eval
