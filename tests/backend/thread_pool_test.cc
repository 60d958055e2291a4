// The pool runs every item once, from any number of callers, and does not collapse when another
// process takes a core.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace kakeya {
namespace {

using Clock = std::chrono::steady_clock;

TEST(ThreadPool, RunsEveryItemExactlyOnceUnderStress) {
  ThreadPool pool({.num_threads = 4, .pin = false});
  std::vector<std::atomic<int>> runs(1000);
  for (int round = 0; round < 2000; ++round) {
    const auto count = static_cast<std::int64_t>(round % 1000);
    pool.parallel_for(count, [&](std::int64_t item) {
      runs[static_cast<std::size_t>(item)].fetch_add(1, std::memory_order_relaxed);
    });
    for (std::int64_t item = 0; item < count; ++item) {
      ASSERT_EQ(runs[static_cast<std::size_t>(item)].exchange(0), 1) << "round " << round;
    }
  }
}

TEST(ThreadPool, MakesTheItemsResultsVisibleToTheCaller) {
  ThreadPool pool({.num_threads = 2});
  std::vector<std::int64_t> values(777);
  for (std::int64_t round = 1; round < 3000; ++round) {
    pool.parallel_for(777, [&](std::int64_t item) {
      values[static_cast<std::size_t>(item)] = item * round;  // plain memory
    });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}),
              round * 777 * 776 / 2);
  }
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool({.num_threads = 2});
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than workers spin
    std::atomic<int> sum{0};
    pool.parallel_for(64, [&](std::int64_t) { ++sum; });
    ASSERT_EQ(sum, 64);
  }
}

TEST(ThreadPool, ServesSeveralCallersInTurn) {
  ThreadPool pool({.num_threads = 3, .pin = false});
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> total{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        std::atomic<std::int64_t> sum{0};
        pool.parallel_for(100, [&](std::int64_t item) { sum += item; });
        total += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 500 * 4950);
}

// Seconds that 200 loops of 32 items of about 20 us take.
double measure_loops(ThreadPool& pool) {
  const Clock::time_point begin = Clock::now();
  for (int loop = 0; loop < 200; ++loop) {
    pool.parallel_for(32, [](std::int64_t) {
      volatile float x = 1.0F;
      for (int i = 0; i < 5000; ++i) x = x * 1.0001F;
    });
  }
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// With a barrier that everybody must reach, a loop would wait a scheduler slice (milliseconds) for
// the worker that lost its core: 200 loops of 0.3 ms would take ten times as long. Here the loops
// may lose the stolen half of the machine and some more, for the machine is shared with others.
TEST(ThreadPool, DoesNotCollapseBesideAHog) {
  const int cpus = available_cpus();
  if (cpus < 2) GTEST_SKIP() << "needs two CPUs";
  ThreadPool pool({.num_threads = 2});
  double alone = 1e9;
  double beside = 1e9;
  // In turn, and the best of each: other processes of the machine come and go.
  for (int pass = 0; pass < 5; ++pass) {
    alone = std::min(alone, measure_loops(pool));
    std::atomic<bool> stop{false};
    std::thread hog([&] {
      volatile std::uint64_t x = 0;
      while (!stop.load(std::memory_order_relaxed)) x = x + 1;
    });
    beside = std::min(beside, measure_loops(pool));
    stop = true;
    hog.join();
  }
  EXPECT_LT(beside, 6.0 * alone) << "alone " << alone << " s, beside a hog " << beside << " s";
}

}  // namespace
}  // namespace kakeya
