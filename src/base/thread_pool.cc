#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

namespace kakeya {
namespace {

constexpr std::uint64_t kOpen = std::uint64_t{1} << 31;
constexpr std::uint64_t kInsideMask = kOpen - 1;
constexpr int kJobShift = 32;

// How long an idle worker spins before it sleeps in the kernel. Longer than the serial stretches of
// a decode step (microseconds), short enough to give the CPU back between steps.
constexpr auto kSpinTime = std::chrono::microseconds(100);

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until `done` holds or the time is over; returns whether it holds.
template <typename Done>
bool spin_until(Done&& done) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  while (true) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause_cpu();
    }
    if (std::chrono::steady_clock::now() >= end) return done();
  }
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  return cpus;
}

void pin_to(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // Failure (a cpuset that changed) costs speed only.
  ::pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

}  // namespace

int available_cpus() {
  const auto cpus = static_cast<int>(allowed_cpus().size());
  return cpus > 0 ? cpus : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options) {
  const int num_threads = options.num_threads > 0 ? options.num_threads : available_cpus();
  const std::vector<int> cpus = allowed_cpus();
  for (int i = 1; i < num_threads; ++i) {
    try {
      workers_.emplace_back([this] { worker_loop(); });
    } catch (const std::system_error&) {
      break;  // the system gives no more threads: go on with those there are
    }
    // With more threads than CPUs pinning would only stack them up.
    if (options.pin && num_threads <= static_cast<int>(cpus.size())) {
      pin_to(workers_.back(), cpus[static_cast<std::size_t>(i)]);
    }
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  state_.fetch_add(std::uint64_t{1} << kJobShift);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::work() {
  while (true) {
    const std::int64_t item = next_item_.fetch_add(1, std::memory_order_relaxed);
    if (item >= count_) return;
    function_(context_, item);
  }
}

void ThreadPool::run(std::int64_t count, Function function, void* context) {
  const std::lock_guard lock(caller_mutex_);
  function_ = function;
  context_ = context;
  count_ = count;
  next_item_.store(0, std::memory_order_relaxed);
  const std::uint64_t job = (state_.load(std::memory_order_relaxed) >> kJobShift) + 1;
  state_.store((job << kJobShift) | kOpen);
  if (sleepers_.load() > 0) state_.notify_all();
  work();
  // Close the job, then wait for the workers that are still inside it.
  std::uint64_t state = state_.fetch_and(~kOpen) & ~kOpen;
  const auto empty = [&] {
    state = state_.load(std::memory_order_acquire);
    return (state & kInsideMask) == 0;
  };
  while (!spin_until(empty)) state_.wait(state);
}

bool ThreadPool::enter_job(std::uint64_t seen_job) {
  std::uint64_t state = state_.load(std::memory_order_acquire);
  while ((state & kOpen) != 0 && (state >> kJobShift) != seen_job) {
    if (state_.compare_exchange_weak(state, state + 1)) return true;
  }
  return false;
}

void ThreadPool::worker_loop() {
  std::uint64_t seen_job = 0;
  std::uint64_t state = 0;
  const auto new_job = [&] {
    state = state_.load(std::memory_order_acquire);
    return (state >> kJobShift) != seen_job;
  };
  while (true) {
    while (!spin_until(new_job)) {
      sleepers_.fetch_add(1);
      // The state is read again after announcing the sleep, or a job published in between would
      // find no sleeper to wake.
      if (!new_job()) state_.wait(state);
      sleepers_.fetch_sub(1);
    }
    if (stopping_.load()) return;
    if (enter_job(seen_job)) {
      const std::uint64_t job = state_.load(std::memory_order_acquire) >> kJobShift;
      work();
      seen_job = job;
      if ((state_.fetch_sub(1) & (kInsideMask | kOpen)) == 1) state_.notify_all();
    } else {
      seen_job = state >> kJobShift;
    }
  }
}

}  // namespace kakeya
