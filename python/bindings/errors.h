// Errors of the engine as exceptions of Python, and exceptions of Python within a callback.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <utility>

#include "bindings/calls.h"
#include "kakeya/status.h"

namespace kakeya::python {

// An error on its way to Python, where it becomes the class of kakeya/_errors.py for its code.
struct Raised {
  Error error;
};

// The result's value. Throws its error as Raised.
template <typename T>
T value_of(Result<T>&& result) {
  if (!result) throw Raised{std::move(result).error()};
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

// How long Ctrl-C may wait for a generation that calls nothing of Python's.
inline constexpr std::chrono::milliseconds kTimeBetweenSignals(50);

// Calls Python from within a pass, and keeps the first exception until the pass is over. The
// thread that made it holds the GIL before and after the pass, not during it.
class Callbacks {
 public:
  // Runs pending signal handlers of Python, such as Ctrl-C's, then `call`, with the GIL. False, to
  // end the generation, where either raised, now or before, or `call` said so; and where the
  // interpreter ends.
  template <typename Use>
  bool run(const Use& call) {
    if (raised_ || is_ending()) return false;
    const Locked locked;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return call();
    } catch (...) {
      raised_ = std::current_exception();
      return false;
    }
  }
  // Runs pending signal handlers alone, if they have not run for a while: the GIL may be with
  // another thread, which gives it away every 5 ms.
  bool check_signals() {
    if (raised_ || is_ending()) return false;
    const auto now = Clock::now();
    if (now - checked_ < kTimeBetweenSignals) return true;
    checked_ = now;
    return run([] { return true; });
  }
  // Throws what was raised, once: it holds the frames that it passes, which may hold this.
  void rethrow() {
    if (raised_) std::rethrow_exception(std::exchange(raised_, nullptr));
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::exception_ptr raised_;
  Clock::time_point checked_ = Clock::now();
};

void register_errors();

}  // namespace kakeya::python
