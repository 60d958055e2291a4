#include "bench/turns.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace kakeya::bench {
namespace {

TEST(Turns, WhoeverIsFurthestBehindGoesNextUntilAllHaveEnded) {
  constexpr std::int64_t kEnd = 12;
  const std::vector<std::int64_t> strides = {1, 5, 3};
  Turns turns(strides.size());
  std::vector<std::int64_t> progress(strides.size(), 0);
  std::vector<bool> ended(strides.size());
  std::vector<std::size_t> order;  // only whoever has the turn writes
  std::vector<std::thread> threads;
  for (std::size_t run = 0; run < strides.size(); ++run) {
    threads.emplace_back([&, run] {
      turns.begin(run);
      while (progress[run] < kEnd) {
        for (std::size_t other = 0; other < strides.size(); ++other) {
          EXPECT_TRUE(ended[other] || progress[run] <= progress[other]) << run << " " << other;
        }
        order.push_back(run);
        progress[run] += strides[run];
        turns.pass(run, progress[run]);
      }
      ended[run] = true;
      turns.end(run);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::size_t> expected = {0, 1, 2, 0, 0, 0, 2, 0, 0, 1,
                                             0, 2, 0, 0, 0, 2, 0, 1, 0};
  EXPECT_EQ(order, expected);
}

TEST(Turns, TimeIsThatOfTheOwnTurnsAfterTheFirst) {
  constexpr auto kTurn = std::chrono::milliseconds(20);
  constexpr int kRuns = 4;
  Turns turns(kRuns);
  const Stopwatch watch;
  std::vector<std::thread> threads;
  for (std::size_t run = 0; run < kRuns; ++run) {
    threads.emplace_back([&, run] {
      turns.begin(run);
      for (int i = 0; i < 3; ++i) {
        std::this_thread::sleep_for(kTurn);
        turns.pass(run, i);
      }
      turns.end(run);
    });
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0.0;
  for (std::size_t run = 0; run < kRuns; ++run) {
    EXPECT_GE(turns.seconds(run), 0.040) << run;  // two turns of 20 ms
    sum += turns.seconds(run);
  }
  EXPECT_LE(sum, watch.seconds());  // no moment is two runs'
}

}  // namespace
}  // namespace kakeya::bench
