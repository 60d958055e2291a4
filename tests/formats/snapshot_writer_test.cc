// The writing side of snapshot files: every moment at which it may stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "formats/snapshot_scratch.h"

namespace kakeya {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(SnapshotWriter, WritesTheSameFileInPieces) {
  const ScratchFolder folder;
  const Contents contents = {{"rows", std::string(5000, 'r')}, {"tokens", "12345"}};
  ASSERT_TRUE(write_snapshot(folder.path("whole"), kKey, contents).has_value());
  auto writer = SnapshotWriter::create(folder.path("pieces"));
  ASSERT_TRUE(writer.has_value());
  SnapshotWriter moved = std::move(*writer);
  ASSERT_TRUE(moved.begin("rows").has_value());
  for (std::size_t size : {0U, 1U, 63U, 64U, 1000U, 3872U}) {
    ASSERT_TRUE(moved.append(bytes_of(std::string(size, 'r'))).has_value());
  }
  ASSERT_TRUE(moved.end().has_value());
  ASSERT_TRUE(moved.add("tokens", bytes_of("12345")).has_value());
  ASSERT_TRUE(moved.finish(kKey).has_value());
  EXPECT_EQ(read_file(folder.path("pieces")), read_file(folder.path("whole")));
}

TEST(SnapshotWriter, LeavesTheOldFileAndNothingElseWhenDestroyed) {
  const ScratchFolder folder;
  const std::string path = folder.write("s", "old");
  for (const bool in_section : {false, true}) {
    auto writer = SnapshotWriter::create(path);
    ASSERT_TRUE(writer.has_value());
    EXPECT_EQ(files_in(folder), 2U);
    ASSERT_TRUE(writer->add("tokens", bytes_of("12345")).has_value());
    EXPECT_EQ(in_section && writer->begin("rows").has_value(), in_section);
  }
  EXPECT_EQ(files_in(folder), 1U);
  EXPECT_EQ(read_file(path), "old");
}

TEST(SnapshotWriter, RefusesCallsOutOfTurnAndGoesOn) {
  const ScratchFolder folder;
  auto writer = SnapshotWriter::create(folder.path("s"));
  ASSERT_TRUE(writer.has_value());
  EXPECT_EQ(code_of(writer->append(bytes_of("1"))), StatusCode::kFailedPrecondition);
  EXPECT_THAT(message_of(writer->end()), HasSubstr("s: expected an open section, got none"));
  ASSERT_TRUE(writer->begin("tokens").has_value());
  EXPECT_THAT(message_of(writer->begin("b")), HasSubstr("expected no open section, got tokens"));
  EXPECT_EQ(code_of(writer->add("b", {})), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code_of(writer->finish({})), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(writer->append(bytes_of("12345")).has_value());
  ASSERT_TRUE(writer->end().has_value());
  ASSERT_TRUE(writer->finish(kKey).has_value());
  EXPECT_THAT(message_of(writer->finish(kKey)), HasSubstr("s is no longer being written"));
  EXPECT_EQ(code_of(writer->add("c", {})), StatusCode::kFailedPrecondition);
  EXPECT_EQ(read_snapshot(folder.path("s"))->second, (Contents{{"tokens", "12345"}}));
}

TEST(SnapshotWriter, RefusesWhatTheReaderWouldRefuse) {
  const ScratchFolder folder;
  auto writer = SnapshotWriter::create(folder.path("s"));
  ASSERT_TRUE(writer.has_value());
  for (const std::string& name : {std::string(), std::string(129, 'n'), std::string("\xff\n")}) {
    EXPECT_EQ(code_of(writer->add(name, {})), StatusCode::kInvalidArgument);
    EXPECT_THAT(message_of(writer->add(name, {})), AllOf(HasSubstr("UTF-8"), Not(HasSubstr("\n"))));
  }
  ASSERT_TRUE(writer->add("0", {}).has_value());
  EXPECT_THAT(message_of(writer->add("0", {})), HasSubstr("name once, got \"0\" twice"));
  EXPECT_THAT(message_of(writer->finish({{"\xff", ""}})), HasSubstr("key \\xff: expected valid"));
  EXPECT_THAT(message_of(writer->finish({{"a", "\xff"}})), HasSubstr("got \"\\xff\""));
  EXPECT_THAT(message_of(writer->finish({{"a", std::string(4 << 20, 'x')}})),
              HasSubstr("header: expected at most 4194304 bytes"));
  for (int i = 1; i < 4096; ++i) ASSERT_TRUE(writer->add(std::to_string(i), {}).has_value());
  EXPECT_THAT(message_of(writer->add("more", {})), HasSubstr("at most 4096 sections"));
  ASSERT_TRUE(writer->finish({}).has_value());
  EXPECT_EQ(read_snapshot(folder.path("s"))->second.size(), 4096U);
}

TEST(SnapshotWriter, SaysWhatTheDiskRefuses) {
  const ScratchFolder folder;
  const auto missing = SnapshotWriter::create(folder.path("no/such"));
  EXPECT_EQ(code_of(missing), StatusCode::kUnavailable);
  EXPECT_THAT(message_of(missing), HasSubstr("no/such: No such file"));
  std::filesystem::create_directory(folder.path("taken"));
  EXPECT_EQ(code_of(write_snapshot(folder.path("taken"), {}, {})), StatusCode::kUnavailable);
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(SnapshotWriter, ForgetsAFileThatOutgrowsTheLimitOfTheProcess) {
  const ScratchFolder folder;
  const std::string path = folder.write("s", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto writer = SnapshotWriter::create(path);
    const Status refused = writer->add("rows", bytes_of(std::string(5000, 'r')));
    const bool right = !refused && refused.error().code() == StatusCode::kUnavailable &&
                       writer->finish({}).error().code() == StatusCode::kFailedPrecondition;
    ::_exit(right ? 0 : 1);  // the child must not go on with the tests
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(files_in(folder), 1U);
}

// Contents that all follow from one number.
Contents generation(unsigned number) {
  return {{"number", std::to_string(number)},
          {"rows", std::string(1000 + number % 7 * 30'000, static_cast<char>('a' + number % 26))}};
}

// A file that is one whole generation; returns its number.
unsigned expect_whole(const std::string& path) {
  const auto read = read_snapshot(path);
  EXPECT_TRUE(read.has_value()) << read.error().message();
  if (!read || read->second.empty()) return 0;
  const auto number = static_cast<unsigned>(std::stoul(read->second[0].second));
  EXPECT_TRUE(read->second == generation(number)) << number;
  return number;
}

TEST(SnapshotWriter, LeavesAWholeFileWhenKilledAtAnyTime) {
  const ScratchFolder folder;
  const std::string path = folder.path("s");
  ASSERT_TRUE(write_snapshot(path, {}, generation(0)).has_value());
  std::mt19937 random(11);
  unsigned last = 0;
  for (int kill = 0; kill < 20; ++kill) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (unsigned number = last + 1;; ++number) {
        if (!write_snapshot(path, {}, generation(number))) ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the child could not write";
    const unsigned number = expect_whole(path);
    EXPECT_GE(number, last);
    last = number;
  }
  EXPECT_GT(last, 0U);  // or no child ever finished a file, and nothing was tested
}

TEST(SnapshotWriter, LeavesTheOldFileWhenKilledBeforeItFinishes) {
  const ScratchFolder folder;
  const std::string path = folder.path("s");
  ASSERT_TRUE(write_snapshot(path, {}, generation(3)).has_value());
  for (int steps = 0; steps < 3; ++steps) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto writer = SnapshotWriter::create(path);
      if (steps > 0) (void)writer->begin("rows");
      if (steps > 1) (void)writer->append(bytes_of("rrr"));
      ::raise(SIGKILL);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_EQ(expect_whole(path), 3U);
  }
}

}  // namespace
}  // namespace kakeya
