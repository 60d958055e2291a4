// Files that take another's place in one step, while others clean up beside them.
#include "base/atomic_file.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

#include "base/clock.h"
#include "formats/scratch_files.h"
#include "kakeya/status.h"

namespace kakeya::test {
namespace {

// Nobody takes a file for abandoned between its making and its lock.
TEST(AtomicFile, IsKeptWhileOthersRemoveWhatIsAbandoned) {
  const ScratchFolder folder;
  const std::string target = folder.path("result.json");
  std::atomic<bool> is_done = false;
  std::thread sweeper([&] {
    while (!is_done) AtomicFile::remove_abandoned(target);
  });
  Status first;
  const Stopwatch watch;
  for (int i = 0; i < 3000 && watch.seconds() < 2 && first; ++i) {
    auto file = AtomicFile::create(target);
    first = file ? file->commit() : Status(Unexpected(file.error()));
  }
  is_done = true;
  sweeper.join();
  EXPECT_TRUE(first) << first.error().message();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.root()), {}), 1);
}

}  // namespace
}  // namespace kakeya::test
