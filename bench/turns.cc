#include "bench/turns.h"

#include <algorithm>

namespace kakeya::bench {

// The first of those that are furthest behind.
bool Turns::has_turn(std::size_t run) const {
  const auto next = std::min_element(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) {
    return a.ended != b.ended ? b.ended : a.progress < b.progress;
  });
  return next - runs_.begin() == static_cast<std::ptrdiff_t>(run);
}

void Turns::wait(std::size_t run, std::unique_lock<std::mutex>& lock) {
  passed_.notify_all();
  passed_.wait(lock, [&] { return has_turn(run); });
  turn_ = Stopwatch();
}

// Adds the turn's time; that before the first pass is not counted: of a prompt, and the first token
// that it gives.
void Turns::note_time(std::size_t run) {
  if (runs_[run].progress >= 0) runs_[run].seconds += turn_.seconds();
}

void Turns::begin(std::size_t run) {
  std::unique_lock lock(mutex_);
  wait(run, lock);
}

void Turns::pass(std::size_t run, std::int64_t progress) {
  std::unique_lock lock(mutex_);
  note_time(run);
  runs_[run].progress = progress;
  wait(run, lock);
}

void Turns::end(std::size_t run) {
  const std::lock_guard lock(mutex_);
  note_time(run);
  runs_[run].ended = true;
  passed_.notify_all();
}

}  // namespace kakeya::bench
