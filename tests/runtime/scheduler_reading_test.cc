// Embeddings and scores as requests: the numbers are those of the engine and of sessions alone,
// whatever decodes beside them, and what beside them decodes has the rows that it was promised.
#include <gmock/gmock.h>
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
#include "runtime/scheduled_requests.h"

namespace kakeya::test {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

Request decoding(std::uint64_t seed, std::int64_t max_tokens, std::int64_t draft_length = 5) {
  Request request;
  request.prompt = random_ids(20 + 7 * static_cast<std::size_t>(seed), seed);
  request.generate = generation(max_tokens, seed % 2 == 0 ? 0.0F : 1.0F);
  request.generate.draft_length = draft_length;
  return request;
}

Request embedding(const Ids& text, const EmbeddingOptions& options = {}) {
  return {.prompt = text, .embedding = options};
}

Request scoring(const Ids& text, const ScoreOptions& options) {
  return {.prompt = text, .score = options};
}

std::vector<TokenLogprobs> score_alone(Engine& engine,
                                       const Ids& text,
                                       const ScoreOptions& options) {
  const auto session = engine.create_session().value();
  const auto first = text.begin() + options.first;
  EXPECT_TRUE(session->append({text.begin(), first}).has_value());
  return session->score({first, text.end()}, options.top_logprobs).value();
}

// Runs all; results in the order of the requests.
std::vector<RequestResult> results_of(Scheduler& scheduler, const std::vector<Request>& requests) {
  std::vector<RequestResult> results(requests.size());
  int ended = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request request = requests[i];
    request.on_end = [&, i](RequestId, const RequestResult& result) {
      EXPECT_TRUE(result.status.has_value()) << result.status.error().message();
      results[i] = result;
      ++ended;
    };
    EXPECT_TRUE(scheduler.add(std::move(request)).has_value());
  }
  run_all(scheduler);
  EXPECT_EQ(ended, static_cast<int>(requests.size()));
  return results;
}

// The ids of all that decode, beside the vectors and scores of those that do not.
void expect_as_alone(Engine& engine, Scheduler& scheduler, const std::vector<Request>& requests) {
  const std::vector<RequestResult> results = results_of(scheduler, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    SCOPED_TRACE("request " + std::to_string(i));
    std::vector<TokenId> ids;
    std::vector<float> vector;
    std::vector<TokenLogprobs> scores;
    if (request.embedding) {
      vector = engine.embed(request.prompt, *request.embedding).value();
    } else if (request.score) {
      scores = score_alone(engine, request.prompt, *request.score);
    } else {
      ids = answer_alone(engine, request);
    }
    EXPECT_EQ(results[i].generated.ids, ids);
    EXPECT_EQ(results[i].embedding, vector);
    EXPECT_EQ(results[i].scores, scores);
  }
}

// One decodes in a session whose rows are restored, which makes codes in the same passes.
TEST(SchedulerReading, NumbersAndIdsAreThoseOfEachAlone) {
  for (const char* draft : {"none", "auto"}) {
    SCOPED_TRACE(draft);
    const auto engine = open_shared_engine({.name = "cpu"}, draft);
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 4; ++i) requests.push_back(decoding(i, 40));
    requests[1].session = engine->session_options();
    requests[1].session->window = 64;
    requests[1].session->evicted_full = Evicted::kRestore;
    requests[1].session->evicted_sliding = Evicted::kRestore;
    requests.push_back(embedding(random_ids(300, 11)));
    requests.push_back(embedding(random_ids(300, 11), {.pooling = Pooling::kMean}));
    requests.push_back(embedding(random_ids(1, 12), {.normalize = false}));
    requests.push_back(scoring(random_ids(300, 13), {.top_logprobs = 3}));
    requests.push_back(scoring(random_ids(300, 14), {.first = 70}));
    const auto scheduler =
        engine->create_scheduler({.prefill_rows = 24, .max_logit_rows = 32}).value();
    expect_as_alone(*engine, *scheduler, requests);
  }
}

