#include "eval/prompts/served_text.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

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

}  // namespace

Status ask_in_parallel(std::span<const std::string> prompts,
                       std::int64_t parallel,
                       const AskServer& ask,
                       const std::function<Status(std::size_t, Result<ServedText>)>& take) {
  Answers answers;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t index; (index = next++) < prompts.size();) {
      answers.add({index, ask(prompts[index])});
    }
  };
  // They end before what they refer to.
  std::vector<std::jthread> workers;
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(parallel, 1));
  for (std::size_t i = 0; i < std::min(wanted, prompts.size()); ++i) workers.emplace_back(work);
  Status status;
  for (std::size_t done = 0; status && done < prompts.size(); ++done) {
    Answer answer = answers.take();
    status = take(answer.index, std::move(answer.text));
  }
  next = prompts.size();  // nobody asks any more
  return status;
}

}  // namespace kakeya::eval
