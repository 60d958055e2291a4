// Preemption by priority: a request takes the place, or the memory, of one that runs and is of
// lower priority, which goes on later and gives what it would have given.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/scheduled_requests.h"

namespace kakeya::test {
namespace {

// Requests of one scheduler, by the order in which they end.
class Priorities : public testing::Test {
 protected:
  void open(std::int64_t max_sequences,
            std::uint64_t prompt_cache_bytes = 0,
            std::uint64_t memory_limit = std::uint64_t{1} << 40) {
    EngineOptions options = restoring_options("auto");
    options.session.grow = true;
    options.prompt_cache_bytes = prompt_cache_bytes;
    options.memory_limit = memory_limit;
    engine_ = open_engine(options);
    scheduler_ = engine_
                     ->create_scheduler(
                         {.max_sequences = max_sequences, .max_rows = 64, .max_logit_rows = 16})
                     .value();
  }
  static Request request_of(std::uint64_t seed, int priority, std::int64_t max_tokens = 60) {
    Request request;
    request.prompt = random_ids(150, seed);
    request.generate = generation(max_tokens);
    request.priority = priority;
    return request;
  }
  void add(Request request) {
    request.on_end = [this, index = asked_.size()](RequestId, const RequestResult& result) {
      EXPECT_TRUE(result.status.has_value()) << result.status.error().message();
      ended_.push_back(index);
      got_[index] = result.generated.ids;
    };
    asked_.push_back(request);
    got_.emplace_back();
    ASSERT_TRUE(scheduler_->add(std::move(request)).has_value());
  }
  // Steps until so many tokens were delivered.
  void run_until(std::int64_t tokens) {
    for (int i = 0; i < 1000 && scheduler_->statistics().tokens < tokens; ++i) {
      ASSERT_TRUE(scheduler_->step().value());
    }
  }
  void expect_answers() {
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      EXPECT_EQ(got_[i], answer_alone(*engine_, asked_[i])) << i;
    }
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Request> asked_;
  std::vector<Ids> got_;
  std::vector<std::size_t> ended_;
};

TEST_F(Priorities, AHigherOneTakesThePlaceOfTheLastOfTheLowest) {
  open(2);
  add(request_of(1, 0));
  add(request_of(2, -1));
  run_until(20);
  add(request_of(3, 5, 30));
  run_until(30);
  EXPECT_EQ(scheduler_->statistics().preemptions, 1);
  EXPECT_EQ(scheduler_->statistics().running, 2);
  run_all(*scheduler_);
  EXPECT_EQ(ended_.back(), 1U);
  EXPECT_EQ(scheduler_->statistics().preemptions, 1);
  expect_answers();
}

// Its place is taken until its time is over.
TEST_F(Priorities, TheTimeOfAPreemptedRequestGoesOn) {
  using std::chrono::milliseconds;
  open(1);
  std::optional<StatusCode> ended;
  Request low = request_of(1, 0);
  low.deadline = std::chrono::steady_clock::now() + milliseconds(400);
  low.on_end = [&ended](RequestId, const RequestResult& result) {
    ASSERT_FALSE(result.status.has_value());
    ended = result.status.error().code();
  };
  ASSERT_TRUE(scheduler_->add(std::move(low)).has_value());
  run_until(5);
  add(request_of(2, 1, 300));
  while (!ended && ended_.empty()) {
    ASSERT_TRUE(scheduler_->step().value());
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(scheduler_->statistics().preemptions, 1);
  EXPECT_EQ(ended, StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(ended_.empty());
  while (scheduler_->step().value()) {
  }
}

TEST_F(Priorities, EqualsWait) {
  open(1);
  add(request_of(1, 3));
  run_until(10);
  add(request_of(2, 3));
  add(request_of(3, 2));
  run_all(*scheduler_);
  EXPECT_EQ(ended_, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(scheduler_->statistics().preemptions, 0);
}

// The rows that it had run come back from the prompt cache, so that little of it is run again.
TEST_F(Priorities, APreemptedRequestGoesOnFromThePromptCache) {
  open(1, std::uint64_t{256} << 20);
  add(request_of(1, 0, 200));
  run_until(100);
  const std::int64_t rows = scheduler_->statistics().prompt_rows;
  EXPECT_EQ(rows, 150);
  add(request_of(2, 1, 5));
  run_all(*scheduler_);
  EXPECT_EQ(ended_, (std::vector<std::size_t>{1, 0}));
  EXPECT_EQ(scheduler_->statistics().preemptions, 1);
  EXPECT_LT(scheduler_->statistics().prompt_rows, rows + 150 + 20);
  expect_answers();
}

TEST_F(Priorities, AHigherOneTakesMemoryToo) {
  open(8);
  std::uint64_t of_session = 0;
  {
    const auto session = engine_->create_session().value();
    ASSERT_TRUE(session->append(random_ids(220, 1)).has_value());
    ASSERT_TRUE(session->prefill().has_value());
    of_session = session->footprint().total_reserved();
  }
  scheduler_.reset();
  const std::uint64_t fixed = engine_->footprint().total_reserved();
  open(8, 0, fixed + of_session * 5 / 2);
  for (std::uint64_t i = 0; i < 4; ++i) add(request_of(i, 0));
  run_until(20);
  const std::int64_t before = scheduler_->statistics().preemptions;
  ASSERT_GT(scheduler_->statistics().waiting, 0);
  add(request_of(21, 5, 10));
  run_until(45);
  EXPECT_GT(scheduler_->statistics().preemptions, before);
  run_all(*scheduler_);
  expect_answers();
}

}  // namespace
}  // namespace kakeya::test
