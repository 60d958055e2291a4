// Requests that begin alike share what they begin with, also while it is being run.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/scheduled_requests.h"
#include "runtime/session_modes.h"

namespace kakeya::test {
namespace {

using Prompt = std::vector<TokenId>;

Prompt first_of(const Prompt& text, std::size_t count) {
  return Prompt(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count));
}

// The first `common` tokens of `text` and `own` others behind them.
Prompt leaving(const Prompt& text, std::size_t common, std::size_t own, std::uint64_t seed) {
  Prompt prompt = first_of(text, common);
  const Prompt tail = random_ids(own, seed);
  prompt.insert(prompt.end(), tail.begin(), tail.end());
  return prompt;
}

Request asking(Prompt prompt, std::uint64_t seed, std::int64_t max_tokens = 12) {
  Request request;
  request.prompt = std::move(prompt);
  request.generate = {.max_tokens = max_tokens,
                      .sampling = {.temperature = seed % 2 == 0 ? 1.0F : 0.0F, .seed = seed},
                      .draft_length = static_cast<std::int64_t>(seed % 3),
                      .ignore_model_stop_ids = true};
  return request;
}

// A scheduler with the requests it was given, and what became of them.
class Requests {
 public:
  Requests(Engine& engine, const SchedulerOptions& options)
      : engine_(engine), scheduler_(engine.create_scheduler(options).value()) {}

  RequestId add(const Request& request) {
    Request sent = request;
    sent.on_end = [this](RequestId id, const RequestResult& result) {
      results_.emplace(id, result);
    };
    const RequestId id = scheduler_->add(std::move(sent)).value();
    requests_.emplace(id, request);
    return id;
  }
  void run() {
    int steps = 0;
    while (scheduler_->step().value()) ASSERT_LT(++steps, 10000);
  }
  // Expects the solo answers of all that were not cancelled; returns how many those were.
  int expect_solo_answers(const std::string& what) {
    int whole = 0;
    for (const auto& [id, request] : requests_) {
      const RequestResult& result = results_.at(id);
      if (!result.status) continue;
      EXPECT_EQ(result.generated.ids, answer_alone(engine_, request)) << what << ", request " << id;
      ++whole;
    }
    return whole;
  }
  Scheduler& scheduler() { return *scheduler_; }
  SchedulerStatistics statistics() const { return scheduler_->statistics(); }
  const RequestResult& result(RequestId id) const { return results_.at(id); }

 private:
  Engine& engine_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<RequestId, Request> requests_;
  std::map<RequestId, RequestResult> results_;
};

TEST(SchedulerSharing, SixteenEqualPromptsCostOnePrefill) {
  EngineOptions options = demo_options("auto");
  options.session.context = 2048;
  const auto engine = open_engine(options);
  Requests requests(*engine, {});
  const Prompt prompt = random_ids(2000, 7);
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 16; ++i) ids.push_back(requests.add(asking(prompt, i)));
  requests.run();
  const auto alone = engine->create_session().value();
  ASSERT_OK(alone->append(prompt));
  ASSERT_OK(alone->prefill());
  for (std::uint64_t i = 0; i < 16; ++i) {
    const auto session = alone->fork().value();
    EXPECT_EQ(requests.result(ids[i]).generated.ids,
              session->generate(asking(prompt, i).generate).value().ids);
  }
  // Each of the others runs its last token, for its logits.
  EXPECT_EQ(requests.statistics().prompt_rows, 2000 + 15);
  EXPECT_EQ(requests.statistics().shared_rows, 15 * 1999);
  EXPECT_EQ(requests.result(ids.front()).generated.prefill_tokens, 2000);
  EXPECT_EQ(requests.result(ids.back()).generated.prefill_tokens, 1);
  // Chunks of 64 rows, one more pass for the last tokens, and a pass for each token behind the
  // first.
  EXPECT_LE(requests.statistics().passes, 32 + 1 + 11);
}

TEST(SchedulerSharing, ScopesDoNotShare) {
  const auto engine = open_engine(demo_options("auto"));
  Requests requests(*engine, {});
  const Prompt prompt = random_ids(300, 7);
  for (const char* const scope : {"", "ann", "bob"}) {
    Request request = asking(prompt, 1);
    request.session = engine->session_options();
    request.session->cache_scope = scope;
    requests.add(request);
  }
  requests.run();
  EXPECT_EQ(requests.statistics().shared_rows, 0);
  EXPECT_EQ(requests.statistics().prompt_rows, 900);
}

