// Sessions of the demo model whose keys and values lie in an emulated card's memory, coded, and
// with rows that were dropped and restored: drafts, forks and snapshots change no token, and the
// tokens are those of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "formats/scratch_files.h"
#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

struct EmulatedMode {
  const char* name;
  KvType rows;
  Evicted evicted = Evicted::kKeep;
};

// How GoogleTest names the parameter in its messages.
void PrintTo(const EmulatedMode& mode, std::ostream* out) {
  *out << mode.name;
}

// Kernels take their time on the emulator: few tokens, and the least window that rows can be
// restored behind.
constexpr std::int64_t kWindow = 16;
constexpr std::int64_t kReplyTokens = 3;

SessionOptions options_of(const EmulatedMode& mode) {
  SessionOptions options{.context = 64,
                         .max_rows = 8,
                         .kv_full = mode.rows,
                         .kv_sliding = mode.rows,
                         .kv_drafter = mode.rows};
  if (mode.evicted == Evicted::kKeep) return options;
  options.sink = 2;
  options.window = kWindow;
  options.evicted_full = options.evicted_sliding = mode.evicted;
  return options;
}

std::shared_ptr<Engine> open_on(const std::string& backend) {
  EngineOptions options = restoring_options("auto");
  options.backend = backend;
  options.compute = Compute::kF32;
  options.session = {.context = 64, .max_rows = 8};
  return open_engine(options);
}

class EmulatedSessions : public testing::TestWithParam<EmulatedMode> {
 protected:
  static void SetUpTestSuite() {
    emulated_ = open_on("cuda-emulated");
    cpu_ = open_on("cpu");
  }
  static void TearDownTestSuite() {
    emulated_.reset();
    cpu_.reset();
  }

  // A session that has run a prompt.
  static std::unique_ptr<Session> begun(Engine& engine) {
    auto session = engine.create_session(options_of(GetParam())).value();
    const bool evicts = GetParam().evicted != Evicted::kKeep;
    EXPECT_TRUE(session->append(random_ids(evicts ? kWindow + 6 : 10, 1)));
    EXPECT_TRUE(session->prefill());
    return session;
  }
  static GenerateOptions reply(std::int64_t draft_length) {
    return {
        .max_tokens = kReplyTokens, .draft_length = draft_length, .ignore_model_stop_ids = true};
  }

  static inline std::shared_ptr<Engine> emulated_;
  static inline std::shared_ptr<Engine> cpu_;
};

TEST_P(EmulatedSessions, DraftsForksAndSnapshotsChangeNoToken) {
  const auto session = begun(*emulated_);
  std::unique_ptr<Session> fork;
  if (thorough()) fork = session->fork().value();
  const ScratchFolder folder;
  ASSERT_OK(session->snapshot(folder.path("session"), ""));
  const auto restored = emulated_->create_session(options_of(GetParam())).value();
  ASSERT_OK(restored->restore(folder.path("session")));

  const Ids expected = go_on(*session, reply(0)).ids;
  ASSERT_EQ(std::ssize(expected), kReplyTokens);
  const auto drafted = restored->generate(reply(3));
  ASSERT_OK(drafted);
  EXPECT_GT(drafted->drafted, 0);
  EXPECT_EQ(drafted->ids, expected);
  if (fork != nullptr) {
    EXPECT_EQ(go_on(*fork, reply(3)).ids, expected);
  }
  EXPECT_EQ(go_on(*begun(*cpu_), reply(0)).ids, expected);
}

std::vector<EmulatedMode> modes() {
  std::vector<EmulatedMode> modes = {{"e8_dropped", KvType::kE8, Evicted::kDrop},
                                     {"e8_restored", KvType::kE8, Evicted::kRestore}};
  if (!thorough()) return modes;
  modes.insert(modes.end(), {{"f32", KvType::kF32},
                             {"bf16", KvType::kBf16},
                             {"int8", KvType::kInt8},
                             {"bf16_restored", KvType::kBf16, Evicted::kRestore},
                             {"int8_restored", KvType::kInt8, Evicted::kRestore}});
  return modes;
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedSessions, testing::ValuesIn(modes()), [](const auto& test) {
  return std::string(test.param.name);
});

}  // namespace
}  // namespace kakeya::test
