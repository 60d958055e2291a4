// Lets several runs go on side by side, one at a time, so that all of them meet the same moments of
// a machine that others use too: whoever is furthest behind goes next.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/clock.h"

namespace kakeya::bench {

// Each run has a thread of its own, which calls begin(), then pass() whenever it got on, and end().
// Between a return and the next call it is the only one that runs.
class Turns {
 public:
  explicit Turns(std::size_t runs) : runs_(runs) {}

  // Waits for the first turn of a run, numbered from 0.
  void begin(std::size_t run);
  // Notes how far the run is and waits until no other one is further behind.
  void pass(std::size_t run, std::int64_t progress);
  // Makes way for good; the run's thread must call it, failed or not.
  void end(std::size_t run);

  // How long the run has had the turn since its first pass(). Ask when all have ended.
  double seconds(std::size_t run) const { return runs_[run].seconds; }

 private:
  struct Run {
    std::int64_t progress = -1;
    bool ended = false;
    double seconds = 0.0;
  };

  bool has_turn(std::size_t run) const;
  void wait(std::size_t run, std::unique_lock<std::mutex>& lock);
  void note_time(std::size_t run);

  std::vector<Run> runs_;
  Stopwatch turn_;  // since the present turn began
  std::mutex mutex_;
  std::condition_variable passed_;
};

}  // namespace kakeya::bench
