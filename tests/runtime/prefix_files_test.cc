// The folder of the prompt cache by itself: its limit, what goes first, and engines that share it.
#include "runtime/prefix_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

constexpr int kTexts = 8;
constexpr std::size_t kRowBytes = 1 << 12;
// A file of one text: frame, header and rows.
constexpr std::uint64_t kFileBytes = 5 << 10;

class PrefixFilesTest : public testing::Test {
 protected:
  std::string dir() const { return folder_.path("cache"); }

  using BeforeAccess = std::function<Status(PrefixFiles::Access)>;
  std::unique_ptr<PrefixFiles> open(std::uint64_t limit, BeforeAccess before_access = {}) {
    auto files = std::make_unique<PrefixFiles>(PrefixFiles::Options{
        .dir = dir(), .limit_bytes = limit, .before_access = std::move(before_access)});
    EXPECT_TRUE(files->start().has_value());
    return files;
  }

  // All files in the folder, and their bytes.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const std::string& name : names()) sum += std::filesystem::file_size(dir() + "/" + name);
    return sum;
  }

  void damage(const std::string& name, std::size_t size) const {
    std::ofstream(dir() + "/" + name, std::ios::binary) << std::string(size, 'x');
  }

 private:
  ScratchFolder folder_;
};

PrefixFiles::File file_of(const PrefixFiles& files, int text, const PrefixFiles::File* parent) {
  const std::vector<TokenId> tokens(10, text);
  PrefixFiles::File file;
  file.mode = files.mode_of({});
  file.record.length = std::ssize(tokens);
  if (parent != nullptr) {
    file.record.begin = 5;
    file.record.parent = parent->name;
  }
  file.record.text_checksum = text_checksum(tokens);
  file.name = PrefixFolder::name_of(file.mode, file.record);
  return file;
}

Status write_text(PrefixFiles& files, int text, const PrefixFiles::File* parent = nullptr) {
  const PrefixFiles::File file = file_of(files, text, parent);
  const std::vector<TokenId> tokens(static_cast<std::size_t>(10 - file.record.begin), text);
  return files.write(
      file, {}, tokens, kRowBytes, [](std::uint64_t, std::span<std::byte>) { return Status(); },
      [] { return Status(); });
}

bool holds(const PrefixFiles& files, int text) {
  return files.file(file_of(files, text, nullptr).name).has_value();
}

