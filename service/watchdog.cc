#include "service/watchdog.h"

#include <algorithm>
#include <utility>

namespace kakeya::service {

Watchdog::Watchdog(WatchOptions options) : options_(std::move(options)) {
  if (options_.limit.count() > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::begin() {
  const std::lock_guard lock(mutex_);
  begun_ = Clock::now();
}

void Watchdog::end() {
  const std::lock_guard lock(mutex_);
  begun_.reset();
  if (std::exchange(stalled_, false) && options_.on_change) options_.on_change(false);
}

bool Watchdog::stalled() const {
  const std::lock_guard lock(mutex_);
  return stalled_;
}

std::int64_t Watchdog::stalls() const {
  const std::lock_guard lock(mutex_);
  return stalls_;
}

// Looks now and then: a pass that begins need not wake anybody.
void Watchdog::watch() {
  using std::chrono::milliseconds;
  const milliseconds pause = std::clamp(options_.limit / 8, milliseconds(1), milliseconds(1000));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause, [this] { return ending_; })) {
    if (stalled_ || !begun_ || Clock::now() - *begun_ <= options_.limit) continue;
    stalled_ = true;
    ++stalls_;
    if (options_.on_change) options_.on_change(true);
  }
}

}  // namespace kakeya::service
