// A device may fail at the end of a pass. Then nothing of the pass counts: sessions go on as if it
// had never begun.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "backend/forwarding_backend.h"
#include "backend/forwarding_executor.h"
#include "base/status.h"
#include "kakeya/scheduler.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"

namespace kakeya::test {
namespace {

// When passes fail: every `period`-th, if that is not 0.
struct Failures {
  std::int64_t period = 0;
  std::int64_t ends = 0;
};

// Leaves rubbish where results were.
class FailingExecutor final : public ForwardingExecutor<FailingExecutor> {
 public:
  FailingExecutor(std::unique_ptr<Executor> inner, Failures& failures)
      : ForwardingExecutor(std::move(inner)), failures_(failures) {}

  Status end(std::span<const ConstRows> read) override {
    KAKEYA_TRY(ForwardingExecutor::end(read));
    if (failures_.period == 0 || ++failures_.ends % failures_.period != 0) return {};
    for (const ConstRows& rows : read) {
      auto* values = const_cast<float*>(rows.data.address());
      std::fill_n(values, rows.count * rows.width, std::numeric_limits<float>::quiet_NaN());
    }
    return error(StatusCode::kUnavailable, "the device has fallen off the bus");
  }

 private:
  Failures& failures_;
};

class FailingBackend final : public ForwardingBackend {
 public:
  FailingBackend(std::unique_ptr<Backend> inner, Failures& failures)
      : ForwardingBackend(std::move(inner)), failures_(failures) {}

  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override {
    KAKEYA_ASSIGN_OR_RETURN(auto executor, inner().create_executor(plan, budget));
    return std::make_unique<FailingExecutor>(std::move(executor), failures_);
  }

 private:
  Failures& failures_;
};

std::unique_ptr<EngineImpl> open_failing(const EngineOptions& options, Failures& failures) {
  return EngineImpl::open(options,
                          [&](std::unique_ptr<Backend> inner) {
                            return std::make_unique<FailingBackend>(std::move(inner), failures);
                          })
      .value();
}

struct Way {
  const char* draft;
  const char* projection;  // empty: nothing is restored
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.draft << ' ' << way.projection;
}

class DeviceFailure : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways,
                         DeviceFailure,
                         testing::Values(Way{"none", ""},
                                         Way{"auto", ""},
                                         Way{"ngram", ""},
                                         Way{"auto", "aux"},
                                         Way{"auto", "context"}),
                         [](const auto& test) {
                           return std::string(test.param.draft) + "_" +
                                  (*test.param.projection ? test.param.projection : "plain");
                         });

// Passes of the prompt, of the drafter's context, of blocks and of verification, one after another.
TEST_P(DeviceFailure, OfAPassLeavesTheSessionAsItWas) {
  EngineOptions options = demo_options(GetParam().draft);
  if (*GetParam().projection) {
    options.projection = std::string(KAKEYA_DEMO_MODEL "/projections/") + GetParam().projection;
    options.session.window = 64;
    options.session.evicted_full = options.session.evicted_sliding = Evicted::kRestore;
  }
  Failures failures;
  const auto engine = open_failing(options, failures);
  constexpr std::size_t kEnd = 380;
  for (const float temperature : {0.0F, 1.0F}) {
    const auto whole = engine->create_session().value();
    ASSERT_OK(whole->append(random_ids(300, 1)));
    go_on(*whole, generation(kEnd - 300, temperature));
    ASSERT_EQ(whole->tokens().size(), kEnd);
    for (const std::int64_t period : {2, 3, 5}) {
      const auto session = engine->create_session().value();
      ASSERT_OK(session->append(random_ids(300, 1)));
      failures = {.period = period};
      int failed = 0;
      while (session->tokens().size() < kEnd && failed < 1000) {
        const auto left = static_cast<std::int64_t>(kEnd - session->tokens().size());
        const auto result = session->generate(generation(left, temperature));
        if (result) continue;
        ASSERT_EQ(result.error().code(), StatusCode::kUnavailable) << result.error().message();
        ++failed;
      }
      failures = {};
      EXPECT_GT(failed, 1);
      EXPECT_EQ(Ids(session->tokens().begin(), session->tokens().end()),
                Ids(whole->tokens().begin(), whole->tokens().end()))
          << "every " << period << ", temperature " << temperature;
    }
  }
}

// Requests of the pass end with the error, each once; others are answered.
TEST(DeviceFailureOfSchedulers, EndsTheRequestsOfThePass) {
  Failures failures;
  const auto engine = open_failing(demo_options("auto"), failures);
  const auto scheduler = engine->create_scheduler({}).value();
  int ended = 0;
  const auto add = [&](std::uint64_t seed, RequestResult& result) {
    Request request;
    request.prompt = random_ids(40, seed);
    request.generate = generation(30);
    request.on_end = [&](RequestId, const RequestResult& of) {
      ++ended;
      result = of;
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  };
  std::vector<RequestResult> results(4);
  for (std::size_t i = 0; i < 3; ++i) add(i, results[i]);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(scheduler->step().value());
  failures = {.period = 1};
  ASSERT_TRUE(scheduler->step().has_value());
  failures = {};
  EXPECT_EQ(ended, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_FALSE(results[i].status.has_value());
    EXPECT_EQ(results[i].status.error().code(), StatusCode::kUnavailable);
  }
  add(9, results[3]);
  while (scheduler->step().value()) {
  }
  EXPECT_EQ(ended, 4);
  const auto alone = engine->create_session().value();
  ASSERT_OK(alone->append(random_ids(40, 9)));
  EXPECT_EQ(results[3].generated.ids, go_on(*alone, generation(30)).ids);
}

}  // namespace
}  // namespace kakeya::test
