// Runs Python programs that nobody has read, such as those of a model, with limits.
#pragma once

#include <cstdint>
#include <string>

#include "base/child_process.h"
#include "eval/tasks/confinement.h"
#include "kakeya/status.h"

namespace kakeya::eval {

struct PythonLimits {
  double seconds = 3.0;                                 // of wall time, more than 0
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  // of addresses
  std::uint64_t file_bytes = std::uint64_t{1} << 20;    // of each file it writes
  std::uint64_t output_bytes = std::uint64_t{1} << 16;  // of both streams together
};

// May be used on several threads at once.
class PythonRunner {
 public:
  // `python`: a program's name, which is looked for in PATH, or its path. Errors: kNotFound if it
  // does not run; kUnavailable.
  static Result<PythonRunner> create(const std::string& python, const PythonLimits& limits);

  // Where the interpreter lies, and "3.11.2".
  const std::string& path() const { return path_; }
  const std::string& version() const { return version_; }
  // The confinement of its programs on this machine, as tried.
  const Confinement& confinement() const { return confinement_; }
  const PythonLimits& limits() const { return limits_; }

  // Runs a program, isolated from the user's own packages and environment, in an empty folder that
  // is removed afterwards, and ends all of its process group. Both streams are its output; it timed
  // out, too, if it took more of a processor's time than it may of wall time. Errors: kUnavailable
  // if there is no process or folder for it, or its confinement failed.
  Result<ChildRun> run(const std::string& program) const;

 private:
  explicit PythonRunner(const PythonLimits& limits) : limits_(limits) {}

  PythonLimits limits_;
  std::string path_;
  std::string version_;
  Confinement confinement_;
};

}  // namespace kakeya::eval
