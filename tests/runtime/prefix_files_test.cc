// The folder of the prompt cache by itself, shared by engines that write and delete the same files.
#include "runtime/prefix_files.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

constexpr int kTexts = 8;

Status write_text(PrefixFiles& files, int text) {
  const std::vector<TokenId> tokens(10, text);
  const std::vector<std::byte> rows(1 << 12);
  PrefixFiles::File file;
  file.mode = files.mode_of({});
  file.record.length = std::ssize(tokens);
  file.record.text_checksum = text_checksum(tokens);
  file.name = PrefixFiles::name_of(file.mode, file.record);
  return files.write(
      file, {}, tokens, std::as_bytes(std::span(rows)), [] { return true; }, [] {});
}

// A file may be gone before its writer has done with it: each deletes what the other has written.
TEST(PrefixFiles, AnothersDeletionDoesNotFailAWrite) {
  constexpr std::uint64_t kRoomForSome = 3 << 14;
  const ScratchFolder folder;
  std::vector<std::unique_ptr<PrefixFiles>> shared;
  for (int i = 0; i < 2; ++i) {
    shared.push_back(PrefixFiles::open(folder.path("cache"), kRoomForSome, "", {}).value());
  }
  std::vector<std::vector<Status>> done(shared.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < shared.size(); ++i) {
    threads.emplace_back([&, i] {
      const int step = i == 0 ? 1 : 3;
      const Stopwatch watch;  // a slow disk does less
      for (int round = 0; round < 200 && watch.seconds() < 2.0; ++round) {
        done[i].push_back(write_text(*shared[i], round * step % kTexts));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& writes : done) {
    for (const Status& status : writes) ASSERT_OK(status);
  }
}

}  // namespace
}  // namespace kakeya::test
