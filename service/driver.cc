#include "service/driver.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "base/status.h"

namespace kakeya::service {
namespace {

// Fills `request` so that tokens go to `mailbox`, with what there is to say of them.
void deliver_to(const std::shared_ptr<Mailbox>& mailbox, Request& request) {
  request.on_prompt = [mailbox](std::int64_t cached) { mailbox->put_cached(cached); };
  request.on_token = [mailbox](const TokenEvent& token) {
    GeneratedToken generated = {.id = token.id, .drafted = token.drafted};
    if (token.logprobs != nullptr) generated.logprobs = *token.logprobs;
    return mailbox->put(std::move(generated));
  };
}

}  // namespace

std::unique_ptr<Driver> Driver::create(std::unique_ptr<Scheduler> scheduler, WatchOptions watch) {
  return std::unique_ptr<Driver>(new Driver(std::move(scheduler), std::move(watch)));
}

Driver::Driver(std::unique_ptr<Scheduler> scheduler, WatchOptions watch)
    : scheduler_(std::move(scheduler)),
      limit_(watch.limit),
      last_progress_(Clock::now().time_since_epoch().count()),
      watchdog_(std::move(watch)) {
  thread_ = std::thread([this] { run(); });
}

Driver::~Driver() {
  stop();
}

Result<RequestId> Driver::submit(Request request, std::shared_ptr<Mailbox> mailbox, OnEnd on_end) {
  // Who comes first has not waited yet.
  const SchedulerStatistics before = scheduler_->statistics();
  if (before.running + before.waiting == 0) {
    last_progress_ = Clock::now().time_since_epoch().count();
  }
  deliver_to(mailbox, request);
  request.on_end = [mailbox = std::move(mailbox), on_end = std::move(on_end)](
                       RequestId, const RequestResult& result) {
    if (on_end) on_end(result);
    if (result.status) {
      mailbox->end(result.generated.stop_reason);
    } else {
      mailbox->end(Unexpected(result.status.error()));
    }
  };
  return scheduler_->add(std::move(request));
}

void Driver::cancel(RequestId id) {
  static_cast<void>(scheduler_->cancel(id));  // kNotFound: it has ended, which is what was wanted
}

void Driver::stop() {
  healthy_ = false;
  scheduler_->stop(error(StatusCode::kUnavailable, "the server is shutting down"));
  if (thread_.joinable()) thread_.join();
}

// Steps until the scheduler is stopped.
void Driver::run() {
  while (scheduler_->wait(std::chrono::steady_clock::time_point::max())) {
    watchdog_.begin();
    const Status stepped = step();  // which throws nothing
    watchdog_.end();
    look_for_progress();
    if (stepped) continue;
    healthy_ = false;
    scheduler_->stop(stepped);
  }
}

void Driver::look_for_progress() {
  const SchedulerStatistics now = scheduler_->statistics();
  const std::int64_t done = now.tokens + now.prompt_rows + now.shared_rows;
  const bool goes_on = std::exchange(work_done_, done) != done;
  if (goes_on || now.running + now.waiting == 0) {
    last_progress_ = Clock::now().time_since_epoch().count();
  }
}

bool Driver::stuck() const {
  const SchedulerStatistics now = scheduler_->statistics();
  if (limit_.count() == 0 || now.running + now.waiting == 0) return false;
  return Clock::now().time_since_epoch() - Clock::duration(last_progress_.load()) > limit_;
}

Status Driver::step() {
  try {
    KAKEYA_TRY(scheduler_->step());
    return {};
  } catch (const std::exception& failure) {
    return error(StatusCode::kInternal, "a pass failed: {}", failure.what());
  }
}

}  // namespace kakeya::service
