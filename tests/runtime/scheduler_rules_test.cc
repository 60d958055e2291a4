// A scheduler's promises whatever its callers do: every request ends once, and what one of them
// does wrong is felt by no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kakeya/constraint.h"
#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/scheduled_requests.h"

namespace kakeya::test {
namespace {

using Clock = std::chrono::steady_clock;

Request plain_request(std::uint64_t seed, std::int64_t max_tokens) {
  Request request;
  request.prompt = random_ids(20, seed);
  request.generate = {.max_tokens = max_tokens, .draft_length = 0, .ignore_model_stop_ids = true};
  return request;
}

// How requests have ended.
struct Ends {
  std::vector<std::pair<RequestId, Status>> all;

  std::function<void(RequestId, const RequestResult&)> note() {
    return
        [this](RequestId id, const RequestResult& result) { all.emplace_back(id, result.status); };
  }
  // The code of the request that ended as the n-th; kOk stands for no error.
  StatusCode code(std::size_t n) const {
    return all.at(n).second ? StatusCode{} : all.at(n).second.error().code();
  }
};

TEST(SchedulerRules, AStepSaysTrueWhileARequestIsQueued) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  for (const bool cancels : {false, true}) {
    const auto scheduler = engine->create_scheduler({}).value();
    Ends ends;
    Request first = plain_request(1, 3);
    if (!cancels) first.deadline = Clock::now() - std::chrono::seconds(1);
    first.on_end = [&](RequestId id, const RequestResult& result) {
      ends.note()(id, result);
      Request again = plain_request(1, 3);
      again.on_end = ends.note();
      EXPECT_TRUE(scheduler->add(std::move(again)).has_value());
    };
    const RequestId id = scheduler->add(std::move(first)).value();
    if (cancels) {
      ASSERT_OK(scheduler->cancel(id));
    }
    run_all(*scheduler);
    ASSERT_EQ(ends.all.size(), 2U);
    EXPECT_TRUE(ends.all[1].second.has_value());
    EXPECT_EQ(scheduler->statistics().waiting, 0);
  }
}

TEST(SchedulerRules, AnEndThatThrowsIsHeardOnceAndNobodyElseNotices) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  for (const bool waits : {false, true}) {
    const auto scheduler = engine->create_scheduler({}).value();
    Ends ends;
    int thrown = 0;
    Request bad = plain_request(1, 3);
    bad.on_end = [&](RequestId, const RequestResult&) {
      ++thrown;
      throw std::runtime_error("no");
    };
    Request good = plain_request(2, 6);
    good.on_end = ends.note();
    const Request expected = good;
    const RequestId id = scheduler->add(std::move(bad)).value();
    ASSERT_OK(scheduler->add(std::move(good)));
    if (waits) {
      ASSERT_OK(scheduler->cancel(id));
    }
    for (int i = 0; i < 20; ++i) {
      try {
        static_cast<void>(scheduler->step());
      } catch (const std::exception&) {
        ADD_FAILURE() << "step() throws what a callback threw";
      }
    }
    EXPECT_EQ(thrown, 1);
    ASSERT_EQ(ends.all.size(), 1U);
    EXPECT_TRUE(ends.all[0].second.has_value());
    EXPECT_EQ(scheduler->statistics().waiting, 0);
    EXPECT_EQ(scheduler->statistics().running, 0);
  }
}

// Throws where it is told to, from its `from`-th call on.
class Thrower final : public Constraint {
 public:
  enum class Where : std::uint8_t { kMask, kAdvance, kRollBack };
  Thrower(Where where, int from) : where_(where), from_(from) {}

  bool fill_mask(std::span<std::uint32_t>) override {
    call(Where::kMask);
    return false;
  }
  bool advance(TokenId) override {
    call(Where::kAdvance);
    return true;
  }
  void roll_back(std::int64_t) override { call(Where::kRollBack); }

 private:
  void call(Where where) {
    if (where == where_ && ++calls_ >= from_) throw std::runtime_error("bad grammar");
  }

