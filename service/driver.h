// The one thread that steps the scheduler. Connections hand it requests and get mail; it sleeps
// while there is nothing to do.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "kakeya/scheduler.h"
#include "kakeya/status.h"
#include "service/mailbox.h"
#include "service/watchdog.h"

namespace kakeya::service {

// Drives a scheduler. Thread-safe. The scheduler's engine must outlive it.
class Driver {
 public:
  static std::unique_ptr<Driver> create(std::unique_ptr<Scheduler> scheduler,
                                        WatchOptions watch = {});

  // As stop().
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Called with the result of each request, also of one whose mailbox nobody reads any more. It
  // runs on the thread that steps or stops, and must be quick.
  using OnEnd = std::function<void(const RequestResult& result)>;

  // Queues a request, whose tokens and end go to `mailbox`; its own callbacks are replaced.
  // `on_end`, which may be empty, is called before the mailbox gets the end.
  // Errors: as Scheduler::add(); kUnavailable once it stops, or if the scheduler has failed.
  Result<RequestId> submit(Request request, std::shared_ptr<Mailbox> mailbox, OnEnd on_end = {});

  // Ends a request before the next pass; nothing happens if it has ended.
  void cancel(RequestId id);

  // Ends all requests with kUnavailable, and the thread. Returns when that is done.
  void stop();

  // True if requests are taken.
  bool healthy() const { return healthy_; }
  // The pass that runs now, and those since the start that took longer than the watchdog's limit.
  bool stalled() const { return watchdog_.stalled(); }
  std::int64_t stalls() const { return watchdog_.stalls(); }
  // True if there are requests and none of them has gone on for longer than that limit.
  bool stuck() const;
  SchedulerStatistics statistics() const { return scheduler_->statistics(); }

 private:
  Driver(std::unique_ptr<Scheduler> scheduler, WatchOptions watch);

  void run();
  // One pass. Errors: of a scheduler that cannot go on.
  Status step();

  std::unique_ptr<Scheduler> scheduler_;
  std::atomic<bool> healthy_{true};
  // Notes whether something has gone on since the last call. On the thread that steps.
  void look_for_progress();

  using Clock = std::chrono::steady_clock;

  const std::chrono::milliseconds limit_;
  std::atomic<Clock::rep> last_progress_;  // when something went on, or nobody was there
  std::int64_t work_done_ = 0;             // rows and tokens by then
  Watchdog watchdog_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace kakeya::service