// Chunks of 64 rows take the first one beyond the places where others leave it.
TEST(SchedulerSharing, RaggedPromptsRunWhatTheyHaveInCommonOnceInEveryMode) {
  const auto engine = open_shared_engine({.name = "cpu"});
  const Prompt text = random_ids(260, 11);
  for (const SessionMode& mode : shared_modes()) {
    Requests requests(*engine, {});
    std::uint64_t seed = 20;
    const auto add = [&](const Prompt& prompt) {
      Request request = asking(prompt, seed++);
      request.session = mode.options;
      requests.add(request);
    };
    add(text);
    // The last has too little in common.
    for (const std::size_t common : {250U, 201U, 200U, 150U, 8U}) {
      add(leaving(text, common, 30, seed));
    }
    requests.run();
    EXPECT_EQ(requests.expect_solo_answers(mode.name), 6);
    EXPECT_EQ(requests.statistics().prompt_rows, 260 + 5 * 30 + 8) << mode.name;
    EXPECT_EQ(requests.statistics().shared_rows, 250 + 201 + 200 + 150) << mode.name;
  }
}

// A shares 100 tokens with B and C, which share 300: C follows B, and B follows A.
TEST(SchedulerSharing, AFollowerLeadsOthers) {
  const auto engine = open_shared_engine({.name = "cpu"});
  Requests requests(*engine, {});
  const Prompt second = leaving(random_ids(350, 31), 100, 300, 32);
  requests.add(asking(random_ids(350, 31), 1));
  requests.add(asking(second, 2));
  requests.add(asking(leaving(second, 300, 50, 33), 3));
  requests.run();
  EXPECT_EQ(requests.expect_solo_answers("a chain"), 3);
  EXPECT_EQ(requests.statistics().prompt_rows, 350 + 300 + 50);
}

TEST(SchedulerSharing, WithoutItsLeaderAFollowerLeads) {
  const auto engine = open_shared_engine({.name = "cpu"});
  const Prompt prompt = random_ids(600, 41);
  Requests requests(*engine, {});
  const RequestId leader = requests.add(asking(prompt, 1));
  const RequestId behind = requests.add(asking(prompt, 2));
  requests.add(asking(leaving(prompt, 500, 20, 42), 3));
  requests.add(asking(prompt, 4));
  // After the first passes, before the first leader comes to where it would be left.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(requests.scheduler().step().value());
  EXPECT_EQ(requests.statistics().prompt_rows, 3 * 64);
  ASSERT_OK(requests.scheduler().cancel(leader));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(requests.scheduler().step().value());
  ASSERT_OK(requests.scheduler().cancel(behind));
  requests.run();
  EXPECT_EQ(requests.expect_solo_answers("cancelled leaders"), 2);
  // No row of the text was run twice, but for the last tokens of those that have it.
  EXPECT_EQ(requests.statistics().prompt_rows, 500 + 20 + 100);
}

// One that is done at once, and one that arrives when the other decodes.
TEST(SchedulerSharing, RequestsLeadAsLongAsTheyAreThere) {
  const auto engine = open_shared_engine({.name = "cpu"});
  const Prompt prompt = random_ids(300, 51);
  {
    Requests requests(*engine, {});
    requests.add(asking(prompt, 1, 1));
    requests.add(asking(prompt, 2));
    requests.run();
    EXPECT_EQ(requests.expect_solo_answers("one token"), 2);
    EXPECT_EQ(requests.statistics().prompt_rows, 300 + 1);
  }
  Requests requests(*engine, {});
  const Request first = asking(prompt, 3, 40);
  const Prompt answer = answer_alone(*engine, first);
  requests.add(first);
  while (requests.statistics().tokens < 20) ASSERT_TRUE(requests.scheduler().step().value());
  Prompt longer = prompt;
  longer.insert(longer.end(), answer.begin(), answer.begin() + 15);
  requests.add(asking(leaving(longer, 315, 40, 52), 4));
  requests.run();
  EXPECT_EQ(requests.expect_solo_answers("while it decodes"), 2);
  EXPECT_EQ(requests.statistics().prompt_rows, 300 + 40);
  EXPECT_EQ(requests.statistics().shared_rows, 315);
}

}  // namespace
}  // namespace kakeya::test
