#include "bindings/calls.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "bindings/errors.h"

namespace kakeya::python {
namespace {

// Code of Python that sleeps longer is left behind: it has no GIL while it sleeps.
constexpr std::chrono::seconds kTimeForPython(1);

struct Registry {
  std::mutex mutex;  // nobody asks for the GIL with it
  std::condition_variable changed;
  int running = 0;    // threads in a Call, and workers
  int in_python = 0;  // of those, the ones in code of Python
  std::map<const Worker*, std::function<void()>> workers;
  std::thread::id ender;            // the thread that ends the interpreter
  std::atomic<bool> ending{false};  // changes with the mutex
  bool ended = false;               // nobody runs any more
  int forks = 0;                    // that led to this process, while it had the package
};

// Threads that stay use it until the process is gone.
Registry* the_registry = new Registry;

Registry& registry() {
  return *the_registry;
}

// Those of this thread that are open.
thread_local int calls = 0;
thread_local int unlocked_scopes = 0;

void change(int running, int in_python) {
  Registry& all = registry();
  {
    const std::scoped_lock lock(all.mutex);
    all.running += running;
    all.in_python += in_python;
  }
  all.changed.notify_all();
}

[[noreturn]] void stay() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// True if the interpreter ends, by another thread; counts this one out then.
bool leave_if_ending() {
  Registry& all = registry();
  {
    const std::scoped_lock lock(all.mutex);
    if (!all.ending || all.ender == std::this_thread::get_id()) return false;
    --all.running;
  }
  all.changed.notify_all();
  return true;
}

// In a process that was forked, which has none of the other threads. Those may have had the lock of
// the old registry, or wait for its changes.
void begin_anew() {
  auto* const anew = new Registry;
  anew->forks = registry().forks + 1;
  anew->running = calls > 0 ? 1 : 0;
  anew->in_python = anew->running;
  the_registry = anew;
}

// Stops what runs and waits for it; with the GIL, which it gives away meanwhile.
void end_calls() {
  const nb::gil_scoped_release unlocked;
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  all.ender = std::this_thread::get_id();
  all.ending = true;
  for (const auto& [worker, stop] : all.workers) stop();
  const int own = calls > 0 ? 1 : 0;
  const auto have_ended = [&] { return all.running <= own; };
  if (!all.changed.wait_for(lock, kTimeForPython, have_ended)) {
    all.changed.wait(lock, [&] { return have_ended() || all.running <= all.in_python; });
  }
  all.ended = true;
}

}  // namespace

Call::Call() {
  if (calls > 0) {
    ++calls;
    return;
  }
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  if (!all.ending) {
    ++all.running;
    ++all.in_python;
    ++calls;
    return;
  }
  const bool ends_here = all.ender == std::this_thread::get_id();
  lock.unlock();
  if (ends_here) {
    throw Raised{Error(StatusCode::kFailedPrecondition,
                       "the interpreter ends: the package takes no more calls")};
  }
  PyEval_SaveThread();
  stay();
}

Call::~Call() {
  if (--calls == 0) change(-1, -1);
}

Unlocked::Unlocked() : state_(PyEval_SaveThread()) {
  ++unlocked_scopes;
  change(0, -1);
}

Unlocked::~Unlocked() {
  if (--unlocked_scopes == 0 && leave_if_ending()) stay();
  PyEval_RestoreThread(state_);
  change(0, 1);
}

Locked::Locked() {
  change(0, 1);
}

Locked::~Locked() {
  change(0, -1);
}

Worker::Worker(std::function<void()> stop) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  ++all.running;
  all.workers.emplace(this, std::move(stop));
}

void Worker::begin() {
  ++calls;
  ++unlocked_scopes;
}

void Worker::finish() {
  Registry& all = registry();
  {
    const std::scoped_lock lock(all.mutex);
    if (all.workers.erase(this) == 0) return;
    --all.running;
  }
  all.changed.notify_all();
}

Birthplace::Birthplace() : forks_(registry().forks) {}

bool Birthplace::is_here() const {
  return forks_ == registry().forks;
}

void Birthplace::require_here() const {
  if (is_here()) return;
  throw Raised{Error(StatusCode::kFailedPrecondition,
                     "the engine was opened before this process was forked: "
                     "open one in it, or have "
                     "multiprocessing spawn its processes")};
}

bool is_ending() {
  return registry().ending;
}

void run_unlocked(const std::function<void()>& clean) {
  const nb::gil_scoped_acquire locked;
  Registry& all = registry();
  const bool ended = [&] {
    const std::scoped_lock lock(all.mutex);
    if (!all.ended) ++all.running;
    return all.ended;
  }();
  if (ended) return clean();
  {
    const nb::gil_scoped_release unlocked;
    clean();
  }
  change(-1, 0);
}

void bind_calls(nb::module_& module) {
  pthread_atfork(nullptr, nullptr, &begin_anew);
  module.def("end_calls", &end_calls, "Stops what runs and waits for it; refuses later calls.");
  nb::module_::import_("atexit").attr("register")(module.attr("end_calls"));
}

}  // namespace kakeya::python
