// Requests that share passes get what sessions of their own would give them, id for id, whatever
// runs beside them.
#include "kakeya/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/scheduled_requests.h"
#include "runtime/session_modes.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

// A request of any kind, of an engine with so many ids.
Request random_request(std::uint64_t seed,
                       const std::vector<SessionMode>& modes,
                       bool drafting,
                       std::int64_t vocab_size) {
  SequenceRng random(seed);
  Request request;
  request.prompt = random_ids(1 + random.below(90), seed + 1);
  for (TokenId& id : request.prompt) id %= static_cast<TokenId>(vocab_size);
  request.generate = {.max_tokens = static_cast<std::int64_t>(random.below(40)),
                      .sampling = {.seed = seed},
                      .ignore_model_stop_ids = random.below(2) == 0};
  if (random.below(2) == 0) {
    request.generate.sampling.temperature = 1.0F;
    request.generate.sampling.top_p = 0.95F;
    request.generate.sampling.repetition_penalty = random.below(3) == 0 ? 1.2F : 1.0F;
  }
  const std::int64_t lengths[] = {kAutoDraftLength, 0, 1, 5, 15};
  request.generate.draft_length = drafting ? lengths[random.below(5)] : 0;
  request.session = modes[random.below(modes.size())].options;
  request.session->drafting = drafting && random.below(4) > 0;
  request.session->grow = random.below(2) == 0;
  request.priority = static_cast<int>(random.below(3));
  return request;
}

void expect_solo_answers(Engine& engine,
                         const std::vector<SessionMode>& modes,
                         std::uint64_t seed,
                         int count,
                         const std::string& what) {
  SequenceRng random(seed);
  const SchedulerOptions options{.max_sequences = 1 + static_cast<std::int64_t>(random.below(24)),
                                 .max_rows = 32 + static_cast<std::int64_t>(random.below(96)),
                                 .prefill_rows = 1 + static_cast<std::int64_t>(random.below(64)),
                                 .max_logit_rows = 2 + static_cast<std::int64_t>(random.below(30))};
  const auto scheduler = engine.create_scheduler(options).value();
  std::map<RequestId, Request> requests;
  std::map<RequestId, std::vector<TokenId>> streamed;
  std::map<RequestId, RequestResult> results;
  int added = 0;
  int steps = 0;
  bool busy = true;
  while (added < count || busy) {
    ASSERT_LT(++steps, 20000) << what;
    // Some at once, others while those run.
    while (added < count && (added < 3 || random.below(4) == 0)) {
      Request request = random_request(seed * 1000 + static_cast<std::uint64_t>(added++), modes,
                                       random.below(4) > 0, engine.vocab_size());
      Request sent = request;
      const auto id = std::make_shared<RequestId>(0);
      const std::size_t stop_after = random.below(6) == 0 ? 1 + random.below(9) : 1000;
      sent.on_token = [&streamed, id, stop_after](const TokenEvent& token) {
        streamed[*id].push_back(token.id);
        return streamed[*id].size() < stop_after;
      };
      sent.on_end = [&results](RequestId ended, const RequestResult& result) {
        results.emplace(ended, result);
      };
      *id = scheduler->add(std::move(sent)).value();
      requests.emplace(*id, std::move(request));
    }
    if (random.below(12) == 0 && !requests.empty()) {
      const auto chosen =
          std::next(requests.begin(), static_cast<std::ptrdiff_t>(random.below(requests.size())));
      if (random.below(3) == 0) static_cast<void>(scheduler->cancel(chosen->first));
    }
    busy = scheduler->step().value();
  }
  ASSERT_EQ(results.size(), requests.size()) << what;
  for (const auto& [id, request] : requests) {
    const RequestResult& result = results.at(id);
    const std::vector<TokenId> expected = answer_alone(engine, request);
    const std::vector<TokenId>& got = result.generated.ids;
    EXPECT_EQ(got, streamed[id]) << what;
    ASSERT_LE(got.size(), expected.size()) << what << ", request " << id;
    const std::vector<TokenId> beginning(
        expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(got.size()));
    ASSERT_EQ(got, beginning) << what << ", request " << id;
    const bool whole = result.status && result.generated.stop_reason != StopReason::kCallback;
    if (whole) {
      EXPECT_EQ(got.size(), expected.size()) << what << ", request " << id;
    }
    if (!result.status) {
      EXPECT_EQ(result.status.error().code(), StatusCode::kCancelled);
    }
  }
  EXPECT_EQ(scheduler->statistics().running, 0);
  EXPECT_EQ(scheduler->statistics().waiting, 0);
}

