// Forked sessions: a fork goes on exactly as its parent would have, neither ever notices what the
// other does, and what both hold is held once.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/session_modes.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

class ForkTest : public testing::Test {
 protected:
  static std::shared_ptr<Engine> open(const std::string& draft,
                                      std::uint64_t memory_limit = ~std::uint64_t{0}) {
    EngineOptions options = restoring_options(draft);
    options.memory_limit = memory_limit;
    return Engine::open(options).value();
  }
  static void SetUpTestSuite() {
    plain_ = open("none");
    drafting_ = open("auto");
  }
  static void TearDownTestSuite() {
    plain_.reset();
    drafting_.reset();
  }

  static GenerateOptions sampled(std::uint64_t seed, std::int64_t max_tokens) {
    return {.max_tokens = max_tokens,
            .sampling = {.temperature = 1.0F, .top_p = 0.95F, .seed = seed},
            .draft_length = 5,
            .ignore_model_stop_ids = true};
  }

  static inline std::shared_ptr<Engine> plain_;
  static inline std::shared_ptr<Engine> drafting_;
};

// A parent and its fork take turns, each on its own way, until all rings have wrapped several
// times; beside each runs a session that was never forked and does the same.
TEST_F(ForkTest, ParentAndForkGoOnAsIfTheyWereAlone) {
  for (const auto* engine : {&plain_, &drafting_}) {
    for (const SessionMode& mode : session_modes_from(0)) {
      // Without a drafter the same code runs: a few modes will do.
      if (engine == &plain_ && !mode.few) continue;
      const auto create = [&] { return create_session(**engine, mode); };
      const auto begin = [&](Session& session) {
        ASSERT_OK(session.append(random_ids(150, 1)));
        go_on(session, sampled(1, 70));
      };
      const auto parent = create();
      const auto alone_parent = create();
      const auto alone_fork = create();
      for (Session* session : {parent.get(), alone_parent.get(), alone_fork.get()}) begin(*session);
      const auto fork = parent->fork().value();
      ASSERT_TRUE(std::ranges::equal(fork->tokens(), parent->tokens()));
      const int turns = engine == &drafting_ && mode.few ? by_form(3, 4) : by_form(1, 4);
      for (int turn = 0; turn < turns; ++turn) {
        // The first turn ends 40 tokens behind the fork and is taken back to 10 before it.
        const std::int64_t count = turn == 0 ? 40 : 60;
        const Position back = turn == 0 ? 50 : 40;
        ASSERT_EQ(go_on(*fork, sampled(2, count)), go_on(*alone_fork, sampled(2, count)))
            << mode.name << ", fork, turn " << turn;
        ASSERT_EQ(go_on(*parent, sampled(3, count)), go_on(*alone_parent, sampled(3, count)))
            << mode.name << ", parent, turn " << turn;
        for (Session* session : {parent.get(), alone_parent.get(), fork.get(), alone_fork.get()}) {
          ASSERT_OK(session->truncate(static_cast<Position>(session->tokens().size()) - back));
        }
        for (Session* session : {fork.get(), alone_fork.get()}) {
          ASSERT_OK(session->append(random_ids(20, 9)));
        }
      }
    }
  }
}

TEST_F(ForkTest, AForkIsTakenAtAnyMoment) {
  for (const auto* engine : {&plain_, &drafting_}) {
    const auto create = [&] { return (*engine)->create_session().value(); };
    // Nothing at all; tokens that are pending; a prompt that was run, which has logits.
    const auto empty = create();
    const auto of_empty = empty->fork().value();
    EXPECT_TRUE(of_empty->tokens().empty());
    EXPECT_EQ(of_empty->generate({}).error().code(), StatusCode::kFailedPrecondition);
    const auto session = create();
    ASSERT_OK(session->append(random_ids(300, 2)));
    const auto of_pending = session->fork().value();
    ASSERT_OK(session->prefill());
    const auto of_run = session->fork().value();
    EXPECT_EQ(of_pending->position(), 0);
    EXPECT_EQ(of_run->position(), 299);
    ASSERT_OK(of_empty->append(random_ids(300, 2)));
    const Stream expected = go_on(*session, sampled(4, 50));
    EXPECT_EQ(go_on(*of_run, sampled(4, 50)), expected);
    EXPECT_EQ(go_on(*of_pending, sampled(4, 50)), expected);
    EXPECT_EQ(go_on(*of_empty, sampled(4, 50)), expected);
    // A fork of a fork outlives those before it.
    auto last = of_run->fork().value();
    for (int i = 0; i < 4; ++i) last = last->fork().value();
    EXPECT_EQ(go_on(*last, sampled(5, 50)), go_on(*session, sampled(5, 50)));
  }
}

