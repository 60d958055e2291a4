// A pool for parallel loops inside one operation. Work is handed out dynamically, item by item, and
// the caller works too, so a thread that lost its CPU to another process delays at most the item it
// holds: there is no barrier that everybody has to reach. And it does not hold that item for long:
// a thread that has nothing left to do gives it its own CPU (docs/cpu-backend.md, "A busy
// neighbour").
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/cpu_affinity.h"

namespace kakeya {

struct ThreadPoolOptions {
  int num_threads = 0;  // including the caller; 0: one for each CPU this process may use
  // Where there is a thread for each CPU this process may use, workers stay on one each; the caller
  // may run on any.
  bool pin = true;
};

// How many CPUs this process may use at a time: those it may run on, and no more than the quota of
// its control group, rounded down.
int available_cpus();

class ThreadPool {
 public:
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(item) once for each item 0 <= item < count, on any thread, in any order, and returns
  // when all are done. Does not allocate. Callers on several threads take turns; body must not call
  // parallel_for.
  template <typename Body>
  void parallel_for(std::int64_t count, Body&& body) {
    if (count <= 1 || workers_.empty()) {
      for (std::int64_t item = 0; item < count; ++item) body(item);
      return;
    }
    using Plain = std::remove_reference_t<Body>;
    run(
        count, [](void* context, std::int64_t item) { (*static_cast<Plain*>(context))(item); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Function = void (*)(void* context, std::int64_t item);
  struct Worker;

  void run(std::int64_t count, Function function, void* context);
  std::int64_t work();
  void worker_loop(Worker& self);
  bool enter_job(std::uint64_t seen_job);
  void lend_cpu();
  void take_workers_home();
  void change_places_with_caller(Worker& self);

  // The job: written by the caller while it is closed, read by workers that entered it.
  Function function_ = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<ThreadNumber> caller_{0};  // the thread that runs the job
  alignas(64) std::atomic<std::int64_t> next_item_{0};

  // job number << 32 | open << 31 | workers inside. One word, so that a worker can only enter a job
  // that is still open and the caller waits only for workers that did.
  alignas(64) std::atomic<std::uint64_t> state_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};

  // The CPU that is no worker's, for as long as workers are pinned; else -1.
  std::atomic<int> spare_cpu_{-1};

  std::mutex caller_mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace kakeya
