#include "python_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace kakeya::eval {
namespace {

// Said by a child that does not become the program.
enum class Refusal : char { kFolder = 1, kConfinement, kProgram };

constexpr int kRefusalsFile = 3;        // in the child
constexpr double kStartSeconds = 20.0;  // of an interpreter on a busy machine

Unexpected refused(const char* what) {
  return error(StatusCode::kUnavailable, "expected {}, got: {}", what, std::strerror(errno));
}

// Closes a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void reset(int number = -1) {
    if (number_ >= 0) ::close(number_);
    number_ = number;
  }
  int get() const { return number_; }

 private:
  int number_;
};

// An empty folder, removed with what came into it.
class EmptyFolder {
 public:
  EmptyFolder() {
    std::error_code failed;
    path_ = (std::filesystem::temp_directory_path(failed) / "kakeya-XXXXXX").string();
    if (failed || ::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~EmptyFolder() {
    if (path_.empty()) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    if (!std::filesystem::exists(path_, ignored)) return;
    // Folders whose rights were taken away.
    using std::filesystem::directory_options;
    for (auto entry = std::filesystem::recursive_directory_iterator(
             path_, directory_options::skip_permission_denied, ignored);
         entry != std::filesystem::recursive_directory_iterator(); entry.increment(ignored)) {
      if (!entry->is_directory(ignored)) continue;
      std::filesystem::permissions(entry->path(), std::filesystem::perms::owner_all, ignored);
    }
    std::filesystem::remove_all(path_, ignored);
  }
  EmptyFolder(const EmptyFolder&) = delete;
  EmptyFolder& operator=(const EmptyFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What a child needs, made before fork(): between fork and exec nothing may be allocated.
struct Start {
  const char* path = nullptr;  // with '/', or a name to look for
  std::vector<char*> arguments = {};
  std::vector<char*> environment = {};
  const char* folder = nullptr;
  int input = -1;
  int output = -1;
  int refusals = -1;      // for a Refusal
  bool confined = false;  // with limits
  Confinement needed = {};
  PythonLimits limits = {};
};

void limit(int resource, std::uint64_t most) {
  const rlimit value = {.rlim_cur = static_cast<rlim_t>(most),
                        .rlim_max = static_cast<rlim_t>(most)};
  ::setrlimit(static_cast<decltype(RLIMIT_AS)>(resource), &value);
}

[[noreturn]] void refuse(Refusal why) {
  const char byte = static_cast<char>(why);
  [[maybe_unused]] const ssize_t written = ::write(kRefusalsFile, &byte, 1);
  ::_exit(1);
}

[[noreturn]] void become_program(const Start& start) {
  ::setpgid(0, 0);
  ::dup2(start.input, STDIN_FILENO);
  ::dup2(start.output, STDOUT_FILENO);
  ::dup2(start.output, STDERR_FILENO);
  // Behind the others, one of which may have this number.
  ::dup2(start.refusals, kRefusalsFile);
  ::fcntl(kRefusalsFile, F_SETFD, FD_CLOEXEC);
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const int most = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 16));
  for (int file = kRefusalsFile + 1; file < most; ++file) ::close(file);
  if (::chdir(start.folder) != 0) refuse(Refusal::kFolder);
  if (start.confined) {
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, static_cast<std::uint64_t>(std::ceil(start.limits.seconds)) + 1);
    limit(RLIMIT_AS, start.limits.memory_bytes);
    limit(RLIMIT_FSIZE, start.limits.file_bytes);
    limit(RLIMIT_NOFILE, 64);
    const Confinement got = confine_process(start.folder);
    if ((start.needed.network && !got.network) || (start.needed.files && !got.files)) {
      refuse(Refusal::kConfinement);
    }
  }
  ::execve(start.path, start.arguments.data(), start.environment.data());
  refuse(Refusal::kProgram);
}

// A child that is not waited for yet, and what it writes.
class Child {
 public:
  Child(pid_t process, int output) : process_(process), output_(output) {}
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  PythonRun watch(double seconds, std::uint64_t output_bytes) {
    const Stopwatch watch;
    PythonRun run;
    bool exited = false;
    while (true) {
      // Whoever has exited has written all that it will.
      exited = has_exited();
      read(run.output, output_bytes);
      if (exited) break;
      if (run.output.size() > output_bytes) {
        run.end = RunEnd::kTooMuchOutput;
        break;
      }
      if (watch.seconds() > seconds) {
        run.end = RunEnd::kTimedOut;
        break;
      }
      wait_for_output();
    }
    const int status = end();
    if (run.output.size() > output_bytes) {
      run.end = RunEnd::kTooMuchOutput;
      run.output.resize(output_bytes);
    }
    if (run.end != RunEnd::kExited) return run;
    run.code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    if (WIFEXITED(status)) return run;
    run.end = run.code == SIGXCPU ? RunEnd::kTimedOut : RunEnd::kSignal;
    return run;
  }

