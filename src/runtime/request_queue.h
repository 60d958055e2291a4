// The requests of a scheduler: all that have not ended, and the order of those that wait.
//
//   add() -> arrived -> take_arrived() -> waiting, by priority, then by turns of clients, then in
//   order -> pop_front()
//
// Higher priorities pass by lower ones for so long: once in kPatience the first request of the
// priority of which none has started for longest, and for so long, is the first of all.
//
// It also says who may step: one thread at a time, and nobody within a callback.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fair_turns.h"
#include "kakeya/scheduler.h"
#include "kakeya/status.h"
#include "runtime/sequence.h"

namespace kakeya {

class RequestQueue {
 public:
  using Clock = std::chrono::steady_clock;
  // The time to wait before looking again whether memory that somebody else held is free.
  static constexpr std::chrono::milliseconds kPause{10};

  // The time that higher priorities may pass by a request that is the first of its own.
  static constexpr std::chrono::milliseconds kPatience{10'000};

  // Creates a queue of at most `most` requests at a time.
  explicit RequestQueue(std::int64_t most, std::chrono::milliseconds patience = kPatience)
      : most_(most), patience_(patience) {}

  // These are thread-safe.

  // Errors: kResourceExhausted if there are as many as there may be; what close() was told.
  Result<RequestId> add(std::unique_ptr<Sequence> sequence);
  // Errors: kNotFound.
  Status cancel(RequestId id);
  // Refuses requests from now on with `why`, an error; the first one counts.
  void close(const Status& why);
  // True if close() was called.
  bool is_closed() const;
  // The status given to close().
  Status why_closed() const;
  struct Counts {
    std::int64_t waiting = 0;
    std::int64_t running = 0;
  };
  Counts counts() const;

  // Takes the right to step; false if somebody has it.
  bool claim();
  // Gives it back. False, and it is kept, if the queue was closed and requests are left to end.
  bool release();

  // Sleeps until there is something to step: true; false when `until` has passed, when the queue
  // is closed, or at once if somebody has the right to step. `can_move`: whether there is something
  // to do about the first one that waits. By the thread that steps.
  bool wait(Clock::time_point until, const std::function<bool(const Sequence&)>& can_move);

  // The rest is for whoever has the right to step.

  // Sleeps until something is added, cancelled or closed, or this time has passed.
  void pause(std::chrono::microseconds most = kPause);
  void take_arrived();
  // The request that is to start next. Null: nobody waits.
  Sequence* front();
  // Takes the request that front() has just given out of the queue to run it.
  std::unique_ptr<Sequence> pop_front();
  // Puts a request back that was running (preemption): it waits again, before all others of its
  // priority.
  void put_back(std::unique_ptr<Sequence> sequence);
  // It is not in the queue any more, but has not ended.
  std::unique_ptr<Sequence> drop_front();
  // Takes out those that wait and were cancelled, or whose deadline is over. Costs nothing if none
  // was.
  std::vector<std::unique_ptr<Sequence>> take_overdue(Clock::time_point now);
  // Takes out all that wait.
  std::vector<std::unique_ptr<Sequence>> take_all();
  // One has ended. It need not be in any list.
  void remove(RequestId id, bool ran);

 private:
  const std::int64_t most_;
  const std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Sequence>> arrived_;  // since the last step
  std::map<RequestId, Sequence*> live_;
  RequestId next_id_ = 1;
  std::int64_t running_ = 0;
  bool cancels_ = false;  // since take_overdue()
  bool claimed_ = false;
  Status closed_;  // an error: closed

  // Where a request stands: higher priorities first, then lower turns.
  struct Place {
    int priority = 0;
    std::uint64_t turn = 0;

    bool operator<(const Place& other) const {
      return priority != other.priority ? priority > other.priority : turn < other.turn;
    }
  };
  // Turns of one priority.
  struct Turns {
    FairTurns of_clients = {};
    Clock::time_point since = {};  // none of them has started, though one waited
  };

  using Waiting = std::multimap<Place, std::unique_ptr<Sequence>>;
  // The first request of a priority; the end if none waits.
  Waiting::iterator first_of(int priority);
  // The first of the priority that was passed by for longest; the first of all if none was.
  Waiting::iterator find_next();
  Turns& turns_of(int priority);

  // The waiting sequences, by place; equal places keep their order. Only the thread that steps uses
  // this and the members below.
  Waiting waiting_;
  Waiting::iterator next_ = waiting_.end();                // what front() has given
  std::map<int, Turns> turns_;                             // by the priorities of those that wait
  Clock::time_point next_look_ = {};                       // for one that was passed by
  Clock::time_point earliest_ = Clock::time_point::max();  // deadline of those; may be too early
};

}  // namespace kakeya