TEST(SchedulerTest, SixtyFourRaggedRequestsGetTheAnswersOfSessionsOfTheirOwn) {
  bool first = true;  // of the machine's units, the fastest
  for (const BackendChoice& choice : selectable_backends()) {
    const auto engine = open_shared_engine(choice);
    const int fast = first ? 64 : by_form(4, 64);
    expect_solo_answers(*engine, shared_modes(), 1, in_plain_loops(choice) ? by_form(1, 3) : fast,
                        choice.label());
    if (!in_plain_loops(choice)) first = false;
  }
}

TEST(SchedulerTest, RandomSchedulesGiveSoloAnswers) {
#ifdef KAKEYA_SANITIZED
  const auto last_schedule = static_cast<std::uint64_t>(by_form(6, 22));
#else
  const auto last_schedule = static_cast<std::uint64_t>(by_form(22, 2002));
#endif
  const auto engine = open_shared_engine({.name = "cpu"});
  for (std::uint64_t seed = 2; seed < last_schedule; ++seed) {
    expect_solo_answers(*engine, shared_modes(), seed, 12, "schedule " + std::to_string(seed));
  }
}

// Many more of a network whose windows are eight tokens long, so that rings wrap all the time.
TEST(SchedulerTest, RandomSchedulesOfASmallNetworkGiveSoloAnswers) {
#ifdef KAKEYA_SANITIZED
  const auto last_schedule = static_cast<std::uint64_t>(by_form(20, 500));
#else
  const auto last_schedule = std::uint64_t{500};
#endif
  const auto engine =
      Engine::open({.model_dir = std::string(KAKEYA_TEST_DATA) + "/networks/gemma4-moe",
                    .num_threads = 1,
                    .draft = {.source = "ngram"}})
          .value();
  // Not all formats: its heads are small, and it has no projection.
  std::vector<SessionMode> modes = shared_modes();
  std::erase_if(modes, [&](const SessionMode& mode) {
    return !engine->create_session(mode.options).has_value();
  });
  ASSERT_GE(modes.size(), 5U);
  for (std::uint64_t seed = 0; seed < last_schedule; ++seed) {
    expect_solo_answers(*engine, modes, seed, 5, "schedule " + std::to_string(seed));
  }
}

// With default options, from an engine's first request on, and no other answers.
TEST(SchedulerTest, DraftsWithAutomaticLength) {
  for (const char* draft : {"auto", "ngram"}) {
    const auto engine = open_shared_engine({.name = "cpu"}, draft);
    const auto scheduler = engine->create_scheduler({}).value();
    std::map<RequestId, Request> requests;
    std::map<RequestId, GenerateResult> results;
    for (std::uint64_t i = 0; i < 6; ++i) {
      Request request;
      request.prompt = random_ids(20 + i, i);
      request.generate = {.max_tokens = 60, .ignore_model_stop_ids = true};
      Request sent = request;
      sent.on_end = [&](RequestId id, const RequestResult& result) {
        results[id] = result.generated;
      };
      requests.emplace(scheduler->add(std::move(sent)).value(), std::move(request));
    }
    while (scheduler->step().value()) {
    }
    EXPECT_GT(scheduler->statistics().drafted, 0) << draft;
    for (const auto& [id, request] : requests) {
      EXPECT_GT(results[id].drafted, 0) << draft << ", request " << id;
      EXPECT_EQ(results[id].ids, answer_alone(*engine, request)) << draft << ", request " << id;
    }
  }
}

TEST(SchedulerTest, AShortPromptDoesNotWaitForALongOne) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({.max_rows = 64, .prefill_rows = 16}).value();
  std::vector<std::string> order;
  const auto request_of = [&](std::size_t prompt, const char* name) {
    Request request;
    request.prompt = random_ids(prompt, prompt);
    request.generate = {.max_tokens = 3, .ignore_model_stop_ids = true};
    request.on_end = [&order, name](RequestId, const RequestResult&) { order.emplace_back(name); };
    return request;
  };
  ASSERT_OK(scheduler->add(request_of(1000, "long")));
  ASSERT_TRUE(scheduler->step().value());
  ASSERT_OK(scheduler->add(request_of(20, "short")));
  while (scheduler->step().value()) {
  }
  EXPECT_EQ(order, (std::vector<std::string>{"short", "long"}));
}

// Their passes have taps, though nobody drafts.
TEST(SchedulerTest, RestoredRowsWithoutDraftsGetSoloAnswers) {
  for (const char* projection : {"aux", "context"}) {
    EngineOptions options = demo_options("none");
    options.projection = std::string(KAKEYA_DEMO_MODEL "/projections/") + projection;
    options.session.window = 64;
    options.session.evicted_full = Evicted::kRestore;
    const auto engine = Engine::open(options).value();
    const auto scheduler = engine->create_scheduler({}).value();
    std::vector<Request> requests;
    std::vector<std::vector<TokenId>> answers(4);
    for (std::uint64_t i = 0; i < answers.size(); ++i) {
      Request request;
      request.prompt = random_ids(200, i);
      request.generate = {.max_tokens = 5, .ignore_model_stop_ids = true};
      requests.push_back(request);
      request.on_end = [&answers, i](RequestId, const RequestResult& result) {
        answers[i] = result.generated.ids;
      };
      ASSERT_OK(scheduler->add(std::move(request)));
    }
    while (scheduler->step().value()) {
    }
    for (std::size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i], answer_alone(*engine, requests[i])) << projection << ", " << i;
    }
  }
}