  Where where_;
  int from_;
  int calls_ = 0;
};

TEST(SchedulerRules, AConstraintThatThrowsEndsItsRequestAlone) {
  using Where = Thrower::Where;
  for (const char* draft : {"none", "auto", "ngram"}) {
    const auto engine = open_shared_engine({.name = "cpu"}, draft);
    for (const Where where : {Where::kMask, Where::kAdvance, Where::kRollBack}) {
      if (where == Where::kRollBack && std::string(draft) != "auto") continue;
      const auto scheduler = engine->create_scheduler({}).value();
      Thrower constraint(where, 4);
      Ends ends;
      Request bad = plain_request(1, 30);
      bad.generate.draft_length = 5;
      bad.generate.constraint = &constraint;
      bad.on_end = ends.note();
      Request good = plain_request(2, 30);
      good.generate.draft_length = 5;
      std::vector<TokenId> got;
      good.on_end = [&](RequestId, const RequestResult& result) { got = result.generated.ids; };
      const Request expected = good;
      ASSERT_OK(scheduler->add(std::move(bad)));
      ASSERT_OK(scheduler->add(std::move(good)));
      for (int i = 0; i < 100; ++i) {
        try {
          static_cast<void>(scheduler->step());
        } catch (const std::exception&) {
          FAIL() << "step() throws what a constraint threw";
        }
      }
      ASSERT_EQ(ends.all.size(), 1U) << draft << ", " << static_cast<int>(where);
      EXPECT_EQ(ends.code(0), StatusCode::kInternal);
      EXPECT_NE(ends.all[0].second.error().message().find("bad grammar"), std::string::npos);
      EXPECT_EQ(got, answer_alone(*engine, expected));
    }
  }
}

TEST(SchedulerRules, ATokenCallbackThatThrowsEndsItsRequestAlone) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({}).value();
  std::vector<TokenId> heard;
  std::vector<TokenId> got;
  Ends ends;
  Request bad = plain_request(1, 30);
  bad.on_token = [&](const TokenEvent& token) {
    heard.push_back(token.id);
    if (heard.size() == 4) throw std::runtime_error("pipe closed");
    return true;
  };
  bad.on_end = [&](RequestId id, const RequestResult& result) {
    ends.note()(id, result);
    got = result.generated.ids;
  };
  Request good = plain_request(2, 10);
  good.on_end = ends.note();
  ASSERT_OK(scheduler->add(std::move(bad)));
  ASSERT_OK(scheduler->add(std::move(good)));
  ASSERT_NO_THROW(run_all(*scheduler));
  ASSERT_EQ(ends.all.size(), 2U);
  EXPECT_EQ(ends.code(0), StatusCode::kInternal);
  EXPECT_NE(ends.all[0].second.error().message().find("pipe closed"), std::string::npos);
  EXPECT_EQ(got, heard);
  EXPECT_TRUE(ends.all[1].second.has_value());
}

