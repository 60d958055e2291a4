// Every request ends within a bounded number of steps, at whatever limit of memory: none waits
// where nobody is there, and none keeps the others from going on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/scheduled_requests.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

struct Progress {
  int ended = 0;
  int answered = 0;
  std::int64_t steps = 0;
  std::int64_t prompt_rows = 0;
};

// Adds the requests that are not refused, and steps until all have ended, or it takes too long.
Progress run_to_the_end(Engine& engine,
                        const SchedulerOptions& options,
                        std::vector<Request> requests) {
  Progress progress;
  const auto scheduler = engine.create_scheduler(options);
  if (!scheduler) return progress;
  int added = 0;
  for (Request& request : requests) {
    request.on_end = [&](RequestId, const RequestResult& result) {
      ++progress.ended;
      if (result.status) ++progress.answered;
    };
    if ((*scheduler)->add(std::move(request)).has_value()) ++added;
  }
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (progress.ended < added && progress.steps < 3000) {
    EXPECT_TRUE((*scheduler)->wait(soon))
        << "nothing to step, and " << added - progress.ended << " requests wait";
    if (!(*scheduler)->step().value()) break;
    ++progress.steps;
  }
  EXPECT_EQ(progress.ended, added);
  progress.prompt_rows = (*scheduler)->statistics().prompt_rows;
  return progress;
}

EngineOptions growing_options(std::int64_t context) {
  EngineOptions options = restoring_options("none");
  options.session.context = context;
  options.session.max_rows = 64;
  options.session.grow = true;
  return options;
}

Request text_request(std::uint64_t seed, std::size_t prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt = random_ids(prompt, seed);
  request.generate = {.max_tokens = max_tokens, .ignore_model_stop_ids = true};
  return request;
}

// Limits from what an engine with such passes and one session takes up to room for some sessions
// more: these many.
std::vector<std::uint64_t> limits_of(const EngineOptions& options,
                                     const SchedulerOptions& passes,
                                     double sessions,
                                     int count) {
  const auto engine = Engine::open(options).value();
  const auto scheduler = engine->create_scheduler(passes).value();
  const std::uint64_t least = std::max(Engine::estimate(options).value().total_reserved(),
                                       engine->footprint().total_reserved());
  const auto session = engine->create_session().value();
  EXPECT_TRUE(session->append(random_ids(200, 1)).has_value());
  EXPECT_TRUE(session->prefill().has_value());
  const auto bytes = static_cast<double>(session->footprint().total_reserved());
  std::vector<std::uint64_t> limits;
  for (int i = 0; i < count; ++i) {
    limits.push_back(least + static_cast<std::uint64_t>(bytes * sessions * i / count));
  }
  return limits;
}

// An embedding makes the workspace grow, which the others had counted on as their own need.
TEST(SchedulerProgress, AWorkspaceThatGrewIsNotCountedTwice) {
  const SchedulerOptions passes{.max_rows = 64, .max_logit_rows = 8};
  const EngineOptions options = growing_options(512);
  int answered = 0;
  for (const std::uint64_t limit : limits_of(options, passes, 2.5, by_form(16, 200))) {
    EngineOptions limited = options;
    limited.memory_limit = limit;
    const auto engine = Engine::open(limited);
    ASSERT_OK(engine);
    std::vector<Request> requests;
    requests.push_back(text_request(1, 100, 1));
    requests.back().embedding = EmbeddingOptions{};
    for (std::uint64_t i = 2; i < 5; ++i) requests.push_back(text_request(i, 40, 5));
    SCOPED_TRACE(limit);
    answered += run_to_the_end(**engine, passes, std::move(requests)).answered;
  }
  EXPECT_GT(answered, 10);
}

// Near the context no margin keeps a request out that would take what another one lacks.
TEST(SchedulerProgress, WhoLacksMemoryGoesOnBeforeOthersAreLetIn) {
  const SchedulerOptions passes{.max_rows = 64, .prefill_rows = 64, .max_logit_rows = 8};
  const EngineOptions options = growing_options(256);
  int preemptions = 0;
  for (const std::uint64_t limit : limits_of(options, passes, 4.0, by_form(6, 400))) {
    EngineOptions limited = options;
    limited.memory_limit = limit;
    const auto engine = Engine::open(limited);
    ASSERT_OK(engine);
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 6; ++i) requests.push_back(text_request(i, 120 + 23 * i, 200));
    std::int64_t prompts = 0;
    for (const Request& request : requests) prompts += std::ssize(request.prompt);
    SCOPED_TRACE(limit);
    const Progress progress = run_to_the_end(**engine, passes, std::move(requests));
    // Rows that a request has run when it is preempted are run again, a few times at most.
    EXPECT_LT(progress.prompt_rows, 12 * prompts);
    if (progress.prompt_rows > prompts) ++preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace kakeya::test
