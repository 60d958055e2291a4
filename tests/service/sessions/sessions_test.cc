// Sessions over the scheduler: each goes on as if it were alone, whatever the others do, and
// nothing of one that was acknowledged is lost.
#include "service/sessions/sessions.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "runtime/demo_sessions.h"
#include "service/service.h"

namespace kakeya::service {
namespace {

using test::Ids;
using testing::HasSubstr;

constexpr const char* kOwner = "ann";

// The demo model has a window of 128 in its sliding layers; 40 is less than its texts here have.
const SessionMode kPlain = {.decoding = Decoding::kPlain};
const SessionMode kDrafted = {.decoding = Decoding::kSpeculative};
const SessionMode kDropped = {.evicted = Evicted::kDrop, .sink = 4, .window = 40};
const SessionMode kRestored = {.evicted = Evicted::kRestore, .sink = 4, .window = 40};

class SessionsTest : public testing::Test {
 protected:
  void start(const std::string& folder = "", SessionsOptions sessions = {}) {
    service_.reset();
    if (engine_ == nullptr) {
      EngineOptions options = test::restoring_options("auto");
      options.session.grow = true;
      options.prompt_cache_bytes = std::uint64_t{64} << 20;
      engine_ = test::open_engine(options);
    }
    sessions.folder = folder;
    ServiceOptions with;
    with.sessions = sessions;
    auto service = Service::create(*engine_, with);
    ASSERT_TRUE(service.has_value()) << service.error().message();
    service_ = std::move(*service);
  }
  Sessions& sessions() { return service_->sessions(); }

  static Ids prompt(int seed, int tokens) {
    Ids ids = {2};
    while (std::ssize(ids) < tokens) ids.push_back((seed * 31 + std::ssize(ids) * 7) % 90 + 110);
    return ids;
  }
  static Request request(std::int64_t max_tokens, std::uint64_t seed = 3) {
    GenerateOptions generate = test::generation(max_tokens, 0.8F);
    generate.draft_length = kAutoDraftLength;
    generate.sampling.seed = seed;
    return {.prompt = {}, .generate = generate};
  }