TEST(SchedulerRules, AStepFromACallbackIsRefused) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({}).value();
  int refused = 0;
  int ended = 0;
  const auto step = [&] {
    const auto stepped = scheduler->step();
    ASSERT_FALSE(stepped.has_value());
    EXPECT_EQ(stepped.error().code(), StatusCode::kFailedPrecondition);
    ++refused;
  };
  for (std::int64_t tokens = 5; tokens < 8; ++tokens) {
    Request request = plain_request(1, tokens);
    request.on_token = [&](const TokenEvent&) {
      step();
      EXPECT_FALSE(scheduler->wait(Clock::time_point::max()));
      return true;
    };
    request.on_end = [&](RequestId, const RequestResult&) {
      ++ended;
      step();
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  run_all(*scheduler);
  EXPECT_EQ(ended, 3);
  EXPECT_EQ(refused, 3 + 5 + 6 + 7);
}

TEST(SchedulerRules, DestroyingItEndsEveryRequest) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  Ends ends;
  {
    const auto scheduler = engine->create_scheduler({.max_sequences = 1}).value();
    for (std::uint64_t i = 0; i < 3; ++i) {
      Request request = plain_request(i, 50);
      request.on_end = ends.note();
      ASSERT_OK(scheduler->add(std::move(request)));
    }
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(scheduler->step().value());
    EXPECT_EQ(scheduler->statistics().running, 1);
  }
  ASSERT_EQ(ends.all.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(ends.code(i), StatusCode::kCancelled);
}

TEST(SchedulerRules, StoppingEndsEveryRequestAndRefusesOthers) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const Status why = Unexpected(Error(StatusCode::kUnavailable, "the end"));
  for (const bool from_a_callback : {false, true}) {
    const auto scheduler = engine->create_scheduler({.max_sequences = 2}).value();
    Ends ends;
    for (std::uint64_t i = 0; i < 4; ++i) {
      Request request = plain_request(i, 50);
      if (from_a_callback && i == 0) {
        request.on_token = [&](const TokenEvent&) {
          scheduler->stop(why);
          return true;
        };
      }
      request.on_end = ends.note();
      ASSERT_OK(scheduler->add(std::move(request)));
    }
    static_cast<void>(scheduler->step());
    scheduler->stop(why);
    ASSERT_EQ(ends.all.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(ends.code(i), StatusCode::kUnavailable);
    EXPECT_EQ(scheduler->add(plain_request(1, 5)).error().message(), "the end");
    EXPECT_FALSE(scheduler->step().value());
    EXPECT_FALSE(scheduler->wait(Clock::time_point::max()));
    EXPECT_EQ(scheduler->statistics().running + scheduler->statistics().waiting, 0);
  }
}

// As a server's thread does: it sleeps between requests, and ends when the scheduler is stopped.
TEST(SchedulerRules, AThreadThatWaitsIsWoken) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({}).value();
  EXPECT_FALSE(scheduler->wait(Clock::now() + std::chrono::milliseconds(5)));
  std::atomic<int> ended{0};
  std::thread stepper([&] {
    while (scheduler->wait(Clock::time_point::max())) EXPECT_TRUE(scheduler->step().has_value());
  });
  const auto wait_for = [&](int count) {
    while (ended < count) std::this_thread::yield();
  };
  for (int i = 0; i < 3; ++i) {
    Request request = plain_request(1, 20);
    request.on_end = [&](RequestId, const RequestResult&) { ++ended; };
    ASSERT_OK(scheduler->add(std::move(request)));
    wait_for(i + 1);
  }
  Request request = plain_request(1, 900);
  request.on_end = [&](RequestId, const RequestResult&) { ++ended; };
  const RequestId id = scheduler->add(std::move(request)).value();
  ASSERT_OK(scheduler->cancel(id));
  wait_for(4);
  scheduler->stop({});
  stepper.join();
}

TEST(SchedulerRules, SessionOptionsOutOfRangeAreRefusedAtOnce) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({}).value();
  const auto refuses = [&](const std::function<void(SessionOptions&)>& change) {
    Request request = plain_request(1, 5);
    request.session = engine->session_options();
    change(*request.session);
    const auto added = scheduler->add(std::move(request));
    return !added.has_value() && added.error().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refuses([](SessionOptions& options) { options.context = -5; }));
  EXPECT_TRUE(refuses([](SessionOptions& options) { options.context = 99999999; }));
  EXPECT_TRUE(refuses([](SessionOptions& options) { options.window = std::int64_t{1} << 40; }));
}

// Each request may bring a session of its own.
TEST(SchedulerRules, TheDefaultContextMayBeTiny) {
  EngineOptions options = demo_options("none");
  options.session.context = 4;
  const auto engine = open_engine(options);
  const auto scheduler = engine->create_scheduler({}).value();
  Request request = plain_request(1, 5);
  request.session = engine->session_options();
  request.session->context = 100;
  std::vector<TokenId> got;
  request.on_end = [&](RequestId, const RequestResult& result) { got = result.generated.ids; };
  const Request expected = request;
  ASSERT_OK(scheduler->add(std::move(request)));
  run_all(*scheduler);
  EXPECT_EQ(got, answer_alone(*engine, expected));
}

