// The one thread that steps the scheduler. Connections hand it requests and get mail; it sleeps
// while there is nothing to do.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "kakeya/status.h"
#include "server/mailbox.h"

namespace kakeya::server {

// Thread-safe. The engine must outlive it.
class Driver {
 public:
  // Errors: as Engine::create_scheduler().
  static Result<std::unique_ptr<Driver>> create(Engine& engine, const SchedulerOptions& options);

  // As stop().
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Queues a request, whose tokens and end go to `mailbox`; its own callbacks are replaced.
  // Errors: as Scheduler::add(); kUnavailable once it stops, or if the scheduler has failed.
  Result<RequestId> submit(Request request, std::shared_ptr<Mailbox> mailbox);

  // Ends a request before the next pass; nothing happens if it has ended.
  void cancel(RequestId id);

  // Ends all requests with kUnavailable, and the thread. Returns when that is done.
  void stop();

  // Whether requests are taken.
  bool healthy() const;
  SchedulerStatistics statistics() const { return scheduler_->statistics(); }

 private:
  explicit Driver(std::unique_ptr<Scheduler> scheduler);

  void run();
  // Steps until there is nothing left to do.
  Status work();
  void forget(RequestId id, const RequestResult& result);
  // Ends what the scheduler will never end.
  void abandon(const Error& error);

  std::unique_ptr<Scheduler> scheduler_;
  mutable std::mutex mutex_;  // never held while a pass runs
  std::condition_variable changed_;
  std::map<RequestId, std::shared_ptr<Mailbox>> live_;
  bool has_work_ = false;
  bool stopping_ = false;
  bool failed_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace kakeya::server
