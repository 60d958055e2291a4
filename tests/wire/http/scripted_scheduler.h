// A scheduler whose answers a test has written: the same tokens for every request, or those that a
// function has for its prompt, then a stop.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "kakeya/scheduler.h"

namespace kakeya::test {

class ScriptedScheduler final : public Scheduler {
 public:
  using Script = std::function<std::vector<TokenId>(const std::vector<TokenId>& prompt)>;

  explicit ScriptedScheduler(std::vector<TokenId> answer)
      : script_([answer = std::move(answer)](const auto&) { return answer; }) {}
  explicit ScriptedScheduler(Script script) : script_(std::move(script)) {}
  ~ScriptedScheduler() override { stop({}); }

  Result<RequestId> add(Request request) override {
    const std::lock_guard lock(mutex_);
    prompts_.push_back(request.prompt);
    requests_.push_back(std::move(request));
    changed_.notify_all();
    return requests_.size();
  }
  Status cancel(RequestId) override { return {}; }
  Result<bool> step() override {
    std::vector<Request> requests;
    {
      const std::lock_guard lock(mutex_);
      requests.swap(requests_);
    }
    for (const Request& request : requests) answer(request);
    return !requests.empty();
  }
  bool wait(std::chrono::steady_clock::time_point until) override {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [this] { return stopped_ || !requests_.empty(); });
    return !stopped_ && !requests_.empty();
  }
  void stop(Status) override {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  SchedulerStatistics statistics() const override { return {}; }

  // The prompts of all requests so far.
  std::vector<std::vector<TokenId>> prompts() const {
    const std::lock_guard lock(mutex_);
    return prompts_;
  }

 private:
  void answer(const Request& request) const {
    RequestResult result;
    const std::vector<TokenId> answer = script_(request.prompt);
    for (const TokenId id : answer) {
      if (std::ssize(result.generated.ids) == request.generate.max_tokens) break;
      result.generated.ids.push_back(id);
      if (!request.on_token({.id = id})) break;
    }
    if (result.generated.ids.size() == answer.size()) {
      result.generated.stop_reason = StopReason::kStopId;
    }
    request.on_end(1, result);
  }

  const Script script_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Request> requests_;
  std::vector<std::vector<TokenId>> prompts_;
  bool stopped_ = false;
};

}  // namespace kakeya::test
