#include "runtime/request_queue.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace kakeya {

Result<RequestId> RequestQueue::add(std::unique_ptr<Sequence> sequence) {
  const std::lock_guard lock(mutex_);
  if (!closed_) return Unexpected(closed_.error());
  if (std::ssize(live_) >= most_) {
    return error(StatusCode::kResourceExhausted, "{} requests are running or waiting already",
                 most_);
  }
  const RequestId id = next_id_++;
  sequence->id = id;
  live_.emplace(id, sequence.get());
  arrived_.push_back(std::move(sequence));
  changed_.notify_all();
  return id;
}

Status RequestQueue::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end()) return error(StatusCode::kNotFound, "request {} has ended", id);
  found->second->cancelled = true;
  cancels_ = true;
  changed_.notify_all();
  return {};
}

void RequestQueue::close(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (closed_) closed_ = why;
  changed_.notify_all();
}

bool RequestQueue::is_closed() const {
  const std::lock_guard lock(mutex_);
  return !closed_;
}

Status RequestQueue::why_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

RequestQueue::Counts RequestQueue::counts() const {
  const std::lock_guard lock(mutex_);
  return {.waiting = std::ssize(live_) - running_, .running = running_};
}

bool RequestQueue::claim() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(claimed_, true);
}

bool RequestQueue::release() {
  const std::lock_guard lock(mutex_);
  if (!closed_ && !live_.empty()) return false;
  claimed_ = false;
  return true;
}

bool RequestQueue::wait(Clock::time_point until,
                        const std::function<bool(const Sequence&)>& can_move) {
  std::unique_lock lock(mutex_);
  while (closed_ && !claimed_) {
    const Clock::time_point now = Clock::now();
    if (running_ > 0 || !arrived_.empty() || cancels_ || earliest_ <= now) return true;
    if (!waiting_.empty() && can_move(*waiting_.begin()->second)) return true;
    if (now >= until) return false;
    // An hour, for the end of time cannot be waited for.
    const auto next = waiting_.empty() ? now + std::chrono::hours(1) : now + kPause;
    changed_.wait_until(lock, std::min({next, until, earliest_}));
  }
  return false;
}

void RequestQueue::pause(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return !arrived_.empty() || cancels_ || !closed_; });
}

void RequestQueue::take_arrived() {
  const std::lock_guard lock(mutex_);
  for (std::unique_ptr<Sequence>& sequence : arrived_) {
    const Request& request = sequence->request;
    if (request.deadline) earliest_ = std::min(earliest_, *request.deadline);
    Turns& turns = turns_[request.priority];
    if (turns.last.size() > kMostClients) {
      std::erase_if(turns.last, [&](const auto& entry) { return entry.second <= turns.started; });
    }
    std::uint64_t& last = turns.last[request.client];
    last = std::max(last, turns.started) + 1;
    waiting_.emplace(Place{request.priority, last}, std::move(sequence));
  }
  arrived_.clear();
}

Sequence* RequestQueue::front() {
  return waiting_.empty() ? nullptr : waiting_.begin()->second.get();
}

std::unique_ptr<Sequence> RequestQueue::drop_front() {
  const auto first = waiting_.begin();
  std::unique_ptr<Sequence> sequence = std::move(first->second);
  Turns& turns = turns_[first->first.priority];
  turns.started = std::max(turns.started, first->first.turn);
  waiting_.erase(first);
  if (waiting_.empty()) {
    earliest_ = Clock::time_point::max();
    turns_.clear();
  }
  return sequence;
}

std::unique_ptr<Sequence> RequestQueue::pop_front() {
  std::unique_ptr<Sequence> sequence = drop_front();
  const std::lock_guard lock(mutex_);
  ++running_;
  return sequence;
}

void RequestQueue::put_back(std::unique_ptr<Sequence> sequence) {
  if (sequence->request.deadline) earliest_ = std::min(earliest_, *sequence->request.deadline);
  const Place first = {sequence->request.priority, 0};
  waiting_.emplace_hint(waiting_.lower_bound(first), first, std::move(sequence));
  const std::lock_guard lock(mutex_);
  --running_;
}

std::vector<std::unique_ptr<Sequence>> RequestQueue::take_overdue(Clock::time_point now) {
  std::vector<std::unique_ptr<Sequence>> overdue;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(cancels_, false) && now < earliest_) return overdue;
  }
  earliest_ = Clock::time_point::max();
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    const Sequence& sequence = *entry->second;
    const auto deadline = sequence.request.deadline.value_or(Clock::time_point::max());
    if (sequence.cancelled || deadline <= now) {
      overdue.push_back(std::move(entry->second));
      entry = waiting_.erase(entry);
    } else {
      earliest_ = std::min(earliest_, deadline);
      ++entry;
    }
  }
  return overdue;
}

std::vector<std::unique_ptr<Sequence>> RequestQueue::take_all() {
  take_arrived();
  std::vector<std::unique_ptr<Sequence>> all;
  for (auto& [place, sequence] : waiting_) all.push_back(std::move(sequence));
  waiting_.clear();
  turns_.clear();
  earliest_ = Clock::time_point::max();
  return all;
}

void RequestQueue::remove(RequestId id, bool ran) {
  const std::lock_guard lock(mutex_);
  live_.erase(id);
  running_ -= ran ? 1 : 0;
}

}  // namespace kakeya
