// A thread for work that may not come back, such as that of a disk whose server is gone: who waits
// for it does so for a time and goes on without it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace kakeya {

// Thread-safe: one work after the other.
class TimedThread {
 private:
  struct Work;
  struct State;

 public:
  using Clock = std::chrono::steady_clock;

  // The thread that waits, as the work sees it.
  class Caller {
   public:
    // Runs `part` in the thread that waits, so that it may touch what that thread owns. False: it
    // waits no more, and nothing was run; the work should end.
    bool run(const std::function<void()>& part);

   private:
    friend class TimedThread;
    Caller(State& state, Work& work) : state_(state), work_(work) {}
    State& state_;
    Work& work_;
  };

  struct Limits {
    Clock::duration patience;  // longest wait for a part or the end
    Clock::time_point deadline = Clock::time_point::max();
    std::function<bool()> goes_on = {};  // asked now and then; false: waits no more
  };
  enum class Outcome : std::uint8_t { kDone, kLate, kStopped };

  TimedThread();
  // Leaves work that nobody waits for to itself, with the thread.
  ~TimedThread();
  TimedThread(const TimedThread&) = delete;
  TimedThread& operator=(const TimedThread&) = delete;

  // Runs `work` on the thread. Unless it is kDone, the work may go on, so that it must own all that
  // it touches outside parts. kLate at once while earlier work that was late is not done.
  Outcome run(std::function<void(Caller&)> work, const Limits& limits);

 private:
  static void serve(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace kakeya
