// A thread for work that may take long and nobody should wait for: less urgent than all others.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace kakeya::service {

// Lets other threads of the process come first, as far as the system knows of urgency.
void become_less_urgent();

// Thread-safe. The thread begins with the first job.
class BackgroundWorker {
 public:
  BackgroundWorker() = default;
  // Waits for the job that runs; others are left out.
  ~BackgroundWorker();
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // Jobs run one after the other, in order. They must not throw.
  void post(std::function<void()> job);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace kakeya::service
