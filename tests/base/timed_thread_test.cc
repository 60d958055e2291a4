// Work that may not come back, and those who wait for it.
#include "base/timed_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace kakeya {
namespace {

using Caller = TimedThread::Caller;
using Outcome = TimedThread::Outcome;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kLong(20);
constexpr milliseconds kShort(30);

// Work that does not come back until it is let go.
struct Hanging {
  std::shared_ptr<std::atomic<bool>> goes = std::make_shared<std::atomic<bool>>(false);

  void operator()(Caller&) const {
    while (!*goes) std::this_thread::sleep_for(milliseconds(1));
  }
};

TEST(TimedThread, DoesWorkOfSeveralCallers) {
  TimedThread thread;
  std::atomic<int> done = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        EXPECT_EQ(thread.run([&](Caller&) { ++done; }, {.patience = kLong}), Outcome::kDone);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, 400);
}

TEST(TimedThread, RunsPartsInTheThreadThatWaits) {
  TimedThread thread;
  const auto here = std::this_thread::get_id();
  int parts = 0;
  const auto work = [&](Caller& caller) {
    EXPECT_NE(std::this_thread::get_id(), here);
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(caller.run([&] { parts += std::this_thread::get_id() == here ? 1 : 0; }));
    }
  };
  EXPECT_EQ(thread.run(work, {.patience = kLong}), Outcome::kDone);
  EXPECT_EQ(parts, 10);
}

TEST(TimedThread, GoesOnWithoutWorkThatDoesNotComeBack) {
  TimedThread thread;
  const Hanging hanging;
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(thread.run(hanging, {.patience = kShort}), Outcome::kLate);
  // The next one does not even wait for its turn, until the first has come back.
  EXPECT_EQ(thread.run([](Caller&) {}, {.patience = kLong}), Outcome::kLate);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kLong / 2);
  *hanging.goes = true;
  while (thread.run([](Caller&) {}, {.patience = kLong}) != Outcome::kDone) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(TimedThread, ADeadlineIsOneOfAllParts) {
  TimedThread thread;
  const auto work = [](Caller& caller) {
    while (caller.run([] {})) std::this_thread::sleep_for(milliseconds(1));
  };
  const auto deadline = TimedThread::Clock::now() + kShort;
  EXPECT_EQ(thread.run(work, {.patience = kLong, .deadline = deadline}), Outcome::kLate);
}

TEST(TimedThread, StopsWaitingWhenItIsTold) {
  TimedThread thread;
  const Hanging hanging;
  int asked = 0;
  EXPECT_EQ(thread.run(hanging, {.patience = kLong, .goes_on = [&] { return ++asked < 3; }}),
            Outcome::kStopped);
  // Who comes next waits for it: it need not be stuck.
  std::thread other([&] {
    std::this_thread::sleep_for(kShort);
    *hanging.goes = true;
  });
  EXPECT_EQ(thread.run([](Caller&) {}, {.patience = kLong}), Outcome::kDone);
  other.join();
}

// Neither the program's end nor an object's waits for a disk that is gone.
TEST(TimedThread, LeavesAStuckThreadToItself) {
  const Hanging hanging;
  const auto begun = std::chrono::steady_clock::now();
  {
    TimedThread thread;
    EXPECT_EQ(thread.run(hanging, {.patience = kShort}), Outcome::kLate);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kLong / 2);
  *hanging.goes = true;
}

}  // namespace
}  // namespace kakeya