TEST(SchedulerReading, NumbersComeOutOfADevicesMemory) {
  for (const char* network : {"gemma4-e", "qwen3-tied"}) {
    EngineOptions options = {.model_dir = network_dir(network),
                             .backend = "guarded",
                             .num_threads = 1,
                             .session = {.context = 64}};
    options.draft.source = "none";
    const auto engine = open_engine(options);
    const auto text = [](TokenId first) {
      Ids ids(21);
      for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = first + static_cast<TokenId>(i * i % 40);
      return ids;
    };
    Request answer = decoding(1, 12, 0);
    answer.prompt = text(9);
    const std::vector<Request> requests = {
        answer, embedding(text(3)), embedding(text(4), {.pooling = Pooling::kMean}),
        scoring(text(5), {.first = 4, .top_logprobs = 2}), scoring(text(6), {})};
    const auto scheduler =
        engine->create_scheduler({.prefill_rows = 8, .max_logit_rows = 6}).value();
    expect_as_alone(*engine, *scheduler, requests);
  }
}

TEST(SchedulerReading, NumbersDoNotDependOnTheRowsOfAPass) {
  const auto engine = open_shared_engine({.name = "cpu"}, "auto");
  const std::vector<Request> requests = {decoding(1, 60), embedding(random_ids(120, 3)),
                                         scoring(random_ids(110, 4), {.first = 5})};
  for (const SchedulerOptions& options :
       {SchedulerOptions{.max_rows = 1, .max_logit_rows = 1},
        SchedulerOptions{.max_rows = 7, .prefill_rows = 3, .max_logit_rows = 2},
        SchedulerOptions{.max_sequences = 1}, SchedulerOptions{.max_rows = 2048}}) {
    SCOPED_TRACE(options.max_rows);
    const auto scheduler = engine->create_scheduler(options).value();
    expect_as_alone(*engine, *scheduler, requests);
  }
}

// Rows of passes are counted, and everybody who decodes has a token of each of them.
TEST(SchedulerReading, WhatDecodesHasItsRowInPassesOfTheRowsPromised) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  for (const bool scores : {false, true}) {
    const auto scheduler = engine->create_scheduler({.prefill_rows = 16}).value();
    constexpr std::int64_t kDecoding = 8;
    for (std::uint64_t i = 0; i < kDecoding; ++i) ASSERT_OK(scheduler->add(decoding(i, 900, 0)));
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(scheduler->step().value());
    bool ended = false;
    Request request = scores ? scoring(random_ids(500, 9), {}) : embedding(random_ids(500, 9));
    request.on_end = [&](RequestId, const RequestResult&) { ended = true; };
    ASSERT_OK(scheduler->add(std::move(request)));
    std::int64_t most = 0;
    std::int64_t rows = 0;
    while (!ended) {
      const SchedulerStatistics before = scheduler->statistics();
      ASSERT_TRUE(scheduler->step().value());
      const SchedulerStatistics after = scheduler->statistics();
      EXPECT_EQ(after.passes - before.passes, 1);
      EXPECT_EQ(after.tokens - before.tokens, kDecoding);
      most = std::max(most, after.prompt_rows - before.prompt_rows);
      rows += after.prompt_rows - before.prompt_rows;
    }
    EXPECT_EQ(most, 16);
    EXPECT_EQ(rows, 500);
  }
}

// Drafts leave room to what is scored.
TEST(SchedulerReading, DraftsDoNotStarveWhatIsScored) {
  const auto engine = open_shared_engine({.name = "cpu"}, "auto");
  const auto scheduler = engine->create_scheduler({.max_logit_rows = 32}).value();
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_OK(scheduler->add(decoding(i, 900, 15)));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(scheduler->step().value());
  bool ended = false;
  Request request = scoring(random_ids(160, 9), {});
  request.on_end = [&](RequestId, const RequestResult&) { ended = true; };
  ASSERT_OK(scheduler->add(std::move(request)));
  int passes = 0;
  for (; !ended && passes < 200; ++passes) ASSERT_TRUE(scheduler->step().value());
  EXPECT_LE(passes, 160 / 16 + 1);
}