// Memory for tokens that may never come is not held.
TEST(SchedulerRules, AskingForManyTokensCostsNothing) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({}).value();
  Request request = plain_request(1, std::numeric_limits<std::int64_t>::max());
  request.session = engine->session_options();
  request.session->context = engine->max_context();
  request.on_token = [](const TokenEvent&) { return false; };
  std::size_t capacity = 0;
  request.on_end = [&](RequestId, const RequestResult& result) {
    capacity = result.generated.ids.capacity();
  };
  ASSERT_OK(scheduler->add(std::move(request)));
  run_all(*scheduler);
  EXPECT_LE(capacity, 1U << 14);
}

// Whoever has the higher priority starts first, equals in order, however many wait.
TEST(SchedulerRules, AQueueKeepsItsOrder) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({.max_sequences = 1}).value();
  std::vector<RequestId> order;
  for (int i = 0; i < 9; ++i) {
    Request request = plain_request(1, 1);
    request.priority = i / 3;
    request.on_end = [&](RequestId id, const RequestResult&) { order.push_back(id); };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  run_all(*scheduler);
  EXPECT_EQ(order, (std::vector<RequestId>{7, 8, 9, 4, 5, 6, 1, 2, 3}));
}

TEST(SchedulerRules, ARefusalNamesTheBoundThatHolds) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({.max_sequences = 1, .max_waiting = 1}).value();
  ASSERT_OK(scheduler->add(plain_request(1, 5)));
  ASSERT_OK(scheduler->add(plain_request(1, 5)));
  EXPECT_EQ(scheduler->add(plain_request(1, 5)).error().message(),
            "2 requests are running or waiting already");
}

