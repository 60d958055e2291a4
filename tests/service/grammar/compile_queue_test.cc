// Turns of clients at the compiler, deadlines, and an end at any time.
#include "service/grammar/compile_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "service/grammar/grammar_test.h"

namespace kakeya::service {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;
using testing::ElementsAre;

class CompileQueues : public GrammarTest {
 protected:
  // Asks, on a thread of its own, for a job that notes its name once the gate is open.
  void ask(const std::string& key, const std::string& client, bool is_small = false) {
    threads_.emplace_back([=, this] {
      queue_.run(key, is_small, {.client = client}, [=, this]() -> CompileQueue::Compiled {
        while (!open_) std::this_thread::sleep_for(1ms);
        const std::lock_guard lock(mutex_);
        done_.push_back(key);
        return error(StatusCode::kInvalidArgument, "{}", key);
      });
    });
    std::this_thread::sleep_for(20ms);  // so that the next one comes later
  }
  void finish() {
    open_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  std::atomic<bool> open_ = false;
  std::mutex mutex_;
  std::vector<std::string> done_;
  std::vector<std::thread> threads_;
  CompileQueue queue_;
};

TEST_F(CompileQueues, ClientsTakeTurns) {
  for (const char* key : {"a1", "a2", "a3", "a4"}) ask(key, "ann");
  ask("b1", "ben");
  ask("b2", "ben");
  finish();
  EXPECT_THAT(done_, ElementsAre("a1", "a2", "b1", "a3", "b2", "a4"));
}

TEST_F(CompileQueues, SmallOnesDoNotWaitForLargeOnes) {
  ask("large", "ann");
  const auto small = queue_.run("small", true, {.client = "ben", .deadline = Steady::now() + 60s},
                                [] { return CompileQueue::Compiled(nullptr); });
  EXPECT_TRUE(small.has_value());
  EXPECT_TRUE(queue_.is_busy());
  finish();
}

TEST_F(CompileQueues, NobodyWaitsBeyondHisDeadline) {
  ask("first", "ann");
  const auto never = []() -> CompileQueue::Compiled {
    ADD_FAILURE() << "nobody waits for it any more";
    return nullptr;
  };
  const auto late =
      queue_.run("late", false, {.client = "ben", .deadline = Steady::now() + 30ms}, never);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code(), StatusCode::kDeadlineExceeded);
  // Nor for one that is being compiled.
  const auto running = queue_.run("first", false, {.deadline = Steady::now() + 30ms}, never);
  EXPECT_EQ(running.error().code(), StatusCode::kDeadlineExceeded);
  finish();
  EXPECT_THAT(done_, ElementsAre("first"));
}

TEST_F(CompileQueues, WhoAsksForTheSameSharesIt) {
  ask("same", "ann");
  ask("same", "ben");
  finish();
  EXPECT_THAT(done_, ElementsAre("same"));
}

TEST_F(CompileQueues, StoppingTellsAllWhoWait) {
  ask("running", "ann");
  std::thread waiting([this] {
    const auto told =
        queue_.run("waiting", false, {}, [] { return CompileQueue::Compiled(nullptr); });
    ASSERT_FALSE(told.has_value());
    EXPECT_EQ(told.error().code(), StatusCode::kUnavailable);
  });
  std::this_thread::sleep_for(20ms);
  queue_.stop();
  waiting.join();
  finish();
}

}  // namespace
}  // namespace kakeya::service
