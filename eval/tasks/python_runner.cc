#include "eval/tasks/python_runner.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/temporary_folder.h"

namespace kakeya::eval {
namespace {

constexpr double kStartSeconds = 20.0;  // of an interpreter on a busy machine
constexpr rlim_t kMostOpenFiles = 64;

void limit(int resource, std::uint64_t most) {
  const rlimit value = {.rlim_cur = static_cast<rlim_t>(most),
                        .rlim_max = static_cast<rlim_t>(most)};
  ::setrlimit(static_cast<decltype(RLIMIT_AS)>(resource), &value);
}

// In the child. False: the system does not keep it from what it should.
bool confine(const PythonLimits& limits, const Confinement& needed, const char* folder) {
  limit(RLIMIT_CPU, static_cast<std::uint64_t>(std::ceil(limits.seconds)) + 1);
  limit(RLIMIT_AS, limits.memory_bytes);
  limit(RLIMIT_NOFILE, kMostOpenFiles);
  const Confinement got = confine_process(folder);
  return (got.network || !needed.network) && (got.files || !needed.files);
}

// In an empty folder, with both streams as one. Errors: as run_child.
Result<ChildRun> run_alone(ChildProgram program,
                           const ChildLimits& limits,
                           const TemporaryFolder& folder) {
  program.folder = folder.path();
  program.environment.push_back("TMPDIR=" + folder.path());
  program.one_stream = true;
  return run_child(program, limits);
}

// The program to run for a name: itself if it has a '/', else the first in PATH; empty: none.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return std::filesystem::absolute(name).string();
  const char* path = std::getenv("PATH");
  std::string_view folders = path == nullptr ? "" : path;
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    const std::string program = std::string(folders.substr(0, end)) + "/" + name;
    if (::access(program.c_str(), X_OK) == 0) return program;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return {};
}

// The confinement that this machine can do, tried by a child that ends at once.
Result<Confinement> try_confinement() {
  KAKEYA_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
  const pid_t process = ::fork();
  if (process < 0) {
    return error(StatusCode::kUnavailable, "expected a process, got: {}", std::strerror(errno));
  }
  if (process == 0) {
    const Confinement got = confine_process(folder.path().c_str());
    ::_exit((got.network ? 1 : 0) + (got.files ? 2 : 0));
  }
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
  const int got = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return Confinement{.network = (got & 1) != 0, .files = (got & 2) != 0};
}

}  // namespace

Result<PythonRunner> PythonRunner::create(const std::string& python, const PythonLimits& limits) {
  PythonRunner runner(limits);
  const std::string program = find_program(python);
  // A script may stand for the interpreter, which finds it by the environment and may not do so
  // when it is confined; so the interpreter is asked where it lies.
  std::vector<std::string> environment;
  for (const char* name : {"PATH", "HOME", "PYENV_ROOT", "PYENV_VERSION"}) {
    if (const char* value = std::getenv(name)) {
      environment.push_back(std::string(name) + "=" + value);
    }
  }
  const std::string ask =
      "import sys, platform\nprint('\\n' + sys.executable)\n"
      "print(platform.python_version(), end='')\n";
  std::string said;
  if (!program.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
    // Not as its input, which such a script may read.
    const auto run =
        run_alone({.words = {program, "-I", "-c", ask}, .environment = environment},
                  {.seconds = kStartSeconds, .output_bytes = limits.output_bytes}, folder);
    if (run && run->end == ChildEnd::kExited && run->code == 0) said = run->output;
  }
  const std::size_t line = said.rfind('\n');
  if (line == std::string::npos || line == 0) {
    return error(StatusCode::kNotFound, "{}: expected a Python interpreter that runs, got none",
                 python);
  }
  const std::size_t before = said.rfind('\n', line - 1);
  runner.version_ = said.substr(line + 1);
  runner.path_ = said.substr(before + 1, line - before - 1);
  KAKEYA_ASSIGN_OR_RETURN(runner.confinement_, try_confinement());
  return runner;
}

Result<ChildRun> PythonRunner::run(const std::string& program) const {
  KAKEYA_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::create());
  KAKEYA_ASSIGN_OR_RETURN(
      ChildRun run,
      run_alone({.words = {path_, "-I", "-"},
                 .environment = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/"},
                 .input = program,
                 .confine = [&] { return confine(limits_, confinement_, folder.path().c_str()); }},
                {.seconds = limits_.seconds,
                 .output_bytes = limits_.output_bytes,
                 .file_bytes = limits_.file_bytes},
                folder));
  if (run.end == ChildEnd::kSignal && run.code == SIGXCPU) run.end = ChildEnd::kTimedOut;
  return run;
}

}  // namespace kakeya::eval