// And a session beside it, which takes turns with its passes.
TEST(SchedulerTest, TakesRequestsFromSeveralThreads) {
  const auto engine = open_shared_engine({.name = "cpu"});
  const auto scheduler = engine->create_scheduler({.max_sequences = 6}).value();
  constexpr int kThreads = 3;
  constexpr int kRequests = 5;
  std::atomic<int> ended{0};
  std::vector<std::vector<TokenId>> answers(kThreads * kRequests);
  const auto request_of = [&](std::size_t number) {
    Request request;
    request.prompt = random_ids(20 + number, number + 1);
    request.generate = {.max_tokens = 15, .draft_length = 3, .ignore_model_stop_ids = true};
    return request;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int r = 0; r < kRequests; ++r) {
        const auto number = static_cast<std::size_t>(t * kRequests + r);
        Request request = request_of(number);
        request.on_end = [&, number](RequestId, const RequestResult& result) {
          answers[number] = result.generated.ids;
          ++ended;
        };
        const RequestId id = scheduler->add(std::move(request)).value();
        if (r == 2) static_cast<void>(scheduler->cancel(id));
        EXPECT_GE(scheduler->statistics().running, 0);
      }
    });
  }
  std::vector<TokenId> beside;
  threads.emplace_back([&] { beside = answer_alone(*engine, request_of(0)); });
  while (ended < kThreads * kRequests) ASSERT_TRUE(scheduler->step().has_value());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(beside, answer_alone(*engine, request_of(0)));
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (i % kRequests != 2) {
      EXPECT_EQ(answers[i], answer_alone(*engine, request_of(i))) << i;
    }
  }
}

TEST(SchedulerTest, WhatDoesNotFitWaits) {
  EngineOptions options = restoring_options("none");
  {
    const auto engine = Engine::open(options).value();
    const auto scheduler = engine->create_scheduler({.max_rows = 64, .max_logit_rows = 8}).value();
    const auto session = engine->create_session().value();
    // Room for two sessions.
    options.memory_limit =
        engine->footprint().total_reserved() + session->footprint().total_reserved();
  }
  const auto engine = Engine::open(options).value();
  const auto scheduler = engine->create_scheduler({.max_rows = 64, .max_logit_rows = 8}).value();
  int ended = 0;
  for (std::uint64_t i = 0; i < 6; ++i) {
    Request request;
    request.prompt = random_ids(30, i);
    request.generate = {.max_tokens = 10, .ignore_model_stop_ids = true};
    request.on_end = [&](RequestId, const RequestResult& result) {
      EXPECT_TRUE(result.status.has_value());
      EXPECT_EQ(result.generated.ids.size(), 10U);
      ++ended;
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  ASSERT_TRUE(scheduler->step().value());
  EXPECT_EQ(scheduler->statistics().running, 2);
  EXPECT_EQ(scheduler->statistics().waiting, 4);
  while (scheduler->step().value()) {
  }
  EXPECT_EQ(ended, 6);
}

TEST(SchedulerTest, DeadlinesAndBadRequestsEndInOneLine) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  EXPECT_EQ(engine->create_scheduler({.max_sequences = 0}).error().message(),
            "SchedulerOptions::max_sequences must be 1 to 1024 but is 0");
  const auto scheduler = engine->create_scheduler({.max_sequences = 1, .max_waiting = 1}).value();
  EXPECT_EQ(scheduler->add({}).error().message(), "the prompt must have a token");
  Request request;
  request.prompt = {1, -3};
  EXPECT_EQ(scheduler->add(request).error().code(), StatusCode::kInvalidArgument);
  request.prompt = std::vector<TokenId>(100000, 1);
  EXPECT_EQ(scheduler->add(request).error().code(), StatusCode::kResourceExhausted);
  request.prompt = {1, 3};
  request.deadline = std::chrono::steady_clock::now();
  StatusCode ended{};
  request.on_end = [&](RequestId, const RequestResult& result) {
    ended = result.status.error().code();
  };
  const RequestId id = scheduler->add(request).value();
  ASSERT_OK(scheduler->add(request));
  EXPECT_EQ(scheduler->add(request).error().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(scheduler->step().value());
  EXPECT_EQ(ended, StatusCode::kDeadlineExceeded);
  EXPECT_EQ(scheduler->cancel(id).error().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kakeya::test
