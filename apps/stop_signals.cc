#include "stop_signals.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace kakeya::cli {
namespace {

// The end of a pipe that a signal writes to; -1: none. A handler can do little else.
volatile int signal_pipe = -1;

void on_signal(int signal) {
  const int kept = errno;
  const Signal what = signal == SIGHUP    ? Signal::kReload
                      : signal == SIGTERM ? Signal::kDrain
                                          : Signal::kStop;
  if (::write(signal_pipe, &what, 1) < 0) errno = kept;
}

}  // namespace

Signals::Signals(bool reloads) {
  if (::pipe(ends_.data()) != 0) return;
  signal_pipe = ends_[1];
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  action.sa_flags = SA_RESTART;
  if (reloads) ::sigaction(SIGHUP, &action, nullptr);
}

Signal Signals::wait() const {
  Signal signal = Signal::kStop;
  while (::read(ends_[0], &signal, 1) < 0 && errno == EINTR) {
  }
  return signal;
}

bool Signals::wait_for(int milliseconds) const {
  pollfd end = {.fd = ends_[0], .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, milliseconds) > 0;
}

bool Signals::wait_while(double seconds, const std::function<bool()>& waits) const {
  constexpr int kLook = 20;  // milliseconds
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (waits() && std::chrono::steady_clock::now() < end) {
    if (wait_for(kLook) && wait() != Signal::kReload) return false;
  }
  return true;
}

}  // namespace kakeya::cli
