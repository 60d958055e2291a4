#include "server/driver.h"

#include <exception>
#include <optional>
#include <utility>

#include "base/status.h"

namespace kakeya::server {
namespace {

// Fills `request` so that tokens go to `mailbox`, each with its log-probabilities if there are any.
void deliver_to(const std::shared_ptr<Mailbox>& mailbox, Request& request) {
  const auto logprobs = std::make_shared<std::optional<TokenLogprobs>>();
  if (request.generate.logprobs) {
    request.generate.on_logprobs = [logprobs](const TokenLogprobs& of) { *logprobs = of; };
  }
  request.on_token = [mailbox, logprobs](TokenId id) {
    return mailbox->put({id, std::exchange(*logprobs, std::nullopt)});
  };
}

}  // namespace

Result<std::unique_ptr<Driver>> Driver::create(Engine& engine, const SchedulerOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(auto scheduler, engine.create_scheduler(options));
  return std::unique_ptr<Driver>(new Driver(std::move(scheduler)));
}

Driver::Driver(std::unique_ptr<Scheduler> scheduler) : scheduler_(std::move(scheduler)) {
  thread_ = std::thread([this] { run(); });
}

Driver::~Driver() {
  stop();
}

Result<RequestId> Driver::submit(Request request, std::shared_ptr<Mailbox> mailbox) {
  deliver_to(mailbox, request);
  request.on_end = [this](RequestId id, const RequestResult& result) { forget(id, result); };
  // The request may end before its id is known here: forget() then waits for this lock. Scheduler
  // and driver never wait for each other, as callbacks are called without the scheduler's lock.
  const std::lock_guard lock(mutex_);
  if (stopping_ || failed_) return error(StatusCode::kUnavailable, "the server is shutting down");
  KAKEYA_ASSIGN_OR_RETURN(const RequestId id, scheduler_->add(std::move(request)));
  live_.emplace(id, std::move(mailbox));
  has_work_ = true;
  changed_.notify_one();
  return id;
}

void Driver::cancel(RequestId id) {
  static_cast<void>(scheduler_->cancel(id));  // kNotFound: it has ended, which is what was wanted
  const std::lock_guard lock(mutex_);
  has_work_ = true;
  changed_.notify_one();
}

void Driver::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, mailbox] : live_) {
      mailbox->end(error(StatusCode::kUnavailable, "the server is shutting down"));
      static_cast<void>(scheduler_->cancel(id));
    }
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

bool Driver::healthy() const {
  const std::lock_guard lock(mutex_);
  return !stopping_ && !failed_;
}

void Driver::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return has_work_ || stopping_; });
      if (failed_ || (stopping_ && live_.empty())) return;
      has_work_ = false;
    }
    if (const Status worked = work(); !worked) abandon(worked.error());
  }
}

Status Driver::work() {
  try {
    while (true) {
      KAKEYA_ASSIGN_OR_RETURN(const bool more, scheduler_->step());
      if (!more) return {};
    }
  } catch (const std::exception& failure) {
    return error(StatusCode::kInternal, "a pass failed: {}", failure.what());
  }
}

void Driver::forget(RequestId id, const RequestResult& result) {
  std::shared_ptr<Mailbox> mailbox;
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(id);
    if (found == live_.end()) return;
    mailbox = std::move(found->second);
    live_.erase(found);
  }
  if (result.status) {
    mailbox->end(result.generated.stop_reason);
  } else {
    mailbox->end(Unexpected(result.status.error()));
  }
}

void Driver::abandon(const Error& error) {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  has_work_ = true;  // ends the thread
  for (const auto& [id, mailbox] : live_) mailbox->end(Unexpected(error));
  live_.clear();
}

}  // namespace kakeya::server