// How a request ended that was to go on for long, and whether all of its bytes came back.
void expect_end(const Request& request, StatusCode code, bool cancels) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({.max_rows = 8, .max_logit_rows = 4}).value();
  results_of(*scheduler, {embedding(random_ids(64, 1))});  // the workspace has what it needs
  const std::uint64_t before = engine->footprint().total_reserved();
  std::vector<RequestResult> ends;
  Request copy = request;
  copy.on_end = [&](RequestId, const RequestResult& result) { ends.push_back(result); };
  // From here on, so that some steps come before it on a busy machine, too.
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
  if (!cancels) copy.deadline = deadline;
  const RequestId id = scheduler->add(std::move(copy)).value();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(scheduler->step().value());
  EXPECT_GT(engine->footprint().total_reserved(), before);
  EXPECT_EQ(scheduler->statistics().running, 1);
  if (cancels) {
    ASSERT_OK(scheduler->cancel(id));
  }
  while (!cancels && Clock::now() < deadline) continue;
  const std::int64_t rows = scheduler->statistics().prompt_rows;
  EXPECT_FALSE(scheduler->step().value());
  EXPECT_EQ(scheduler->statistics().prompt_rows, rows);
  ASSERT_EQ(ends.size(), 1U);
  ASSERT_FALSE(ends[0].status.has_value());
  EXPECT_EQ(ends[0].status.error().code(), code);
  EXPECT_TRUE(ends[0].embedding.empty());
  EXPECT_TRUE(ends[0].scores.empty());
  EXPECT_EQ(engine->footprint().total_reserved(), before);
}

TEST(SchedulerReading, CancelledInTheMiddleGivesItsBytesBack) {
  expect_end(embedding(random_ids(900, 5)), StatusCode::kCancelled, true);
  expect_end(scoring(random_ids(900, 5), {}), StatusCode::kCancelled, true);
}

TEST(SchedulerReading, ADeadlineEndsItInTheMiddle) {
  expect_end(embedding(random_ids(900, 5)), StatusCode::kDeadlineExceeded, false);
  expect_end(scoring(random_ids(900, 5), {}), StatusCode::kDeadlineExceeded, false);
}

TEST(SchedulerReading, WhoeverHasTheHigherPriorityStartsFirst) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({.max_sequences = 1}).value();
  std::vector<int> order;
  double waited = 0.0;
  for (int i = 0; i < 3; ++i) {
    Request request = i == 1 ? decoding(1, 3) : embedding(random_ids(40, 2));
    request.priority = i;
    request.on_end = [&order, &waited, i](RequestId, const RequestResult& result) {
      order.push_back(i);
      EXPECT_GT(result.queue_seconds, waited);
      waited = result.queue_seconds;
      EXPECT_EQ(result.first_token_seconds > 0.0, i == 1);
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  run_all(*scheduler);
  EXPECT_EQ(order, (std::vector<int>{2, 1, 0}));
}

// Whoever has ten requests waiting has one turn before somebody else's first one.
TEST(SchedulerReading, ClientsTakeTurns) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({.max_sequences = 1}).value();
  std::string order;
  const auto add = [&](const std::string& client, int count, int priority = 0) {
    for (int i = 0; i < count; ++i) {
      Request request = embedding(random_ids(20, 2));
      request.client = client;
      request.priority = priority;
      request.on_end = [&order, client](RequestId, const RequestResult&) { order += client; };
      ASSERT_OK(scheduler->add(std::move(request)));
    }
  };
  add("a", 5);
  add("b", 2);
  while (order.size() < 2) ASSERT_OK(scheduler->step());
  add("c", 2);
  add("d", 1, 1);
  run_all(*scheduler);
  EXPECT_EQ(order, "abdabcacaa");
}

// Rows that others have run are no rows to read; those that it runs are good for others.
TEST(SchedulerReading, EqualTextsAreRunByEachOfThem) {
  EngineOptions options = demo_options("none");
  options.prompt_cache_bytes = std::uint64_t{1} << 30;
  const auto engine = open_engine(options);
  const auto scheduler = engine->create_scheduler({}).value();
  const Ids text = random_ids(300, 6);
  Request answer = decoding(1, 5);
  answer.prompt = text;
  Request in_default_session = embedding(text);
  in_default_session.session = engine->session_options();
  const std::vector<Request> requests = {answer, embedding(text), in_default_session,
                                         scoring(text, {.first = 200})};
  for (int i = 0; i < 2; ++i) expect_as_alone(*engine, *scheduler, requests);
}

