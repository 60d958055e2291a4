// The prompt cache's folder with conversations as servers have them: several that begin alike for a
// while, grow turn by turn, and go on behind a new start or at another server.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "runtime/prompt_cache_folder.h"

namespace kakeya::test {
namespace {

class PromptCacheConversations : public PromptCacheFolder {
 protected:
  static constexpr int kConversations = 24;
  static constexpr int kTurns = 6;
  static constexpr int kQuestion = 4;  // tokens
  static constexpr int kAnswer = 20;

  // Each leaves the beginning that all have at another place, some of them together. They are short
  // enough for the rings to have all of their rows, so that one can go on from any other.
  PromptCacheConversations() {
    const Ids system = random_ids(100, 1);
    for (std::uint64_t i = 0; i < kConversations; ++i) {
      const auto common = static_cast<std::ptrdiff_t>(8 + 7 * (i * 7 % 13));
      texts_.push_back(joined({{system.begin(), system.begin() + common},
                               random_ids(80 + static_cast<std::int64_t>(i), 100 + i)}));
    }
  }

  // The next turn of each conversation. From the second one on, 95 % of each prompt must come
  // from what is held.
  void take_turn(EngineImpl& engine, int turn) {
    // So that reading pays, however slow the disk of a busy machine seems.
    engine.prompt_cache()->note_run(1, 1e6);
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const auto seed = 1000 * static_cast<std::uint64_t>(turn) + i;
      const Ids prompt = joined({texts_[i], random_ids(kQuestion, seed)});
      const auto session = engine.create_session().value();
      const std::int64_t kept = session->sync(prompt).value();
      if (turn > 0) {
        EXPECT_GE(kept, std::ssize(prompt) * 95 / 100) << "conversation " << i << ", turn " << turn;
      }
      go_on(*session, generation(kAnswer));
      texts_[i].assign(session->tokens().begin(), session->tokens().end());
    }
  }

  void expect_all_used(const EngineImpl& engine) {
    EXPECT_EQ(notes(), std::vector<std::string>());
    EXPECT_EQ(std::ssize(files()), engine.prompt_cache_statistics().disk_entries);
  }

 private:
  std::vector<Ids> texts_;
};

TEST_F(PromptCacheConversations, GoOnFromFilesBehindEachStart) {
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto engine = open("none");
    expect_all_used(*engine);
    take_turn(*engine, turn);
  }
}

TEST_F(PromptCacheConversations, GoOnAtAnotherEngine) {
  const auto one = open("none");
  const auto other = open("none");
  for (int turn = 0; turn < 4; ++turn) {
    EngineImpl& engine = turn % 2 == 0 ? *one : *other;
    take_turn(engine, turn);
    flushed(engine);
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // so often an engine looks
  }
  expect_all_used(*open("none"));
}

}  // namespace
}  // namespace kakeya::test