// Passes until the first token of a request that comes last.
std::int64_t passes_until_served(Engine& engine,
                                 const SchedulerOptions& options,
                                 std::int64_t draft_length,
                                 int decoding) {
  const auto scheduler = engine.create_scheduler(options).value();
  for (int i = 0; i < decoding; ++i) {
    Request request = plain_request(static_cast<std::uint64_t>(i), 300);
    request.generate.draft_length = draft_length;
    EXPECT_TRUE(scheduler->add(std::move(request)).has_value());
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(scheduler->step().value());
  bool served = false;
  Request late = plain_request(99, 2);
  late.on_token = [&](const TokenEvent&) { return served = true; };
  EXPECT_TRUE(scheduler->add(std::move(late)).has_value());
  const std::int64_t before = scheduler->statistics().passes;
  while (!served && scheduler->step().value()) continue;
  return scheduler->statistics().passes - before;
}

TEST(SchedulerRules, APromptHasRoomInEveryPass) {
  const auto engine = open_shared_engine({.name = "cpu"});
  EXPECT_LE(passes_until_served(*engine, {}, 15, 8), 2);
  EXPECT_LE(passes_until_served(*engine, {.max_logit_rows = 8}, 0, 8), 2);
  EXPECT_LE(passes_until_served(*engine, {.max_rows = 8, .max_logit_rows = 8}, 0, 8), 8);
  EXPECT_LE(passes_until_served(*engine, {.max_rows = 16, .max_logit_rows = 16}, 15, 4), 4);
  EXPECT_LE(passes_until_served(*engine, {.max_logit_rows = 1}, 0, 2), 4);
  EXPECT_LE(passes_until_served(*engine, {.max_rows = 1, .max_logit_rows = 1}, 0, 2), 70);
}

TEST(SchedulerRules, DecodersTakeTurnsWhereThereAreTooFewRows) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({.max_logit_rows = 3}).value();
  std::vector<int> tokens(8);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Request request = plain_request(i, 1000);
    request.on_token = [&tokens, i](const TokenEvent&) {
      ++tokens[i];
      return true;
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  for (int i = 0; i < 120; ++i) ASSERT_TRUE(scheduler->step().value());
  const auto [fewest, most] = std::minmax_element(tokens.begin(), tokens.end());
  EXPECT_GE(*fewest, 30);
  EXPECT_LE(*most - *fewest, 10);
}

// Seconds and bytes of a pass are divided among those who were in it.
TEST(SchedulerRules, SharesOfAPassAddUp) {
  const auto engine = open_shared_engine({.name = "cpu"});
  const auto scheduler = engine->create_scheduler({.max_sequences = 4}).value();
  double seconds = 0.0;
  std::uint64_t bytes = 0;
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < 8; ++i) {
    Request request = plain_request(i, 30);
    request.generate.draft_length = 5;
    request.on_end = [&](RequestId id, const RequestResult& result) {
      for (const RoundRecord& round : result.generated.rounds) {
        seconds += round.draft_seconds + round.verify_seconds;
        bytes += round.bytes;
      }
      // Four wait until those before them have ended.
      const double first = result.first_token_seconds;
      EXPECT_GT(first, result.queue_seconds);
      EXPECT_LT(first, std::chrono::duration<double>(Clock::now() - begin).count());
      EXPECT_GE(result.queue_seconds, id > 4 ? 1e-4 : 0.0);
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  run_all(*scheduler);
  EXPECT_LE(seconds, std::chrono::duration<double>(Clock::now() - begin).count());
  EXPECT_LE(bytes, scheduler->statistics().bytes);
  EXPECT_GT(bytes, scheduler->statistics().bytes / 3);
}

TEST(SchedulerRules, StatisticsCountWhatWasDelivered) {
  const auto engine = open_shared_engine({.name = "cpu"});
  const auto scheduler = engine->create_scheduler({}).value();
  std::int64_t tokens = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  for (std::uint64_t i = 0; i < 10; ++i) {
    Request request = plain_request(i, 40);
    request.generate.draft_length = 15;
    const auto count = std::make_shared<int>(0);
    request.on_token = [count](const TokenEvent&) { return ++*count < 8; };
    request.on_end = [&](RequestId, const RequestResult& result) {
      tokens += std::ssize(result.generated.ids);
      drafted += result.generated.drafted;
      accepted += result.generated.accepted;
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  run_all(*scheduler);
  EXPECT_EQ(tokens, 80);
  EXPECT_EQ(scheduler->statistics().tokens, tokens);
  EXPECT_EQ(scheduler->statistics().drafted, drafted);
  EXPECT_EQ(scheduler->statistics().accepted, accepted);
}

// A long prompt, score or embedding beside the scheduler must not hold answers up.
TEST(SchedulerRules, OthersTakeShortTurnsWhileRequestsRun) {
  const auto engine = open_shared_engine({.name = "cpu"}, "none");
  const auto scheduler = engine->create_scheduler({.prefill_rows = 16}).value();
  const auto longest_turn = [&] {
    const auto session = engine->create_session().value();
    EXPECT_TRUE(session->append(random_ids(100, 7)).has_value());
    std::int64_t longest = 0;
    std::int64_t before = 0;
    EXPECT_TRUE(session
                    ->prefill([&](std::int64_t done, std::int64_t /*total*/) {
                      longest = std::max(longest, done - std::exchange(before, done));
                      return true;
                    })
                    .has_value());
    return longest;
  };
  std::int64_t beside = 0;
  Request request = plain_request(1, 2);
  request.on_token = [&](const TokenEvent&) {
    beside = longest_turn();
    return true;
  };
  ASSERT_OK(scheduler->add(std::move(request)));
  run_all(*scheduler);
  EXPECT_EQ(beside, 16);
  EXPECT_EQ(longest_turn(), 64);
}

}  // namespace
}  // namespace kakeya::test
