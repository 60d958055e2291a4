// A folder that fails or hangs under the prompt cache: requests go on without it.
#include "runtime/timed_prefix_files.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/prompt_cache.h"

namespace kakeya::test {
namespace {

using Access = PrefixFiles::Access;
using std::chrono::milliseconds;

constexpr std::uint64_t kFolderRoom = std::uint64_t{1} << 30;
constexpr milliseconds kFolderPatience(200);
// Far more than what waits once for that, and far less than the folder takes.
constexpr std::chrono::seconds kSoon(5);

// Accesses of one kind, or all, wait until they are let go.
struct Gate {
  std::atomic<bool> closed = false;

  void wait() const {
    while (closed) std::this_thread::sleep_for(milliseconds(1));
  }
};

class TimedPrefixFilesTest : public testing::Test {
 protected:
  using BeforeAccess = std::function<Status(Access)>;

  std::unique_ptr<PromptCache> open(BeforeAccess before_access = {}) {
    auto files = TimedPrefixFiles::open({.dir = folder_.path("cache"),
                                         .limit_bytes = kFolderRoom,
                                         .note =
                                             [this](const std::string& note) {
                                               const std::lock_guard lock(mutex_);
                                               notes_.push_back(note);
                                             },
                                         .before_access = std::move(before_access)},
                                        {.reader = kFolderPatience, .writer = kFolderPatience});
    EXPECT_TRUE(files.has_value()) << files.error().message();
    return std::make_unique<PromptCache>(kFolderRoom, model_->budget(), std::move(*files));
  }

  // A session that has run the text, and one to which its beginning is given from the cache.
  void put(PromptCache& cache, const Ids& text) {
    const auto timeline = session();
    ASSERT_OK(timeline->push(text));
    ASSERT_OK(timeline->run_pending());
    PromptCache::Cursor cursor(cache, {});
    cache.put(cursor, {.timeline = timeline.get()});
  }
  Position take(PromptCache& cache, const Ids& text) {
    const auto timeline = session();
    EXPECT_TRUE(timeline->push(text).has_value());
    PromptCache::Cursor cursor(cache, {});
    return cache.take(cursor, {.timeline = timeline.get()}).length;
  }
  void write_file(const Ids& text) {
    const auto cache = open();
    put(*cache, text);
    cache->flush_files();
    ASSERT_EQ(cache->statistics().disk_entries, 1);
  }
  std::vector<std::string> notes() {
    const std::lock_guard lock(mutex_);
    return notes_;
  }
  void cut_files() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path("cache"))) {
      std::filesystem::resize_file(entry.path(), 4096);
    }
  }

 private:
  std::unique_ptr<Timeline> session() {
    return model_->timeline({.context = 512, .max_rows = 64}, 1);
  }

  const std::unique_ptr<TestModel> model_ = TestModel::load(KAKEYA_DEMO_MODEL, {.name = "cpu"});
  ScratchFolder folder_;
  std::mutex mutex_;
  std::vector<std::string> notes_;
};

TEST_F(TimedPrefixFilesTest, GivesWhatTheFolderHas) {
  const Ids text = random_ids(200, 1);
  write_file(text);
  const auto cache = open();
  EXPECT_EQ(take(*cache, joined({text, {5}})), 200);
  EXPECT_TRUE(notes().empty());
}

// While it is read: a mapped file would end the program.
TEST_F(TimedPrefixFilesTest, AFileThatIsCutOffIsNotUsed) {
  const Ids text = random_ids(300, 1);  // more than a mebibyte of rows
  write_file(text);
  std::atomic<int> reads = 0;
  const auto cache = open([&](Access what) {
    if (what == Access::kRead && ++reads == 2) cut_files();
    return Status();
  });
  EXPECT_EQ(take(*cache, joined({text, {5}})), 0);
  EXPECT_EQ(notes().size(), 1U);
  EXPECT_EQ(cache->bytes(), 0U);
}

TEST_F(TimedPrefixFilesTest, AFileThatCannotBeReadIsNotUsed) {
  const Ids text = random_ids(200, 1);
  write_file(text);
  const auto cache = open([&](Access what) -> Status {
    if (what != Access::kRead) return {};
    return error(StatusCode::kUnavailable, "input/output error");
  });
  EXPECT_EQ(take(*cache, joined({text, {5}})), 0);
  EXPECT_EQ(notes().size(), 1U);
  EXPECT_EQ(cache->bytes(), 0U);
}

// Whatever hangs, nobody waits for it longer than once, and one note says so.
TEST_F(TimedPrefixFilesTest, NobodyWaitsForAFolderThatHangs) {
  const Ids text = random_ids(200, 1);
  write_file(text);
  for (const Access hangs : {Access::kLook, Access::kRead, Access::kUse, Access::kWrite}) {
    const auto gate = std::make_shared<Gate>();
    const std::size_t before = notes().size();
    auto cache = open([gate, hangs](Access what) {
      if (what == hangs) gate->wait();
      return Status();
    });
    gate->closed = true;
    const auto begun = std::chrono::steady_clock::now();
    const bool reads = hangs == Access::kUse || hangs == Access::kWrite;
    take(*cache, joined({text, {5}}));
    for (std::uint64_t i = 2; i < 12; ++i) {
      const Ids other = random_ids(200, 100 * static_cast<std::uint64_t>(hangs) + i);
      put(*cache, other);
      EXPECT_EQ(take(*cache, joined({other, {5}})), 200);
      cache->look_up({}, random_ids(100, 50 + i));
      cache->forget({}, random_ids(100, 50 + i), 0);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kSoon) << static_cast<int>(hangs);
    EXPECT_EQ(cache->statistics().disk_hits, reads ? 1 : 0) << static_cast<int>(hangs);
    cache.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kSoon) << static_cast<int>(hangs);
    EXPECT_EQ(notes().size(), before + 1) << static_cast<int>(hangs);
    gate->closed = false;
    std::this_thread::sleep_for(milliseconds(50));
  }
}

TEST_F(TimedPrefixFilesTest, AStartDoesNotWaitForAFolderThatHangs) {
  const Ids text = random_ids(200, 1);
  write_file(text);
  const auto gate = std::make_shared<Gate>();
  gate->closed = true;
  const auto begun = std::chrono::steady_clock::now();
  const auto cache = open([gate](Access) {
    gate->wait();
    return Status();
  });
  EXPECT_EQ(take(*cache, joined({text, {5}})), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kSoon);
  EXPECT_EQ(notes().size(), 1U);
  // It is used once it answers.
  gate->closed = false;
  Position found = 0;
  for (int i = 0; i < 500 && found == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
    found = take(*cache, joined({text, {5}}));
  }
  EXPECT_EQ(found, 200);
}

// A session that needs memory does not wait for a file that is being written from it.
TEST_F(TimedPrefixFilesTest, AFileThatHangsHoldsNoMemory) {
  const auto gate = std::make_shared<Gate>();
  auto cache = open([gate](Access what) {
    if (what == Access::kWrite) gate->wait();
    return Status();
  });
  gate->closed = true;
  const auto begun = std::chrono::steady_clock::now();
  put(*cache, random_ids(200, 1));
  while (cache->bytes() > 0) ASSERT_TRUE(cache->reclaim(1));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kSoon);
  gate->closed = false;
}

}  // namespace
}  // namespace kakeya::test
