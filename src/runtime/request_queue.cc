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
    const std::uint64_t turn = turns_of(request.priority).of_clients.next(request.client);
    waiting_.emplace(Place{request.priority, turn}, std::move(sequence));
  }
  arrived_.clear();
}

RequestQueue::Turns& RequestQueue::turns_of(int priority) {
  const auto [turns, is_new] = turns_.try_emplace(priority);
  if (is_new) turns->second.since = Clock::now();
  return turns->second;
}

RequestQueue::Waiting::iterator RequestQueue::first_of(int priority) {
  const auto first = waiting_.lower_bound(Place{.priority = priority, .turn = 0});
  return first != waiting_.end() && first->first.priority == priority ? first : waiting_.end();
}

RequestQueue::Waiting::iterator RequestQueue::find_next() {
  const auto top = waiting_.begin();
  if (top == waiting_.end() || turns_.size() < 2) return top;
  const Clock::time_point now = Clock::now();
  if (now < next_look_) return top;
  auto next = top;
  Clock::time_point since = now - patience_;
  for (const auto& [priority, turns] : turns_) {
    if (priority == top->first.priority || turns.since > since) continue;
    since = turns.since;
    next = first_of(priority);
  }
  if (next == top) next_look_ = now + patience_ / 8;
  return next;
}

Sequence* RequestQueue::front() {
  next_ = find_next();
  return next_ == waiting_.end() ? nullptr : next_->second.get();
}

std::unique_ptr<Sequence> RequestQueue::drop_front() {
  const Place place = next_->first;
  std::unique_ptr<Sequence> sequence = std::move(next_->second);
  Turns& turns = turns_of(place.priority);
  turns.of_clients.begin(place.turn);
  turns.since = Clock::now();
  if (place.priority != waiting_.begin()->first.priority) {
    sequence->passed_by = true;
    next_look_ = turns.since + patience_;
  }
  waiting_.erase(next_);
  if (first_of(place.priority) == waiting_.end()) turns_.erase(place.priority);
  if (waiting_.empty()) earliest_ = Clock::time_point::max();
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
  turns_of(first.priority);
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
  std::erase_if(turns_,
                [this](const auto& entry) { return first_of(entry.first) == waiting_.end(); });
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
