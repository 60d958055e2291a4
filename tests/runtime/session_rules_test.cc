// The refusals of a session and an engine, and how long both live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>

#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"

namespace kakeya::test {
namespace {

using testing::HasSubstr;

const Ids kPrompt = {2, 130, 131, 132, 133, 134};

TEST(SessionRules, AnEngineSaysWhatItsSessionsWouldBe) {
  const auto plain = open_engine(demo_options("none"));
  const auto drafting = open_engine(demo_options("ngram"));
  ASSERT_NE(plain, nullptr);
  ASSERT_NE(drafting, nullptr);
  EXPECT_EQ(plain->draft_kind(), DraftKind::kNone);
  EXPECT_EQ(drafting->draft_kind(), DraftKind::kNgram);
  EXPECT_EQ(plain->model_fingerprint(), drafting->model_fingerprint());
  EXPECT_FALSE(plain->model_fingerprint().empty());
  const std::uint64_t before = plain->footprint().total_reserved();
  const auto estimate = plain->estimate_session({.context = 256});
  ASSERT_TRUE(estimate.has_value()) << estimate.error().message();
  EXPECT_EQ(plain->footprint().total_reserved(), before);
  const auto session = plain->create_session({.context = 256});
  ASSERT_TRUE(session.has_value());
  EXPECT_EQ(estimate->total_reserved(), (*session)->footprint().total_reserved());
  // Nothing restores rows in this engine.
  EXPECT_FALSE(plain->estimate_session({.window = 64, .evicted_full = Evicted::kRestore}));
}

TEST(SessionRules, SessionsOutliveTheirEngine) {
  auto engine = open_engine(demo_options("auto"));
  auto session = engine->create_session().value();
  auto reference = engine->create_session().value();
  const Tokenizer* tokenizer = engine->tokenizer().value();
  ASSERT_OK(session->append(kPrompt));
  ASSERT_OK(reference->append(kPrompt));
  const Ids expected = reference->generate(generation(20)).value().ids;
  reference.reset();
  engine.reset();
  EXPECT_FALSE(tokenizer->encode("still there").value().empty());
  auto fork = session->fork().value();
  EXPECT_EQ(session->generate(generation(20)).value().ids, expected);
  session.reset();
  EXPECT_EQ(fork->generate(generation(20)).value().ids, expected);
}

// Cutting the text in the callback is what an application would try.
TEST(SessionRules, ABusySessionSaysSoAndGoesOn) {
  const auto engine = open_engine(demo_options("auto"));
  auto plain = engine->create_session().value();
  auto session = engine->create_session().value();
  ASSERT_OK(plain->append(kPrompt));
  ASSERT_OK(session->append(kPrompt));
  int refused = 0;
  const auto busy = [&](const Status& status) {
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.error().message(), HasSubstr("busy"));
    ++refused;
  };
  const auto as_status = [](const auto& result) {
    return result ? Status() : Status(Unexpected(result.error()));
  };
  const std::string path = testing::TempDir() + "busy.session";
  const auto result = session->generate(generation(20), [&](const TokenEvent&) {
    busy(session->truncate(1));
    busy(session->append(kPrompt));
    busy(as_status(session->sync(kPrompt)));
    busy(session->prefill());
    busy(as_status(session->generate(generation(1))));
    busy(as_status(session->fork()));
    busy(session->snapshot(path));
    busy(as_status(session->restore(path)));
    std::thread([&] { busy(session->truncate(1)); }).join();
    return true;
  });
  ASSERT_OK(result);
  EXPECT_EQ(refused, 9 * 20);
  EXPECT_EQ(result->ids, plain->generate(generation(20)).value().ids);
  ASSERT_OK(session->truncate(3));
}

TEST(SessionRules, RefusesOptionsOutOfRange) {
  const auto engine = open_engine(demo_options("none"));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto refused = [&](const SessionOptions& options, const std::string& part) {
    const auto session = engine->create_session(options);
    ASSERT_FALSE(session.has_value()) << part;
    EXPECT_EQ(session.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(session.error().message(), HasSubstr(part));
  };
  for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{1} << 62, kMost}) {
    refused({.sink = value, .window = 64, .evicted_full = Evicted::kDrop},
            "SessionOptions::sink and SessionOptions::window must be");
    refused({.window = value, .evicted_full = Evicted::kDrop},
            "SessionOptions::sink and SessionOptions::window must be");
  }
  refused({.sink = kMost, .window = kMost, .evicted_full = Evicted::kDrop},
          "SessionOptions::sink and SessionOptions::window must be");
  refused({.max_rows = 0}, "SessionOptions::max_rows must");
  refused({.kv_full = static_cast<KvType>(99)}, "SessionOptions::kv_full is no type of rows: 99");
  refused({.kv_codes = static_cast<KvType>(33)}, "SessionOptions::kv_codes is no type of rows: 33");
  refused({.kv_sliding = calibrated_kv(4, 4)}, "SessionOptions::kv_sliding cannot be k4v4");
  refused({.kv_full = calibrated_kv(4, 4), .kv_exact = 0}, "SessionOptions::kv_exact must be 1");
  refused({.kv_full = calibrated_kv(4, 4), .window = 64, .evicted_full = Evicted::kDrop},
          "keep all rows");
  refused({.evicted_sliding = static_cast<Evicted>(3)},
          "SessionOptions::evicted_sliding is no way");
}

TEST(SessionRules, ASessionKnowsHowMuchItHolds) {
  const auto engine = open_engine(demo_options("none"));
  const auto session = engine->create_session({.context = 40, .max_rows = 16}).value();
  EXPECT_EQ(session->context(), 40);
  ASSERT_OK(session->append(Ids(40, 130)));
  EXPECT_EQ(session->append(kPrompt).error().code(), StatusCode::kResourceExhausted);
  // The model's limit, at most the default.
  const auto whole = engine->create_session({}).value();
  EXPECT_EQ(whole->context(), std::min(engine->max_context(), SessionOptions::kDefaultContext));
}

TEST(SessionRules, RefusesThousandsOfThreads) {
  for (const int threads : {-1, 1025, 1000000}) {
    EngineOptions options = demo_options("none");
    options.num_threads = threads;
    const auto engine = Engine::open(options);
    ASSERT_FALSE(engine.has_value());
    EXPECT_THAT(engine.error().message(),
                HasSubstr("EngineOptions::num_threads must be 0 to 1024"));
  }
}

// Codes are made for full layers alone.
TEST(SessionRules, WhatIsRestoredChoosesTheProjection) {
  const auto bytes = [](Evicted sliding, const std::string& projection) {
    EngineOptions options = demo_options("none");
    options.session.window = 64;
    options.session.evicted_full = Evicted::kRestore;
    options.session.evicted_sliding = sliding;
    options.projection = projection;
    const auto engine = open_engine(options);
    const auto session = engine->create_session().value();
    return engine->footprint().reserved;
  };
  const std::string folder = std::string(KAKEYA_DEMO_MODEL) + "/projections/";
  EXPECT_EQ(bytes(Evicted::kKeep, "auto"), bytes(Evicted::kKeep, folder + "codes"));
  EXPECT_NE(bytes(Evicted::kKeep, "auto"), bytes(Evicted::kKeep, folder + "aux"));
  EXPECT_EQ(bytes(Evicted::kRestore, "auto"), bytes(Evicted::kRestore, folder + "aux"));
}

}  // namespace
}  // namespace kakeya::test
