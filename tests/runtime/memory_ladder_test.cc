// The things that a session gives up to fit into the memory limit, and their order.
#include "runtime/memory_ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kakeya/engine.h"

namespace kakeya {
namespace {

using testing::HasSubstr;

EngineOptions demo(std::uint64_t limit) {
  EngineOptions options;
  options.model_dir = KAKEYA_DEMO_MODEL;
  options.num_threads = 1;
  options.memory_limit = limit;
  options.fit_memory = true;
  return options;
}

std::uint64_t bytes(const SessionOptions& session, const std::string& draft = "auto") {
  EngineOptions options = demo(0);
  options.session = session;
  options.draft.source = draft;
  return Engine::estimate(options)->total_reserved();
}

// The bytes that the ladder's last step before shorter contexts needs: no drafts, and so no
// drafter.
std::uint64_t bytes_without_drafts(std::int64_t context) {
  return bytes({.context = context, .max_rows = 32, .drafting = false}, "none");
}

TEST(MemoryLadder, CalibratedTypesComeBeforeOthersOfFourBits) {
  std::vector<KvType> types;
  for (const MemoryRung& rung : memory_ladder({}, 8192, true)) {
    const SessionOptions& session = rung.session;
    if (types.empty() || types.back() != session.kv_full) types.push_back(session.kv_full);
    if (!is_calibrated(session.kv_full)) continue;
    EXPECT_EQ(session.kv_sliding, KvType::kInt8);
    EXPECT_EQ(session.kv_drafter, KvType::kInt8);
    EXPECT_EQ(session.window, 0);
  }
  ASSERT_GE(types.size(), 6U);
  EXPECT_EQ(types[1], KvType::kInt8);
  EXPECT_EQ(types[2], calibrated_kv(4, 4));
  EXPECT_EQ(types[3], calibrated_kv(3, 3));
  EXPECT_EQ(types[4], KvType::kE8);
}

TEST(MemoryLadder, GivesUpExactThingsFirstThenPrecisionThenRows) {
  const std::vector<MemoryRung> rungs = memory_ladder({}, 8192, false);
  EXPECT_EQ(rungs.front().says, "");
  EXPECT_EQ(rungs.front().session.context, 8192);
  // Nothing is coded or dropped before the context is as short as it gets, and there are no drafts
  // any more; nothing is dropped before everything is coded.
  bool coded = false;
  bool dropped = false;
  std::int64_t context = 8192;
  for (const MemoryRung& rung : rungs) {
    const SessionOptions& session = rung.session;
    EXPECT_LE(session.context, context);
    context = session.context;
    if (!coded && session.kv_full != KvType::kAuto) {
      EXPECT_EQ(context, 1024);
      coded = true;
    }
    EXPECT_EQ(session.kv_full != KvType::kAuto, coded);
    EXPECT_EQ(session.kv_full, session.kv_drafter);
    if (!dropped && session.window != 0) {
      EXPECT_TRUE(coded);
      dropped = true;
    }
    EXPECT_EQ(session.evicted_full == Evicted::kDrop, dropped);
  }
  EXPECT_TRUE(dropped);
  EXPECT_FALSE(rungs.back().session.drafting);
  EXPECT_EQ(rungs.back().session.window, 256);
}

TEST(MemoryLadder, WhatWasAskedForStays) {
  SessionOptions asked{.context = 3000, .max_rows = 64, .kv_full = KvType::kBf16, .window = 500};
  asked.evicted_sliding = Evicted::kDrop;
  asked.drafting = false;
  for (const MemoryRung& rung : memory_ladder(asked, 8192, true)) {
    EXPECT_EQ(rung.session.context, 3000);
    EXPECT_LE(rung.session.max_rows, 64);
    EXPECT_EQ(rung.session.kv_full, KvType::kBf16);
    EXPECT_EQ(rung.session.window, 500);
    EXPECT_EQ(rung.session.evicted_full, Evicted::kKeep);
    EXPECT_FALSE(rung.session.drafting);
    EXPECT_EQ(rung.says.find("drafts"), std::string::npos);
  }
}

TEST(MemoryLadder, NoRowOfAContextThatWasAskedForIsDropped) {
  for (const MemoryRung& rung : memory_ladder({.context = 3000}, 8192, true)) {
    EXPECT_EQ(rung.session.context, 3000);
    EXPECT_EQ(rung.session.evicted_full, Evicted::kKeep);
  }
}

TEST(MemoryLadder, TheEngineTakesTheFirstRungThatFits) {
  const std::uint64_t all = bytes({});
  const auto roomy = Engine::open(demo(all)).value();
  EXPECT_EQ(roomy->session_options().context, 8192);
  EXPECT_EQ(roomy->session_options().max_rows, 512);
  EXPECT_THAT(roomy->memory_plan(), HasSubstr("context of 8192 tokens: weights"));

  const auto tight = Engine::open(demo(all - 1)).value();
  EXPECT_EQ(tight->session_options().context, 8192);
  EXPECT_EQ(tight->session_options().max_rows, 128);
  EXPECT_THAT(tight->memory_plan(), HasSubstr("prompts in passes of 128 tokens"));
  EXPECT_TRUE(tight->create_session().has_value());
  EXPECT_LT(tight->footprint().total_reserved(), all);

  const auto half = Engine::open(demo(bytes_without_drafts(4096))).value();
  EXPECT_EQ(half->session_options().context, 4096);
  EXPECT_FALSE(half->session_options().drafting);
  EXPECT_TRUE(half->create_session().has_value());

  const auto coded = Engine::open(demo(bytes_without_drafts(1024) - 1)).value();
  EXPECT_EQ(coded->session_options().kv_full, KvType::kInt8);
  EXPECT_THAT(coded->memory_plan(), HasSubstr("KV cache in int8"));
}

// The budget lies between what a session without drafts needs beside a drafter's weights and what
// it needs without them.
TEST(MemoryLadder, WithoutDraftsTheDraftersWeightsAreNotLoaded) {
  const std::uint64_t with = bytes({.context = 8192, .max_rows = 32, .drafting = false});
  const std::uint64_t without = bytes_without_drafts(8192);
  ASSERT_LT(without, with);
  EngineOptions options = demo(with - 1);
  options.session.context = 8192;
  const auto engine = Engine::open(options).value();
  EXPECT_EQ(engine->session_options().kv_full, KvType::kAuto);
  EXPECT_FALSE(engine->session_options().drafting);
  EXPECT_THAT(engine->memory_plan(), HasSubstr("no drafts, drafter not loaded: weights"));
  const auto session = engine->create_session().value();
  EXPECT_EQ(engine->footprint().total_reserved(), without);
  ASSERT_TRUE(session->append(std::vector<TokenId>{2, 7, 9}).has_value());
  EXPECT_EQ(session->generate({.max_tokens = 4, .ignore_model_stop_ids = true})->ids.size(), 4U);
}

TEST(MemoryLadder, AProjectionsDrafterIsLoadedThoughNothingIsDrafted) {
  EngineOptions options = demo(0);
  options.session = {.context = 8192, .max_rows = 32, .window = 64};
  options.session.evicted_full = options.session.evicted_sliding = Evicted::kRestore;
  EngineOptions plain = options;
  plain.session.drafting = false;
  options.memory_limit = Engine::estimate(plain)->total_reserved();
  const auto engine = Engine::open(options).value();
  EXPECT_FALSE(engine->session_options().drafting);
  EXPECT_THAT(engine->memory_plan(), HasSubstr("no drafts: weights"));
  const auto session = engine->create_session().value();
  EXPECT_EQ(engine->footprint().total_reserved(), options.memory_limit);
}

TEST(MemoryLadder, WhatFitsNowhereIsRefusedWithTheLeastNeed) {
  EngineOptions options = demo(18 << 20);
  bool loaded = false;
  options.on_progress = [&](std::uint64_t, std::uint64_t) { loaded = true; };
  const auto engine = Engine::open(options);
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(engine.error().message(), HasSubstr("memory limit of 18.0 MiB is too small"));
  EXPECT_THAT(engine.error().message(), HasSubstr("full layers keep 4 + 256 rows"));
  EXPECT_THAT(engine.error().message(), HasSubstr("weights"));
  EXPECT_FALSE(loaded);
}

TEST(MemoryLadder, WhatIsWrongIsSaidAsWithoutALimit) {
  EngineOptions options = demo(1 << 30);
  options.session.context = 1 << 20;
  const auto engine = Engine::open(options);
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(engine.error().message(), HasSubstr("context"));
}

}  // namespace
}  // namespace kakeya