// A file may be gone before its writer has done with it: each deletes what the other has written.
// Together they keep the limit.
TEST_F(PrefixFilesTest, AnothersDeletionDoesNotFailAWrite) {
  constexpr std::uint64_t kRoomForSome = 8 * kFileBytes;
  std::vector<std::unique_ptr<PrefixFiles>> shared;
  for (int i = 0; i < 2; ++i) shared.push_back(open(kRoomForSome));
  const Stopwatch watch;  // a slow disk does less
  for (int round = 0; round < 20 && watch.seconds() < 2.0; ++round) {
    std::vector<std::vector<Status>> done(shared.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < shared.size(); ++i) {
      threads.emplace_back([&, i] {
        const int step = i == 0 ? 1 : 3;
        for (int text = 0; text < 10; ++text) {
          done[i].push_back(write_text(*shared[i], (10 * round + text) * step % (2 * kTexts)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& writes : done) {
      for (const Status& status : writes) ASSERT_OK(status);
    }
    ASSERT_LE(bytes(), kRoomForSome);
  }
}

// Each start leaves damaged files behind, which nobody can use.
TEST_F(PrefixFilesTest, KeepsTheLimitOverManyStarts) {
  constexpr std::uint64_t kLimit = 12 * kFileBytes;
  std::filesystem::create_directories(dir());
  damage("notes.txt", 100);
  damage("notes.prefix", 100);
  for (int start = 0; start < 20; ++start) {
    for (int i = 0; i < 3; ++i) damage(fmt::format("{:032x}.prefix", 3 * start + i), 20000);
    const auto files = open(kLimit);
    EXPECT_LE(bytes(), kLimit + 200);
    for (int text = 0; text < 20; ++text) {
      ASSERT_OK(write_text(*files, 100 * start + text));
      ASSERT_LE(bytes(), kLimit + 200);
    }
    EXPECT_EQ(files->bytes() + 200, bytes());
  }
  EXPECT_TRUE(std::filesystem::exists(dir() + "/notes.txt"));
  EXPECT_TRUE(std::filesystem::exists(dir() + "/notes.prefix"));
}

TEST_F(PrefixFilesTest, WhatNobodyCanUseGoesFirst) {
  std::filesystem::create_directories(dir());
  const auto files = open(16 * kFileBytes);
  for (int text = 0; text < 5; ++text) ASSERT_OK(write_text(*files, text));
  damage(std::string(32, '1') + ".prefix", 8 * kFileBytes);
  ASSERT_OK(write_text(*files, 5));
  EXPECT_TRUE(std::filesystem::exists(dir() + "/" + std::string(32, '1') + ".prefix"));
  for (int text = 6; text < 10; ++text) ASSERT_OK(write_text(*files, text));
  EXPECT_FALSE(std::filesystem::exists(dir() + "/" + std::string(32, '1') + ".prefix"));
  for (int text = 0; text < 10; ++text) EXPECT_TRUE(holds(*files, text)) << text;
}

TEST_F(PrefixFilesTest, WritingAChildKeepsItsParent) {
  const auto files = open(5 * kFileBytes);
  for (int text = 0; text < 3; ++text) ASSERT_OK(write_text(*files, text));
  const PrefixFiles::File parent = file_of(*files, 0, nullptr);
  ASSERT_OK(write_text(*files, 7, &parent));
  EXPECT_TRUE(files->file(file_of(*files, 7, &parent).name).has_value());
  EXPECT_TRUE(holds(*files, 0));
  EXPECT_FALSE(holds(*files, 1));
  EXPECT_TRUE(holds(*files, 2));
}

TEST_F(PrefixFilesTest, ANewStartKnowsTheOrderOfUse) {
  {
    const auto files = open(5 * kFileBytes);
    for (int text = 0; text < 3; ++text) ASSERT_OK(write_text(*files, text));
    files->use(file_of(*files, 0, nullptr).name);
  }
  const auto files = open(5 * kFileBytes);
  ASSERT_OK(write_text(*files, 3));
  EXPECT_TRUE(holds(*files, 0));
  EXPECT_FALSE(holds(*files, 1));
  EXPECT_TRUE(holds(*files, 2));
}

// One that another engine has used since is not the oldest.
TEST_F(PrefixFilesTest, KnowsWhatOthersHaveUsed) {
  const auto one = open(5 * kFileBytes);
  for (int text = 0; text < 3; ++text) ASSERT_OK(write_text(*one, text));
  const auto other = open(5 * kFileBytes);
  other->use(file_of(*other, 0, nullptr).name);
  ASSERT_OK(write_text(*one, 3));
  EXPECT_TRUE(holds(*one, 0));
  EXPECT_FALSE(holds(*one, 1));
}

TEST_F(PrefixFilesTest, AFullDiskMakesRoomAndGoesOn) {
  constexpr std::uint64_t kDisk = 6 * kFileBytes;
  const auto files = open(std::uint64_t{1} << 30, [&](PrefixFiles::Access what) -> Status {
    if (what != PrefixFiles::Access::kWrite) return {};
    std::uint64_t finished = 0;
    for (const std::string& name : names()) {
      if (name.ends_with(".prefix")) finished += std::filesystem::file_size(dir() + "/" + name);
    }
    if (finished + kFileBytes <= kDisk) return {};
    return error(StatusCode::kResourceExhausted, "no space left on device");
  });
  for (int text = 0; text < 20; ++text) {
    ASSERT_OK(write_text(*files, text));
    EXPECT_TRUE(holds(*files, text));
  }
  EXPECT_LE(bytes(), kDisk);
  EXPECT_GE(bytes(), kDisk / 2);
}

}  // namespace
}  // namespace kakeya::test