// Three answers that grow, and one whose text is read, in the order of the vector.
std::vector<Request> growing_requests(const Engine& engine, bool scores) {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 3; ++i) requests.push_back(decoding(i, 200));
  const Ids text = random_ids(400, 8);
  requests.push_back(scores ? scoring(text, {.first = 200})
                            : embedding(text, {.pooling = Pooling::kMean}));
  for (Request& request : requests) {
    request.session = engine.session_options();
    request.session->grow = true;
  }
  return requests;
}

// Answers that grow take the memory of who came last, which begins again later.
TEST(SchedulerReading, WhatIsPreemptedBeginsAgain) {
  constexpr SchedulerOptions kPasses{.max_rows = 64, .prefill_rows = 4, .max_logit_rows = 16};
  for (const bool scores : {false, true}) {
    EngineOptions options = restoring_options("none");
    std::vector<RequestResult> expected;
    {
      const auto engine = open_engine(options);
      const auto scheduler = engine->create_scheduler(kPasses).value();
      const std::vector<Request> requests = growing_requests(*engine, scores);
      for (const Request& request : requests) ASSERT_OK(scheduler->add(request));
      ASSERT_TRUE(scheduler->step().value());
      EXPECT_EQ(scheduler->statistics().running, 4);
      const std::uint64_t begun = engine->footprint().total_reserved();
      run_all(*scheduler);
      const auto session = engine->create_session(*requests[0].session).value();
      const std::uint64_t fresh = session->footprint().total_reserved();
      ASSERT_OK(session->append(random_ids(100, 1)));
      ASSERT_OK(session->prefill());
      options.memory_limit = begun + session->footprint().total_reserved() - fresh;
      expected = results_of(*scheduler, requests);
      EXPECT_EQ(scheduler->statistics().preemptions, 0);
    }
    const auto engine = open_engine(options);
    const auto scheduler = engine->create_scheduler(kPasses).value();
    const auto results = results_of(*scheduler, growing_requests(*engine, scores));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(results[i].generated.ids, expected[i].generated.ids);
      EXPECT_EQ(results[i].embedding, expected[i].embedding);
      EXPECT_EQ(results[i].scores, expected[i].scores);
    }
    EXPECT_GT(scheduler->statistics().preemptions, 0);
  }
}

TEST(SchedulerReading, WhatCannotBeReadIsRefusedInOneLine) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({}).value();
  const auto refused = [&](Request request, StatusCode code, const std::string& part) {
    const auto added = scheduler->add(std::move(request));
    ASSERT_FALSE(added.has_value()) << part;
    EXPECT_EQ(added.error().code(), code) << part;
    EXPECT_THAT(added.error().message(), HasSubstr(part));
    EXPECT_EQ(added.error().message().find('\n'), std::string::npos);
  };
  using enum StatusCode;
  refused(embedding(Ids(32769, 5)), kInvalidArgument,
          "must have 1 to 32768 tokens for this model but has 32769");
  refused(embedding({}), kInvalidArgument, "the prompt must have a token");
  refused(embedding({4096}), kInvalidArgument, "token id must be 0 to 4095 but is 4096");
  refused(embedding({5}, {.pooling = static_cast<Pooling>(7)}), kInvalidArgument,
          "EmbeddingOptions::pooling is no way");
  refused(scoring(Ids(1025, 5), {}), kResourceExhausted, "context of 1024 tokens is exceeded");
  refused(scoring({5}, {}), kInvalidArgument, "a text to score must have 2 tokens or more");
  for (const std::int64_t first : {-1, 0, 3}) {
    refused(scoring({5, 6, 7}, {.first = first}), kInvalidArgument,
            "ScoreOptions::first must be 1 to 2, for a text of 3 tokens, but is");
  }
  refused(scoring({5, 6}, {.top_logprobs = 21}), kInvalidArgument, "ScoreOptions::top_logprobs");
  Request both = embedding({5, 6});
  both.score = ScoreOptions{};
  refused(both, kInvalidArgument, "Request::embedding or Request::score");
  EXPECT_EQ(scheduler->statistics().waiting, 0);
}

}  // namespace
}  // namespace kakeya::test
