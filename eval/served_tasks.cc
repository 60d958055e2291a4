#include "served_tasks.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kakeya::eval {
namespace {

struct Answer {
  std::size_t index = 0;
  Result<ServedText> text;
};

// Answers in the order in which they come, from several threads to one.
class Answers {
 public:
  void add(Answer answer) {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(answer));
    added_.notify_one();
  }

  // Waits for one.
  Answer take() {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return !answers_.empty(); });
    Answer answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Answer> answers_;
};

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
  Answers answers;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t index; (index = next++) < problems.size();) {
      answers.add({index, options.ask(task_prompt(options.kind, problems[index], false))});
    }
  };
  // They end before what they refer to.
  std::vector<std::jthread> workers;
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(options.parallel, 1));
  for (std::size_t i = 0; i < std::min(wanted, problems.size()); ++i) workers.emplace_back(work);
  Status status;
  for (std::size_t done = 0; status && done < problems.size(); ++done) {
    Answer answer = answers.take();
    auto reply = reply_to(problems[answer.index], options, std::move(answer.text));
    status = reply ? take(answer.index, std::move(*reply)) : Unexpected(reply.error());
  }
  next = problems.size();  // nobody asks any more
  return status;
}

}  // namespace kakeya::eval
