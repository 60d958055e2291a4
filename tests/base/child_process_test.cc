// A check gets nothing of the program that starts it but its arguments.
#include "base/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/clock.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::HasSubstr;

ChildRun shell(const std::string& script, const ChildLimits& limits = {}) {
  return run_child({.words = {"/bin/sh", "-c", script},
                    .environment = {"PATH=/usr/bin:/bin"},
                    .folder = "/"},
                   limits)
      .value();
}

TEST(BridgeChild, SeesNothingOfTheEnvironment) {
  ::setenv("KAKEYA_SECRET", "hidden", 1);
  const ChildRun run =
      run_child({.words = {"/usr/bin/env"}, .environment = {"ONE=1"}, .folder = "/"}, {}).value();
  EXPECT_EQ(run.output, "ONE=1\n");
}

TEST(BridgeChild, HasNoFileOfItsCaller) {
  // Without FD_CLOEXEC, as a library might open it.
  const ScratchFolder folder;
  const int key = ::open(folder.write("key", "secret").c_str(), O_RDONLY);
  const int high = ::fcntl(key, F_DUPFD, 200);
  const std::string numbers[] = {std::to_string(key), std::to_string(high)};
  for (const std::string& number : numbers) {
    EXPECT_EQ(shell("cat /dev/fd/" + number).output, "") << number;
  }
  EXPECT_EQ(shell("cat; echo end").output, "end\n");
  ::close(key);
  ::close(high);
}

TEST(BridgeChild, KeepsBothStreamsApartAndWithinTheirBounds) {
  const ChildRun run = shell("echo out; seq 1 5000 >&2; exit 3");
  EXPECT_EQ(run.output, "out\n");
  EXPECT_EQ(run.messages.size(), 4096U);
  EXPECT_TRUE(run.messages.ends_with("4999\n5000\n"));
  EXPECT_EQ(run.end, ChildEnd::kExited);
  EXPECT_EQ(run.code, 3);
  const ChildRun loud = shell("while :; do echo 12345678; done", {.output_bytes = 100});
  EXPECT_EQ(loud.end, ChildEnd::kTooMuchOutput);
  EXPECT_EQ(loud.output.size(), 100U);
  EXPECT_EQ(shell("printf 1234", {.output_bytes = 4}).end, ChildEnd::kExited);
  // One that exits at once has printed too much all the same.
  EXPECT_EQ(shell("printf 12345", {.output_bytes = 4}).end, ChildEnd::kTooMuchOutput);
}

TEST(BridgeChild, EndsInTimeThoughItPrintsForEver) {
  const Stopwatch clock;
  EXPECT_EQ(shell("while :; do echo x >&2; done", {.seconds = 0.3}).end, ChildEnd::kTimedOut);
  EXPECT_LT(clock.seconds(), 10.0);
}

TEST(BridgeChild, EndsWithAllOfItsGroup) {
  const ScratchFolder folder;
  const std::string late = folder.path("late");
  // Also where the first one exits by itself.
  for (const char* first : {"sleep 60", "exit 0"}) {
    const Stopwatch clock;
    shell("(trap '' TERM HUP; sleep 1; echo x > " + late + ") & " + first, {.seconds = 0.2});
    EXPECT_LT(clock.seconds(), 10.0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  EXPECT_NE(::access(late.c_str(), F_OK), 0);
}

// Without one it can neither read what the user types nor type for the user.
TEST(BridgeChild, HasASessionOfItsOwnAndNoTerminal) {
#ifdef __linux__
  const std::string stat = "set -- $(cat /proc/$$/stat); test $1 = $5 && test $1 = $6 && echo $7";
  EXPECT_EQ(shell(stat).output, "0\n") << "group and session are its own, and no terminal";
#endif
}

TEST(BridgeChild, EndsWhenItsCallerIsStopped) {
  std::atomic<bool> stop = true;
  const ChildRun run =
      run_child({.words = {"/bin/sleep", "60"}, .folder = "/"}, {.seconds = 30.0}, &stop).value();
  EXPECT_EQ(run.end, ChildEnd::kStopped);
}

TEST(BridgeChild, EndsWithACallerThatIsKilled) {
#ifdef __linux__
  const ScratchFolder folder;
  const std::string begun = folder.path("begun");
  const std::string late = folder.path("late");
  const pid_t caller = ::fork();
  if (caller == 0) {
    shell("echo x > " + begun + "; sleep 1; echo x > " + late);
    ::_exit(0);
  }
  while (::access(begun.c_str(), F_OK) != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(caller, SIGKILL);
  ::waitpid(caller, nullptr, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_NE(::access(late.c_str(), F_OK), 0);
#endif
}

TEST(BridgeChild, TakesNoMoreMemoryThanItMay) {
#ifdef __linux__
  const std::string fill = "x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo ${#x}";
  EXPECT_EQ(shell(fill).output, "100000000\n");
  EXPECT_EQ(shell(fill, {.memory_bytes = std::uint64_t{64} << 20}).output, "");
#endif
}

TEST(BridgeChild, SaysHowItEnded) {
  const ChildRun killed = shell("kill -9 $$");
  EXPECT_EQ(killed.end, ChildEnd::kSignal);
  EXPECT_EQ(killed.code, 9);
}

TEST(BridgeChild, SaysWhyItDidNotBecomeTheProgram) {
  const auto message = [](const ChildProgram& program) {
    const auto run = run_child(program, {});
    return run ? "it ran" : run.error().message();
  };
  const ScratchFolder folder;
  for (const std::string& file : {std::string("/nowhere/program"), folder.write("text", "none")}) {
    EXPECT_EQ(message({.words = {file}, .folder = "/"}), file + ": expected a program that runs");
  }
  EXPECT_THAT(message({.words = {"/bin/true"}, .folder = "/nowhere"}), HasSubstr("a folder"));
  ChildProgram confined{.words = {"/bin/true"}, .folder = "/"};
  confined.confine = [] { return false; };
  EXPECT_THAT(message(confined), HasSubstr("a system that confines it"));
  confined.confine = [] { return true; };
  EXPECT_EQ(message(confined), "it ran");
}

TEST(BridgeChild, ReadsItsInputAndWritesOneStreamIfSoWished) {
  const std::string text(200000, 'x');  // more than a pipe holds
  const ChildRun run = run_child({.words = {"/bin/sh", "-c", "wc -c; echo said >&2"},
                                  .environment = {"PATH=/usr/bin:/bin"},
                                  .folder = "/",
                                  .input = text,
                                  .one_stream = true},
                                 {})
                           .value();
  EXPECT_EQ(run.output, "200000\nsaid\n");
  EXPECT_EQ(run.messages, "");
}

TEST(BridgeChild, WritesNoLongerFileThanItMay) {
  const ScratchFolder folder;
  const ChildRun run = shell("head -c 100000 /dev/zero > " + folder.path("long") + "; echo $?",
                             {.file_bytes = 4096});
  EXPECT_NE(run.output, "0\n");
  EXPECT_EQ(std::filesystem::file_size(folder.path("long")), 4096U);
}

}  // namespace
}  // namespace kakeya