  // The tokens of a run, to its end or, above 0, as soon as there are `most`.
  Ids finish(Outcome<std::unique_ptr<SessionRun>> run,
             std::int64_t most = 0,
             SessionRunResult* result = nullptr) {
    EXPECT_TRUE(run.has_value()) << run.error().message;
    std::vector<GeneratedToken> tokens;
    while (run && !(*run)->finished()) {
      const Status taken = (*run)->take(tokens);
      EXPECT_TRUE(taken.has_value()) << taken.error().message();
      if (!taken || (most > 0 && std::ssize(tokens) >= most)) break;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    if (result != nullptr && run) *result = (*run)->result();
    Ids ids;
    for (const GeneratedToken& token : tokens) ids.push_back(token.id);
    return ids;
  }
  std::string open(const SessionMode& mode, const Ids& ids) {
    const auto row = sessions().create(kOwner, {.mode = mode});
    EXPECT_TRUE(row.has_value()) << row.error().message;
    if (!row) return {};
    finish(sessions().append(kOwner, row->id, ids, {.prompt = {}}, {}));
    return row->id;
  }
  Ids generate(const std::string& id, std::int64_t max_tokens, std::uint64_t seed = 3) {
    return finish(sessions().generate(kOwner, id, request(max_tokens, seed), {}));
  }

  // The tokens that a session of the engine's own gives that is told the same in one piece.
  Ids alone(const SessionMode& mode, const Ids& ids, std::int64_t max_tokens) {
    const auto options = session_options_of(*engine_, mode);
    EXPECT_TRUE(options.has_value()) << options.error().message;
    const auto session = engine_->create_session(*options).value();
    EXPECT_TRUE(session->append(ids).has_value());
    return session->generate(request(max_tokens).generate).value().ids;
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Service> service_;
};

TEST_F(SessionsTest, ManyOfAllModesAtOnceAreEachAsAlone) {
  start();
  const SessionMode modes[] = {kPlain, kDrafted, kDropped, kRestored};
  struct Case {
    std::string id;
    SessionMode mode;
    Ids text;
  };
  std::vector<Case> cases;
  for (int i = 0; i < 12; ++i) {
    // Lengths around sink + window, and beyond the sliding layers'.
    const int tokens = std::array{1, 43, 44, 45, 130, 200}[static_cast<std::size_t>(i) % 6];
    cases.push_back({.id = {}, .mode = modes[i % 4], .text = prompt(i, tokens)});
  }
  std::vector<std::thread> threads;
  std::vector<Ids> got(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    threads.emplace_back([&, i] {
      Case& one = cases[i];
      // Appended in two pieces, and generated in three turns.
      const auto middle = one.text.begin() + std::ssize(one.text) / 2;
      one.id = open(one.mode, Ids(one.text.begin(), middle));
      finish(sessions().append(kOwner, one.id, Ids(middle, one.text.end()), {.prompt = {}}, {}));
      for (const int count : {5, 1, 18}) {
        const Ids more = generate(one.id, count);
        got[i].insert(got[i].end(), more.begin(), more.end());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(got[i], alone(cases[i].mode, cases[i].text, 24)) << i;
    Ids all = cases[i].text;
    all.insert(all.end(), got[i].begin(), got[i].end());
    EXPECT_EQ(sessions().tokens(kOwner, cases[i].id).value(), all) << i;
  }
}

TEST_F(SessionsTest, TheSecondTurnRunsWhatIsNewAlone) {
  start();
  const std::string id = open(kPlain, prompt(1, 200));
  SessionRunResult first;
  finish(sessions().generate(kOwner, id, request(8), {}), 0, &first);
  EXPECT_EQ(first.tokens, 208);
  EXPECT_EQ(first.generated, 8);
  EXPECT_EQ(first.stop_reason, StopReason::kMaxTokens);
  EXPECT_GE(first.cached_tokens, 180);
  EXPECT_EQ(first.cached_tokens + first.prompt_rows, 200);
  const SessionFootprint held = sessions().footprint(kOwner, id).value();
  EXPECT_GE(held.cached_tokens, 180);
  EXPECT_GT(held.memory_bytes, 0U);
}

TEST_F(SessionsTest, AClientThatGoesLeavesWhatItWasGiven) {
  start();
  const Ids text = prompt(2, 60);
  const std::string id = open(kDrafted, text);
  Ids got = finish(sessions().generate(kOwner, id, request(500), {}), 4);  // and goes
  EXPECT_GE(std::ssize(got), 4);
  Ids expected = text;
  expected.insert(expected.end(), got.begin(), got.end());
  EXPECT_EQ(sessions().tokens(kOwner, id).value(), expected);
  const auto more = 40 - std::ssize(got);
  const Ids rest = generate(id, more);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, alone(kDrafted, text, 40));
}

TEST_F(SessionsTest, ARestartGoesOnWithTheSameNextTokens) {
  const std::string folder = testing::TempDir() + "sessions-restart";
  std::filesystem::remove_all(folder);
  start(folder);
  const Ids text = prompt(3, 90);
  const std::string id = open(kRestored, text);
  Ids got = generate(id, 10);
  engine_.reset();
  service_.reset();
  start(folder);
  const Ids rest = generate(id, 14);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, alone(kRestored, text, 24));
  service_.reset();
  std::filesystem::remove_all(folder);
}

TEST_F(SessionsTest, ForksAndCutsGoOnFromTheirOwnTokens) {
  start();
  const Ids text = prompt(4, 100);
  const std::string id = open(kPlain, text);
  const Ids first = generate(id, 12);
  const SessionRow fork = sessions().fork(kOwner, id, {}, {}).value();
  EXPECT_EQ(fork.parent, id);
  EXPECT_EQ(fork.mode, kPlain);
  EXPECT_EQ(generate(fork.id, 12), generate(id, 12));
  ASSERT_TRUE(sessions().truncate(kOwner, id, 100).has_value());
  EXPECT_EQ(generate(id, 12), first);
  const SessionRow early = sessions().fork(kOwner, id, {}, 50).value();
  EXPECT_EQ(generate(early.id, 12), alone(kPlain, Ids(text.begin(), text.begin() + 50), 12));
  // A fork that ends leaves what its parent goes on from.
  const std::int64_t held = sessions().footprint(kOwner, id)->cached_tokens;
  const SessionRow twin = sessions().fork(kOwner, id, {}, {}).value();
  ASSERT_TRUE(sessions().close(kOwner, twin.id).has_value());
  EXPECT_EQ(sessions().footprint(kOwner, id)->cached_tokens, held);
}

TEST_F(SessionsTest, OneOperationAtATime) {
  start();
  const std::string id = open(kPlain, prompt(5, 30));
  auto run = sessions().generate(kOwner, id, request(400), {});
  ASSERT_TRUE(run.has_value());
  const auto second = sessions().generate(kOwner, id, request(1), {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, kSessionBusy);
  EXPECT_EQ(sessions().append(kOwner, id, {130}, {.prompt = {}}, {}).error().code, kSessionBusy);
  EXPECT_EQ(sessions().truncate(kOwner, id, 1).error().code, kSessionBusy);
  EXPECT_EQ(sessions().close(kOwner, id).error().code, kSessionBusy);
  run->reset();
  EXPECT_EQ(sessions().close(kOwner, id)->tokens, 30);
  EXPECT_EQ(sessions().find(kOwner, id).error().status, StatusCode::kNotFound);
}

TEST_F(SessionsTest, WhatCannotBeDoneIsRefusedAndChangesNothing) {
  start();
  const std::string id = open(kPlain, prompt(6, 30));
  const auto append = [&](Ids ids) {
    auto run = sessions().append(kOwner, id, std::move(ids), {.prompt = {}}, {});
    return run ? Refusal{.message = "taken"} : run.error();
  };
  EXPECT_THAT(append({130, 1 << 30}).message, HasSubstr("token_ids: expected 0 to"));
  EXPECT_THAT(append({-1}).message, HasSubstr("got -1"));
  EXPECT_EQ(append(prompt(7, 2000)).status, StatusCode::kResourceExhausted);
  EXPECT_EQ(sessions().find(kOwner, id)->tokens, 30);
  EXPECT_EQ(sessions().find("bob", id).error().status, StatusCode::kNotFound);
  EXPECT_EQ(sessions().generate("bob", id, request(1), {}).error().status, StatusCode::kNotFound);
  const auto empty = sessions().create(kOwner, {});
  EXPECT_THAT(sessions().generate(kOwner, empty->id, request(1), {}).error().message,
              HasSubstr("expected tokens to go on from"));
  const auto refused = [&](const NewSession& wish) {
    const auto row = sessions().create(kOwner, wish);
    return row ? "made" : row.error().message;
  };
  EXPECT_THAT(refused({.id = "two words"}), HasSubstr("session_id"));
  EXPECT_THAT(refused({.id = id}), HasSubstr("expected the id of no session"));
  EXPECT_THAT(refused({.stop_ids = {-4}}), HasSubstr("stop_ids"));
  EXPECT_THAT(refused({.mode = {.window = 40}}), HasSubstr("expected drop or restore"));
  EXPECT_THAT(refused({.mode = {.evicted = Evicted::kDrop}}), HasSubstr("window: expected"));
}

TEST_F(SessionsTest, AnEndFreesItsRowsAndNobodyElses) {
  start();
  const auto bytes = [&] { return engine_->prompt_cache_statistics().bytes; };
  const std::string other = open(kPlain, prompt(8, 150));
  const std::uint64_t before = bytes();
  for (int i = 0; i < 20; ++i) {
    const std::string id = open(kPlain, prompt(9 + i, 150));
    generate(id, 20);
    EXPECT_GT(bytes(), before);
    ASSERT_TRUE(sessions().close(kOwner, id).has_value());
    EXPECT_EQ(bytes(), before) << i;
  }
  EXPECT_GE(sessions().footprint(kOwner, other)->cached_tokens, 120);
}

TEST_F(SessionsTest, TheEndOfAForkLeavesItsParentsRows) {
  start();
  const std::string parent = open(kPlain, prompt(8, 150));
  const std::int64_t before = sessions().footprint(kOwner, parent)->cached_tokens;
  ASSERT_GE(before, 120);
  for (const auto& length : {std::optional<std::int64_t>(), std::optional<std::int64_t>(130)}) {
    const auto fork = sessions().fork(kOwner, parent, {}, length);
    ASSERT_TRUE(fork.has_value()) << fork.error().message;
    generate(fork->id, 20);
    ASSERT_TRUE(sessions().close(kOwner, fork->id).has_value());
    EXPECT_EQ(sessions().footprint(kOwner, parent)->cached_tokens, before);
  }
}

TEST_F(SessionsTest, ASessionIsIdleFromItsLastUseOn) {
  start("", {.idle_limit = std::chrono::duration<double>(0.8)});
  const std::string used = open(kPlain, prompt(1, 30));
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ASSERT_EQ(generate(used, 1).size(), 1U) << i;
  }
  EXPECT_EQ(sessions().expired(), 0);
}

TEST_F(SessionsTest, AnIdleSessionEndsAndABusyOneDoesNot) {
  start("", {.idle_limit = std::chrono::duration<double>(0.2)});
  const std::string idle = open(kPlain, prompt(1, 150));
  const std::string busy = open(kPlain, prompt(2, 30));
  auto run = sessions().generate(kOwner, busy, request(3), {});
  ASSERT_TRUE(run.has_value());
  for (int i = 0; i < 200 && sessions().expired() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(sessions().find(kOwner, idle).error().status, StatusCode::kNotFound);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_TRUE(sessions().find(kOwner, busy).has_value());
  EXPECT_EQ(finish(std::move(run)).size(), 3U);
}

TEST_F(SessionsTest, AConversationThatNamesItselfIsKeptAsItStands) {
  start();
  Ids text = prompt(1, 50);
  ASSERT_TRUE(sessions().put(kOwner, {.id = "chat"}, text).has_value());
  text.resize(45);  // the client has changed its last turn
  text.insert(text.end(), {140, 141, 142});
  ASSERT_TRUE(sessions().put(kOwner, {.id = "chat"}, text).has_value());
  EXPECT_EQ(sessions().tokens(kOwner, "chat").value(), text);
  EXPECT_EQ(sessions().count(), 1);
}

}  // namespace
}  // namespace kakeya::service
