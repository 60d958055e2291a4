// Admission by bytes: what can never fit is refused at once, what may fit later waits, and nothing
// is given up for a request that does not start.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"
#include "runtime/scheduled_requests.h"

namespace kakeya::test {
namespace {

constexpr SchedulerOptions kSmall{.max_rows = 64, .max_logit_rows = 8};

// With room for so many sessions beside the scheduler's passes.
EngineOptions with_room(double sessions, std::uint64_t prompt_cache_bytes = 0) {
  EngineOptions options = restoring_options("none");
  options.prompt_cache_bytes = prompt_cache_bytes;
  const auto engine = Engine::open(options).value();
  const auto scheduler = engine->create_scheduler(kSmall).value();
  const auto session = engine->create_session().value();
  const std::uint64_t of_session = session->footprint().total_reserved();
  options.memory_limit = engine->footprint().total_reserved() - of_session +
                         static_cast<std::uint64_t>(sessions * static_cast<double>(of_session));
  return options;
}

Request request_of(std::uint64_t seed, std::int64_t max_tokens, std::size_t prompt = 30) {
  Request request;
  request.prompt = random_ids(prompt, seed);
  request.generate = {.max_tokens = max_tokens, .ignore_model_stop_ids = true};
  return request;
}

// One whose session takes several times as much as the engine's.
Request large_request(const Engine& engine) {
  Request large = request_of(1, 5);
  large.session = engine.session_options();
  large.session->context = engine.max_context();
  large.session->kv_full = KvType::kF32;
  return large;
}

TEST(SchedulerMemory, WhatCanNeverFitIsRefusedAtOnceWithItsNeed) {
  const auto engine = Engine::open(with_room(2.5)).value();
  const auto scheduler = engine->create_scheduler(kSmall).value();
  const auto added = scheduler->add(large_request(*engine));
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(added.error().message().find("kv_full"), std::string::npos) << added.error().message();
  EXPECT_EQ(scheduler->statistics().waiting, 0);
}

// Neither what the caller's sessions hold nor another scheduler's ends a queue.
TEST(SchedulerMemory, WhatOthersHoldIsWaitedFor) {
  const auto engine = Engine::open(with_room(2.5)).value();
  const auto scheduler = engine->create_scheduler(kSmall).value();
  auto first = engine->create_session().value();
  auto second = engine->create_session().value();
  int ended = 0;
  for (std::uint64_t i = 0; i < 10; ++i) {
    Request request = request_of(i, 4);
    request.on_end = [&](RequestId, const RequestResult& result) {
      EXPECT_TRUE(result.status.has_value()) << result.status.error().message();
      ++ended;
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(scheduler->step().value());
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(scheduler->statistics().waiting, 10);
  first.reset();
  for (int i = 0; i < 1000 && scheduler->step().value(); ++i) continue;
  EXPECT_EQ(ended, 10);
}

TEST(SchedulerMemory, TwoSchedulersWaitForOneAnother) {
  const auto engine = Engine::open(with_room(2.5)).value();
  const auto first = engine->create_scheduler(kSmall).value();
  const auto second = engine->create_scheduler(kSmall).value();
  int ended = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    Request request = request_of(i, 4);
    request.on_end = [&](RequestId, const RequestResult& result) {
      EXPECT_TRUE(result.status.has_value()) << result.status.error().message();
      ++ended;
    };
    ASSERT_OK((i % 2 == 0 ? first : second)->add(std::move(request)));
  }
  for (int i = 0; i < 1000 && ended < 20; ++i) {
    ASSERT_TRUE(first->step().has_value());
    ASSERT_TRUE(second->step().has_value());
  }
  EXPECT_EQ(ended, 20);
}

// Memory that a scheduler's passes need beyond those of others is free again when it has gone.
TEST(SchedulerMemory, GivesTheRoomOfItsPassesBack) {
  const auto engine = Engine::open(restoring_options("none")).value();
  const auto session = engine->create_session().value();
  const auto plain = [&] {
    EXPECT_TRUE(session->truncate(0).has_value());
    EXPECT_TRUE(session->append(random_ids(20, 3)).has_value());
    return session->generate({.max_tokens = 20, .ignore_model_stop_ids = true}).value().ids;
  };
  const std::vector<TokenId> expected = plain();
  const std::uint64_t before = engine->footprint().total_reserved();
  {
    const auto small = engine->create_scheduler(kSmall).value();
    const std::uint64_t with_small = engine->footprint().total_reserved();
    auto large = engine->create_scheduler({.max_rows = 4096, .max_logit_rows = 512}).value();
    ASSERT_OK(large->add(request_of(1, 4)));
    while (large->step().value()) continue;
    const std::uint64_t with_large = engine->footprint().total_reserved();
    large.reset();
    EXPECT_GT(with_large, engine->footprint().total_reserved());
    EXPECT_EQ(engine->footprint().total_reserved(), std::max(with_small, before));
    EXPECT_EQ(plain(), expected);
    ASSERT_OK(small->add(request_of(2, 4)));
    while (small->step().value()) continue;
  }
  EXPECT_EQ(engine->footprint().total_reserved(), before);
  EXPECT_EQ(plain(), expected);
}

// A thread that waits is woken when there is room.
TEST(SchedulerMemory, WaitingEndsWhenThereIsRoom) {
  const auto engine = Engine::open(with_room(1.5)).value();
  const auto scheduler = engine->create_scheduler(kSmall).value();
  auto session = engine->create_session().value();
  ASSERT_OK(scheduler->add(request_of(1, 4)));
  ASSERT_TRUE(scheduler->step().value());
  const auto soon = [] { return std::chrono::steady_clock::now() + std::chrono::milliseconds(30); };
  EXPECT_FALSE(scheduler->wait(soon()));
  session.reset();
  EXPECT_TRUE(scheduler->wait(soon()));
}

// The one in front needs more than is free, so the cache stays as it is until that would help.
TEST(SchedulerMemory, ThePromptCacheGivesWayOnlyIfThatMakesRoom) {
  const auto engine = EngineImpl::open(with_room(3.2, std::uint64_t{1} << 30)).value();
  const auto scheduler = engine->create_scheduler(kSmall).value();
  ASSERT_OK(scheduler->add(request_of(7, 3, 600)));
  while (scheduler->step().value()) continue;
  const std::uint64_t kept = engine->prompt_cache()->bytes();
  ASSERT_GT(kept, 0U);
  // Room is left for one session, or a little less.
  auto first = engine->create_session().value();
  auto second = engine->create_session().value();
  Request large = request_of(1, 3);
  large.session = engine->session_options();
  large.session->context = 1500;
  int ended = 0;
  large.on_end = [&](RequestId, const RequestResult& result) {
    EXPECT_TRUE(result.status.has_value());
    ++ended;
  };
  ASSERT_EQ(engine->prompt_cache()->bytes(), kept);
  ASSERT_OK(scheduler->add(std::move(large)));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(scheduler->step().value());
  EXPECT_EQ(scheduler->statistics().running, 0);
  EXPECT_EQ(engine->prompt_cache()->bytes(), kept);
  second.reset();
  for (int i = 0; i < 100 && scheduler->step().value(); ++i) continue;
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace kakeya::test