 private:
  bool has_exited() const {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == process_;
  }
  void wait_for_output() {
    constexpr int kMilliseconds = 5;
    if (closed_) {
      ::poll(nullptr, 0, kMilliseconds);
      return;
    }
    pollfd ready = {.fd = output_, .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, kMilliseconds);
  }
  // What is there now, but not much beyond the limit.
  void read(std::string& to, std::uint64_t most) {
    std::array<char, 4096> piece{};
    while (!closed_ && to.size() <= most) {
      const ssize_t bytes = ::read(output_, piece.data(), piece.size());
      if (bytes < 0) return;
      closed_ = bytes == 0;
      to.append(piece.data(), static_cast<std::size_t>(bytes));
    }
  }
  // Ends what is left of the group, and returns how the child ended.
  int end() {
    if (ended_) return 0;
    ended_ = true;
    ::kill(-process_, SIGKILL);
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) continue;
    return status;
  }

  pid_t process_;
  int output_;
  bool closed_ = false;
  bool ended_ = false;
};

// A file that is gone when it is closed, to be read from its beginning.
Status fill_input(Descriptor& input, const std::string& folder, const std::string& text) {
  const std::string path = folder + "/program";
  input.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (input.get() < 0) return refused("a temporary file");
  ::unlink(path.c_str());
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t bytes = ::write(input.get(), text.data() + at, text.size() - at);
    if (bytes <= 0) return refused("a temporary file");
    at += static_cast<std::size_t>(bytes);
  }
  ::lseek(input.get(), 0, SEEK_SET);
  return {};
}

// That is closed when the child becomes the program, and does not wait.
bool make_pipe(Descriptor& from, Descriptor& to) {
  std::array<int, 2> ends = {-1, -1};
  if (::pipe(ends.data()) != 0) return false;
  from.reset(ends[0]);
  to.reset(ends[1]);
  for (const int each : ends) ::fcntl(each, F_SETFD, FD_CLOEXEC);
  ::fcntl(from.get(), F_SETFL, O_NONBLOCK);
  return true;
}

// Runs a program on an input in an empty folder. Errors: kUnavailable.
Result<PythonRun> start_and_watch(Start start,
                                  std::vector<std::string> arguments,
                                  std::vector<std::string> environment,
                                  const std::string& input) {
  const EmptyFolder folder;
  if (folder.path().empty()) return refused("a temporary folder");
  start.folder = folder.path().c_str();
  environment.push_back("TMPDIR=" + folder.path());
  for (std::string& each : arguments) start.arguments.push_back(each.data());
  for (std::string& each : environment) start.environment.push_back(each.data());
  start.arguments.push_back(nullptr);
  start.environment.push_back(nullptr);
  start.path = arguments.front().c_str();

  Descriptor program;
  KAKEYA_TRY(fill_input(program, folder.path(), input));
  Descriptor output;
  Descriptor output_end;
  Descriptor refusals;
  Descriptor refusals_end;
  if (!make_pipe(output, output_end) || !make_pipe(refusals, refusals_end)) {
    return refused("a pipe");
  }
  start.input = program.get();
  start.output = output_end.get();
  start.refusals = refusals_end.get();
  const pid_t process = ::fork();
  if (process < 0) return refused("a process");
  if (process == 0) become_program(start);
  ::setpgid(process, process);  // whichever of the two comes first
  output_end.reset();
  refusals_end.reset();
  Child child(process, output.get());
  PythonRun run = child.watch(start.limits.seconds, start.limits.output_bytes);
  char refusal = 0;
  if (::read(refusals.get(), &refusal, 1) != 1) return run;
  if (refusal == static_cast<char>(Refusal::kConfinement)) {
    return error(StatusCode::kUnavailable, "the system refused to confine a process");
  }
  return error(StatusCode::kUnavailable, "{}: expected a program that runs", start.path);
}

// What to run for a name: itself if it has a '/', else the first in PATH; empty: none.
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

// What this machine confines, tried by a child that ends at once.
Result<Confinement> try_confinement() {
  const EmptyFolder folder;
  if (folder.path().empty()) return refused("a temporary folder");
  const pid_t process = ::fork();
  if (process < 0) return refused("a process");
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
    // Not as its input, which such a script may read.
    const auto run = start_and_watch({.limits = {.seconds = kStartSeconds}},
                                     {program, "-I", "-c", ask}, environment, "");
    if (run && run->end == RunEnd::kExited && run->code == 0) said = run->output;
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

Result<PythonRun> PythonRunner::run(const std::string& program) const {
  return start_and_watch({.confined = true, .needed = confinement_, .limits = limits_},
                         {path_, "-I", "-"}, {"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/"},
                         program);
}

}  // namespace kakeya::eval
