#include "base/timed_thread.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace kakeya {
namespace {

constexpr std::chrono::milliseconds kAskEvery(20);
constexpr std::chrono::seconds kLastWait(1);

}  // namespace

struct TimedThread::Work {
  std::function<void(Caller&)> run;
  const std::function<void()>* part = nullptr;  // that the caller is to run
  bool is_done = false;
  bool is_alone = false;  // its caller waits no more
  bool is_late = false;
};

struct TimedThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<Work> work;  // null: none
  bool closes = false;
};

bool TimedThread::Caller::run(const std::function<void()>& part) {
  std::unique_lock lock(state_.mutex);
  if (work_.is_alone) return false;
  work_.part = &part;
  state_.changed.notify_all();
  state_.changed.wait(lock, [&] { return work_.part == nullptr || work_.is_alone; });
  return std::exchange(work_.part, nullptr) == nullptr;
}

TimedThread::TimedThread()
    : state_(std::make_shared<State>()), thread_([state = state_] { serve(state); }) {}

TimedThread::~TimedThread() {
  std::unique_lock lock(state_->mutex);
  state_->closes = true;
  state_->changed.notify_all();
  const bool ends =
      state_->changed.wait_for(lock, kLastWait, [&] { return state_->work == nullptr; });
  lock.unlock();
  if (ends) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void TimedThread::serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->work != nullptr || state->closes; });
    const std::shared_ptr<Work> work = state->work;
    if (work == nullptr) return;
    lock.unlock();
    Caller caller(*state, *work);
    work->run(caller);
    work->run = nullptr;  // with what it owns
    lock.lock();
    work->is_done = true;
    state->work = nullptr;
    state->changed.notify_all();
  }
}

TimedThread::Outcome TimedThread::run(std::function<void(Caller&)> run, const Limits& limits) {
  const auto work = std::make_shared<Work>();
  work->run = std::move(run);
  std::unique_lock lock(state_->mutex);
  Clock::time_point begun = Clock::now();
  // Waits for `done`; what ended that.
  const auto wait = [&](const auto& done) {
    while (!done()) {
      const auto now = Clock::now();
      const auto until = std::min(limits.deadline, begun + limits.patience);
      if (limits.goes_on && !limits.goes_on()) return Outcome::kStopped;
      if (now >= until) return Outcome::kLate;
      state_->changed.wait_until(lock, limits.goes_on ? std::min(until, now + kAskEvery) : until);
    }
    return Outcome::kDone;
  };
  Outcome outcome = wait([&] { return state_->work == nullptr || state_->work->is_late; });
  if (outcome == Outcome::kDone && state_->work != nullptr) outcome = Outcome::kLate;
  if (outcome != Outcome::kDone) {
    // Work that was stopped and did not end since is late, too.
    const bool is_late = outcome == Outcome::kLate && state_->work->is_alone;
    state_->work->is_late = state_->work->is_late || is_late;
    return outcome;
  }
  state_->work = work;
  state_->changed.notify_all();
  while (true) {
    begun = Clock::now();
    outcome = wait([&] { return work->is_done || work->part != nullptr; });
    if (outcome != Outcome::kDone) {
      work->is_alone = true;
      work->is_late = outcome == Outcome::kLate;
      state_->changed.notify_all();
      return outcome;
    }
    if (work->is_done) return outcome;
    const std::function<void()>& part = *work->part;
    lock.unlock();
    part();
    lock.lock();
    work->part = nullptr;
    state_->changed.notify_all();
  }
}

}  // namespace kakeya
