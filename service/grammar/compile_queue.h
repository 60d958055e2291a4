// Who compiles when: clients take turns, small grammars never wait for large ones, and nobody waits
// longer than his deadline.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fair_turns.h"
#include "kakeya/status.h"
#include "service/grammar/compile_terms.h"

namespace kakeya::service {

class CompiledGrammar;

// Thread-safe. Two threads compile, less urgent than passes; one of them takes small grammars only.
// What is being compiled cannot be stopped: who waited is told when his time is over, and what
// comes of it is kept for the next one who asks.
class CompileQueue {
 public:
  using Compiled = Result<std::shared_ptr<const CompiledGrammar>>;
  using Compile = std::function<Compiled()>;

  CompileQueue() = default;
  // As stop(). Waits for what is being compiled.
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // The result of `compile`, which must not throw; those who ask for one key while it is waited for
  // share it. Errors: kDeadlineExceeded, kUnavailable behind stop(), those of `compile`.
  Compiled run(const std::string& key, bool is_small, const CompileTerms& terms, Compile compile);

  // Tells all who wait that nothing comes, and later ones, too.
  void stop();
  bool is_busy() const;

 private:
  struct Job {
    Compile compile;
    bool is_small = false;
    std::uint64_t turn = 0;
    int waiting = 0;  // who wait for it
    bool is_running = false;
    std::optional<Compiled> made = {};
  };
  using Jobs = std::map<std::string, std::shared_ptr<Job>>;

  std::shared_ptr<Job> join(const std::string& key,
                            bool is_small,
                            const std::string& client,
                            Compile compile);
  void work(bool takes_large);
  // The job whose turn it is; the end: there is none.
  Jobs::iterator next(bool takes_large);

  mutable std::mutex mutex_;  // of what is below
  std::condition_variable changed_;
  Jobs jobs_;  // by key; without those that are done
  FairTurns turns_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kakeya::service
