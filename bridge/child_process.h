// Programs with an argument vector and limits: no shell, and nothing of the caller's but what is
// given.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::bridge {

struct ChildLimits {
  double seconds = 60.0;                                // of wall time
  std::uint64_t output_bytes = std::uint64_t{8} << 20;  // of standard output, more ends it
  std::uint64_t file_bytes = 0;                         // of each file that it writes; 0: any
};

enum class ChildEnd : std::uint8_t { kExited, kSignal, kTimedOut, kTooMuchOutput, kStopped };

struct ChildRun {
  ChildEnd end = ChildEnd::kExited;
  int code = 0;               // the exit code, or the signal
  std::string output = {};    // standard output, at most output_bytes
  std::string messages = {};  // the last 4 KiB of standard error
  double seconds = 0.0;
};

// Runs the file words[0] with these words in `folder`, with this environment and no other, no
// input, and no open file but its output. It has a process group of its own, all of which is killed
// when it ends, by itself or by a limit, or `stop` (null: none) becomes true. A process that leaves
// the group is not. One thread at a time, in a program of one thread. Errors: kUnavailable if the
// program cannot be started.
Result<ChildRun> run_child(const std::vector<std::string>& words,
                           const std::vector<std::string>& environment,
                           const std::string& folder,
                           const ChildLimits& limits,
                           const std::atomic<bool>* stop = nullptr);

// A folder for a child, mode 0700, that is removed with all that is in it.
class ScratchSpace {
 public:
  // Errors: kUnavailable.
  static Result<ScratchSpace> make();
  ScratchSpace(ScratchSpace&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  ScratchSpace& operator=(ScratchSpace&&) = delete;
  ~ScratchSpace();
  const std::string& path() const { return path_; }

 private:
  ScratchSpace() = default;
  std::string path_;
};

// Where programs of the system are looked for, whatever the caller's environment says.
inline constexpr const char* kProgramFolders = "/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin";
// The path of one of them. Errors: kNotFound.
Result<std::string> find_system_program(const std::string& name);

}  // namespace kakeya::bridge
