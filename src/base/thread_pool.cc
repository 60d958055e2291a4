#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/control_group.h"

namespace kakeya {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kOpen = std::uint64_t{1} << 31;
constexpr std::uint64_t kInsideMask = kOpen - 1;
constexpr int kJobShift = 32;

// How long an idle worker spins before it sleeps in the kernel. Longer than the serial stretches of
// a decode step (microseconds), short enough to give the CPU back between steps.
constexpr auto kSpinTime = std::chrono::microseconds(100);

// The time that moving a thread to another CPU and back may cost (two calls, two changes of
// context).
constexpr auto kMovingTime = std::chrono::microseconds(20);

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until `done` holds or the time is over; returns whether it holds.
template <typename Done>
bool spin_until(std::chrono::nanoseconds time, Done&& done) {
  const auto end = Clock::now() + time;
  while (true) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause_cpu();
    }
    if (Clock::now() >= end) return done();
  }
}

// How long the last items of others may still take when `items` of one's own took `time`: a thread
// that is not ready by then has lost its CPU.
std::chrono::nanoseconds patience_after(Clock::duration time, std::int64_t items) {
  return 2 * time / items + kMovingTime;
}

}  // namespace

struct alignas(64) ThreadPool::Worker {
  std::atomic<ThreadNumber> id{0};  // the system's number of the thread
  std::atomic<int> cpu{-1};         // where it is pinned; -1: nowhere
  std::atomic<bool> inside{false};  // may be in a job
  bool away = false;                // on a CPU that was lent to it; the caller's note
  std::thread thread;
};

int available_cpus() {
  const auto allowed = static_cast<int>(allowed_cpus().size());
  const int cpus =
      allowed > 0 ? allowed : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  // Threads that spin beyond a quota only use it up.
  const double quota = control_group_limits().cpus;
  return quota < cpus ? std::max(1, static_cast<int>(quota)) : cpus;
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options) {
  const int num_threads = options.num_threads > 0 ? options.num_threads : available_cpus();
  const std::vector<int> cpus = allowed_cpus();
  // Only a pool that takes every CPU knows where its threads belong: with fewer threads two
  // processes would pin theirs to the same CPUs, with more they would stack up.
  const bool pin = options.pin && num_threads == static_cast<int>(cpus.size());
  if (pin) spare_cpu_ = cpus[0];
  for (int i = 1; i < num_threads; ++i) {
    auto worker = std::make_unique<Worker>();
    if (pin) worker->cpu = cpus[static_cast<std::size_t>(i)];
    try {
      worker->thread = std::thread([this, &self = *worker] { worker_loop(self); });
    } catch (const std::system_error&) {
      break;  // the system gives no more threads: go on with those there are
    }
    workers_.push_back(std::move(worker));
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  state_.fetch_add(std::uint64_t{1} << kJobShift);
  state_.notify_all();
  for (const std::unique_ptr<Worker>& worker : workers_) worker->thread.join();
}

// Returns how many items this thread ran.
std::int64_t ThreadPool::work() {
  for (std::int64_t done = 0;; ++done) {
    const std::int64_t item = next_item_.fetch_add(1, std::memory_order_relaxed);
    if (item >= count_) return done;
    function_(context_, item);
  }
}

void ThreadPool::run(std::int64_t count, Function function, void* context) {
  const std::lock_guard lock(caller_mutex_);
  function_ = function;
  context_ = context;
  count_ = count;
  caller_.store(this_thread(), std::memory_order_relaxed);
  next_item_.store(0, std::memory_order_relaxed);
  const std::uint64_t job = (state_.load(std::memory_order_relaxed) >> kJobShift) + 1;
  state_.store((job << kJobShift) | kOpen);
  if (sleepers_.load() > 0) state_.notify_all();
  const Clock::time_point start = Clock::now();
  const std::int64_t items = work();
  const Clock::duration time = Clock::now() - start;
  // Close the job, then wait for the workers that are still inside it.
  std::uint64_t state = state_.fetch_and(~kOpen) & ~kOpen;
  const auto empty = [&] {
    state = state_.load(std::memory_order_acquire);
    return (state & kInsideMask) == 0;
  };
  if (empty()) return;
  if (items > 0 && spare_cpu_.load() >= 0) {
    if (spin_until(patience_after(time, items), empty)) return;
    lend_cpu();
    while (!empty()) state_.wait(state);
    take_workers_home();
  } else {
    while (!spin_until(kSpinTime, empty)) state_.wait(state);
  }
}

// Lets the workers that are still inside the job go on where this thread runs, which must sleep
// then.
void ThreadPool::lend_cpu() {
  const int cpu = current_cpu();
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (!worker->inside.load()) continue;
    worker->away = true;
    pin_to(worker->id.load(), cpu);
  }
}

void ThreadPool::take_workers_home() {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker->away) pin_to(worker->id.load(), worker->cpu.load());
    worker->away = false;
  }
}

// Gives the caller of the job the CPU of this worker, which goes to the one that no worker has:
// there the caller has lost its time to another process, or soon will.
void ThreadPool::change_places_with_caller(Worker& self) {
  const int cpu = self.cpu.load();
  if (!move_to(caller_.load(std::memory_order_relaxed), cpu)) return;
  self.cpu = spare_cpu_.exchange(cpu);
  pin_to(self.id.load(), self.cpu.load());
}

bool ThreadPool::enter_job(std::uint64_t seen_job) {
  std::uint64_t state = state_.load(std::memory_order_acquire);
  while ((state & kOpen) != 0 && (state >> kJobShift) != seen_job) {
    if (state_.compare_exchange_weak(state, state + 1)) return true;
  }
  return false;
}

void ThreadPool::worker_loop(Worker& self) {
  self.id = this_thread();
  if (const int cpu = self.cpu.load(); cpu >= 0) pin_to(self.id.load(), cpu);
  std::uint64_t seen_job = 0;
  std::uint64_t state = 0;
  const auto new_job = [&] {
    state = state_.load(std::memory_order_acquire);
    return (state >> kJobShift) != seen_job;
  };
  while (true) {
    while (!spin_until(kSpinTime, new_job)) {
      sleepers_.fetch_add(1);
      // The state is read again after announcing the sleep, or a job published in between would
      // find no sleeper to wake.
      if (!new_job()) state_.wait(state);
      sleepers_.fetch_sub(1);
    }
    if (stopping_.load()) return;
    self.inside = true;
    if (!enter_job(seen_job)) {
      self.inside = false;
      seen_job = state >> kJobShift;
      continue;
    }
    seen_job = state_.load(std::memory_order_acquire) >> kJobShift;
    const Clock::time_point start = Clock::now();
    const std::int64_t items = work();
    const Clock::duration time = Clock::now() - start;
    self.inside = false;
    if ((state_.fetch_sub(1) & (kInsideMask | kOpen)) == 1) state_.notify_all();
    const auto closed = [&] { return new_job() || (state & kOpen) == 0; };
    if (items > 0 && spare_cpu_.load() >= 0 && !spin_until(patience_after(time, items), closed)) {
      change_places_with_caller(self);
    }
  }
}

}  // namespace kakeya
