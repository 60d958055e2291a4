#include "service/grammar/compile_queue.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "service/grammar/background_worker.h"
#include "service/grammar/grammar_engine.h"

namespace kakeya::service {

CompileQueue::~CompileQueue() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void CompileQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool CompileQueue::is_busy() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(jobs_, [](const auto& entry) { return entry.second->is_running; });
}

std::shared_ptr<CompileQueue::Job> CompileQueue::join(const std::string& key,
                                                      bool is_small,
                                                      const std::string& client,
                                                      Compile compile) {
  const auto known = jobs_.find(key);
  if (known != jobs_.end()) return known->second;
  auto job = std::make_shared<Job>(
      Job{.compile = std::move(compile), .is_small = is_small, .turn = turns_.next(client)});
  jobs_.emplace(key, job);
  if (threads_.empty()) {
    for (const bool takes_large : {false, true}) {
      threads_.emplace_back([this, takes_large] { work(takes_large); });
    }
  }
  return job;
}

CompileQueue::Compiled CompileQueue::run(const std::string& key,
                                         bool is_small,
                                         const CompileTerms& terms,
                                         Compile compile) {
  std::unique_lock lock(mutex_);
  const auto job = join(key, is_small, terms.client, std::move(compile));
  ++job->waiting;
  changed_.notify_all();
  const auto is_over = [&] { return stopped_ || job->made.has_value(); };
  bool in_time = true;
  if (terms.deadline) {
    in_time = changed_.wait_until(lock, *terms.deadline, is_over);
  } else {
    changed_.wait(lock, is_over);
  }
  --job->waiting;
  if (job->made) return *job->made;
  if (job->waiting == 0 && !job->is_running) jobs_.erase(key);
  if (!in_time) {
    return error(StatusCode::kDeadlineExceeded, "the deadline is over before the form is compiled");
  }
  return error(StatusCode::kUnavailable, "the server is shutting down");
}

CompileQueue::Jobs::iterator CompileQueue::next(bool takes_large) {
  auto best = jobs_.end();
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    const bool may_run = !job->second->is_running && (takes_large || job->second->is_small);
    if (may_run && (best == jobs_.end() || job->second->turn < best->second->turn)) best = job;
  }
  return best;
}

void CompileQueue::work(bool takes_large) {
  become_less_urgent();
  std::unique_lock lock(mutex_);
  for (;;) {
    auto found = jobs_.end();
    changed_.wait(lock, [&] { return stopped_ || (found = next(takes_large)) != jobs_.end(); });
    if (stopped_) return;
    const std::string key = found->first;
    const std::shared_ptr<Job> job = found->second;
    job->is_running = true;
    turns_.begin(job->turn);
    lock.unlock();
    Compiled made = job->compile();
    lock.lock();
    job->made = std::move(made);
    jobs_.erase(key);
    changed_.notify_all();
  }
}

}  // namespace kakeya::service
