// Signals that a server waits for.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

namespace kakeya::cli {

enum class Signal : std::uint8_t { kStop, kReload, kDrain };

// From its making on SIGINT and SIGTERM are waited for instead of ending the program; the second
// one of a kind ends it. So is SIGHUP, any number of times, where there is something to be read
// anew: else it ends the program as it always did, when its terminal is closed for example. One at
// a time.
class Signals {
 public:
  explicit Signals(bool reloads);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  bool works() const { return ends_[0] >= 0; }
  // The next one.
  Signal wait() const;
  // Waits while `waits` says so, for at most so long; false if a signal ended it.
  bool wait_while(double seconds, const std::function<bool()>& waits) const;

 private:
  // True if there is one within `milliseconds`, for wait().
  bool wait_for(int milliseconds) const;

  std::array<int, 2> ends_ = {-1, -1};  // of a pipe
};

}  // namespace kakeya::cli
