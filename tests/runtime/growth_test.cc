// Sessions that grow: what they take follows what they hold, and whoever finds no memory loses
// nothing.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "formats/scratch_files.h"
#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/scheduled_requests.h"

namespace kakeya::test {
namespace {

constexpr SchedulerOptions kSmallPasses{.max_rows = 64, .prefill_rows = 32, .max_logit_rows = 32};

SessionOptions growing(const Engine& engine) {
  SessionOptions options = engine.session_options();
  options.grow = true;
  return options;
}

std::uint64_t bytes(const Session& session) {
  return session.footprint().total_reserved();
}

TEST(Growth, TakesMemoryAsItFills) {
  const auto engine = open_engine(restoring_options("auto"));
  const auto whole = engine->create_session().value();
  const auto session = engine->create_session(growing(*engine)).value();
  const std::uint64_t at_first = bytes(*session);
  EXPECT_LT(at_first, bytes(*whole));
  std::uint64_t before = at_first;
  for (int i = 0; i < 3; ++i) {
    const auto ids = random_ids(100, static_cast<std::uint64_t>(i));
    ASSERT_OK(session->append(ids));
    ASSERT_OK(whole->append(ids));
    EXPECT_EQ(go_on(*session, generation(20)), go_on(*whole, generation(20)));
    EXPECT_GT(bytes(*session), before);
    before = bytes(*session);
  }
  EXPECT_LT(before, bytes(*whole));
}

TEST(Growth, ARefusedPassLeavesTheSessionAsItWas) {
  EngineOptions options = restoring_options("auto");
  const Stream expected = [&] {
    const auto engine = open_engine(options);
    const auto session = engine->create_session(growing(*engine)).value();
    EXPECT_TRUE(session->append(random_ids(50, 1)).has_value());
    Stream stream = go_on(*session, generation(200));
    // All that these two engines may have: the one session, and half of what it grew by.
    const auto fresh = engine->create_session(growing(*engine)).value();
    options.memory_limit =
        engine->footprint().total_reserved() - (bytes(*session) - bytes(*fresh)) / 2;
    return stream;
  }();
  const auto engine = open_engine(options);
  auto other = engine->create_session(growing(*engine)).value();
  const auto session = engine->create_session(growing(*engine)).value();
  ASSERT_OK(session->append(random_ids(50, 1)));
  std::vector<TokenId> ids;
  const auto refused = session->generate(generation(200), [&](const TokenEvent& token) {
    ids.push_back(token.id);
    return true;
  });
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
  ASSERT_LT(ids.size(), expected.ids.size());
  other.reset();
  const auto rest = session->generate(generation(200 - std::ssize(ids)));
  ASSERT_OK(rest);
  ids.insert(ids.end(), rest->ids.begin(), rest->ids.end());
  EXPECT_EQ(ids, expected.ids);
}

TEST(Growth, SnapshotsAreThoseOfSessionsThatDoNot) {
  const ScratchFolder scratch;
  const auto engine = open_engine(restoring_options("auto"));
  const auto whole = engine->create_session().value();
  ASSERT_OK(whole->append(random_ids(150, 4)));
  ASSERT_OK(whole->prefill());
  ASSERT_OK(whole->snapshot(scratch.path("session"), ""));
  const auto session = engine->create_session(growing(*engine)).value();
  ASSERT_OK(session->restore(scratch.path("session")));
  EXPECT_EQ(go_on(*session, generation(30)), go_on(*whole, generation(30)));
}

Request growing_request(const Engine& engine, std::uint64_t seed) {
  Request request;
  request.prompt = random_ids(20 + 5 * static_cast<std::size_t>(seed), seed);
  request.generate = {.max_tokens = 220 - 9 * static_cast<std::int64_t>(seed),
                      .sampling = {.temperature = seed % 2 == 0 ? 0.0F : 1.0F, .seed = seed},
                      .draft_length = 4,  // the clock decides nothing
                      .ignore_model_stop_ids = true,
                      .logprobs = seed % 3 == 0};
  request.session = growing(engine);
  return request;
}

// Five prompts fit, but not five answers: who came last waits, and goes on where it was.
TEST(Growth, WhoeverCameLastIsPreemptedAndLosesNothing) {
  constexpr std::uint64_t kRequests = 8;
  EngineOptions options = restoring_options("auto");
  std::vector<std::vector<TokenId>> expected;
  {
    const auto engine = open_engine(options);
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      expected.push_back(answer_alone(*engine, growing_request(*engine, i)));
    }
    const auto scheduler = engine->create_scheduler(kSmallPasses).value();
    const std::uint64_t beside = engine->footprint().total_reserved();
    const auto session = engine->create_session(growing(*engine)).value();
    const std::uint64_t at_first = bytes(*session);
    ASSERT_OK(session->append(random_ids(150, 1)));
    ASSERT_OK(session->prefill());
    options.memory_limit = beside + 5 * at_first + 4 * (bytes(*session) - at_first);
  }
  const auto engine = open_engine(options);
  const auto scheduler = engine->create_scheduler(kSmallPasses).value();
  std::vector<std::vector<TokenId>> streamed(kRequests);
  std::uint64_t ended = 0;
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    Request request = growing_request(*engine, i);
    request.on_token = [&, i](const TokenEvent& token) {
      streamed[i].push_back(token.id);
      return true;
    };
    request.on_end = [&, i](RequestId, const RequestResult& result) {
      EXPECT_TRUE(result.status.has_value()) << result.status.error().message();
      EXPECT_EQ(result.generated.ids, expected[i]) << i;
      EXPECT_EQ(streamed[i], expected[i]) << i;
      const std::size_t logprobs = i % 3 == 0 ? expected[i].size() : 0;
      EXPECT_EQ(result.generated.logprobs.size(), logprobs);
      ++ended;
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  for (int i = 0; i < 5000 && scheduler->step().value(); ++i) continue;
  EXPECT_EQ(ended, kRequests);
  EXPECT_GT(scheduler->statistics().preemptions, 0);
  EXPECT_EQ(scheduler->statistics().running, 0);
}

}  // namespace
}  // namespace kakeya::test
