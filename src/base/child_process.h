// Programs with an argument vector and limits: no shell, and nothing of the caller's but what is
// given.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kakeya/status.h"

namespace kakeya {

struct ChildLimits {
  double seconds = 60.0;                                // of wall time
  std::uint64_t output_bytes = std::uint64_t{8} << 20;  // of standard output, more ends it
  std::uint64_t file_bytes = 0;                         // of each file that it writes; 0: any
  // The limit of memory that is its own, in each process (Linux; other systems do not heed it); 0:
  // any.
  std::uint64_t memory_bytes = 0;
};

enum class ChildEnd : std::uint8_t { kExited, kSignal, kTimedOut, kTooMuchOutput, kStopped };

struct ChildRun {
  ChildEnd end = ChildEnd::kExited;
  int code = 0;               // the exit code, or the signal
  std::string output = {};    // standard output, at most output_bytes
  std::string messages = {};  // the last 4 KiB of standard error
  double seconds = 0.0;
};

// The program to run.
struct ChildProgram {
  std::vector<std::string> words;             // words[0]: the file
  std::vector<std::string> environment = {};  // "NAME=VALUE", and nothing else
  std::string folder = {};                    // where it begins
  std::string input = {};                     // what it can read
  bool one_stream = false;  // standard error goes into the output, and there are no messages
  // Called in the child before the program takes its place. Between fork and exec: it may neither
  // allocate nor lock. False: the program is not run.
  std::function<bool()> confine = {};
};

// Runs a program that has no open file but its streams, no terminal, and a session and process
// group of its own. All of the group is killed when the program ends, by itself or by a limit, or
// `stop` (null: none) becomes true; a process that leaves the group is not. On Linux the program
// also ends where the thread that runs it does, by a kill for instance; what it started itself is
// left then. Any thread. Errors: kUnavailable if there is no process for it, its folder cannot be
// entered, `confine` returns false or the file is no program.
Result<ChildRun> run_child(const ChildProgram& program,
                           const ChildLimits& limits,
                           const std::atomic<bool>* stop = nullptr);

// Where programs of the system are looked for, whatever the caller's environment says.
inline constexpr const char* kProgramFolders = "/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin";
// The path of one of them. Errors: kNotFound.
Result<std::string> find_system_program(const std::string& name);

}  // namespace kakeya
