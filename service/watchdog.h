// Notices a pass that does not end: of a device that hangs, or a machine that swaps.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace kakeya::service {

struct WatchOptions {
  std::chrono::milliseconds limit{0};  // of a pass; 0: nothing is watched
  // Called with true when a pass has taken longer, by the watchdog's thread, and with false when it
  // has ended at last, by the thread that steps. Must be quick, and not use the watchdog.
  std::function<void(bool stalled)> on_change = {};
};

// Thread-safe.
class Watchdog {
 public:
  explicit Watchdog(WatchOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Around each pass.
  void begin();
  void end();

  bool stalled() const;         // now
  std::int64_t stalls() const;  // since it was made

 private:
  using Clock = std::chrono::steady_clock;

  void watch();

  const WatchOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Clock::time_point> begun_;  // the pass; nothing between two
  bool stalled_ = false;
  bool ending_ = false;
  std::int64_t stalls_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace kakeya::service