TEST_F(ForkTest, AForkOutlivesItsParentAndTakesItsPlace) {
  plain_->create_session().value();  // makes the workspace, which stays
  const std::uint64_t before = plain_->footprint().total_reserved();
  auto parent = plain_->create_session().value();
  ASSERT_OK(parent->append(random_ids(100, 3)));
  const auto alone = plain_->create_session().value();
  ASSERT_OK(alone->append(random_ids(100, 3)));
  const std::uint64_t one = (plain_->footprint().total_reserved() - before) / 2;
  EXPECT_EQ(go_on(*parent, sampled(6, 20)), go_on(*alone, sampled(6, 20)));
  const auto fork = parent->fork().value();
  parent.reset();
  EXPECT_EQ(go_on(*fork, sampled(6, 600)), go_on(*alone, sampled(6, 600)));
  // Blocks that the parent left are the fork's: nothing was copied.
  EXPECT_EQ(plain_->footprint().total_reserved(), before + 2 * one);
  EXPECT_EQ(fork->footprint().total_reserved(), one);
}

TEST_F(ForkTest, SeveralThreadsGoOnFromTheSamePlace) {
  for (const auto* engine : {&plain_, &drafting_}) {
    auto parent = (*engine)->create_session().value();
    ASSERT_OK(parent->append(random_ids(250, 4)));
    ASSERT_OK(parent->prefill());
    std::vector<std::unique_ptr<Session>> sessions;
    for (int i = 0; i < 3; ++i) sessions.push_back(parent->fork().value());
    sessions.push_back(std::move(parent));
    std::vector<Stream> streams(sessions.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      threads.emplace_back([&, i] {
        streams[i] = go_on(*sessions[i], sampled(i % 2, 40));
        const auto again = sessions[i]->fork().value();
        if (i < 2) sessions[i].reset();  // while the others read what was shared
        go_on(*again, sampled(7, 30));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      const auto alone = (*engine)->create_session().value();
      ASSERT_OK(alone->append(random_ids(250, 4)));
      EXPECT_EQ(streams[i], go_on(*alone, sampled(i % 2, 40))) << i;
    }
  }
}

// A budget for one session with its fork's scratch, but not for copies of what they share.
TEST_F(ForkTest, ARefusedCopyChangesNothing) {
  for (const char* draft : {"none", "auto"}) {
    auto engine = open(draft);
    std::uint64_t limit = 0;
    {
      const auto session = engine->create_session().value();
      ASSERT_OK(session->append(random_ids(200, 5)));
      go_on(*session, sampled(8, 10));
      limit = engine->footprint().total_reserved();
    }
    bool refused = false;
    bool granted = false;
    // From nothing to all that the two can want.
    for (std::uint64_t more = 0; more <= (4U << 20);
         more += static_cast<std::uint64_t>(by_form(288, 96)) << 10) {
      engine = open(draft, limit + more);
      const auto session = engine->create_session().value();
      ASSERT_OK(session->append(random_ids(200, 5)));
      go_on(*session, sampled(8, 10));
      auto fork = session->fork().value();
      const auto held = session->tokens().size();
      const auto result = fork->generate(sampled(9, 40));
      if (result) {
        granted = true;
      } else {
        refused = true;
        EXPECT_EQ(result.error().code(), StatusCode::kResourceExhausted);
        EXPECT_EQ(result.error().message().find('\n'), std::string::npos);
        EXPECT_NE(result.error().message().find("memory budget of"), std::string::npos);
      }
      EXPECT_EQ(session->tokens().size(), held);
      // Whatever the fork came to, it may be given up, or kept to go on when there is room.
      const Ids of_fork(fork->tokens().begin(), fork->tokens().end());
      fork.reset();
      ASSERT_OK(session->sync(of_fork));
      const auto alone = plain_->create_session().value();
      ASSERT_OK(alone->append(of_fork));
      EXPECT_EQ(go_on(*session, sampled(9, 10)).ids, go_on(*alone, sampled(9, 10)).ids) << more;
    }
    EXPECT_TRUE(refused);
    EXPECT_TRUE(granted);
  }
}

}  // namespace
}  // namespace kakeya::test
