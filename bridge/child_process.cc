#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "small_file.h"

namespace kakeya::bridge {
namespace {

constexpr std::size_t kMostMessages = 4096;
constexpr int kNotStarted = 127;  // as shells say it

Unexpected no_child(const char* what) {
  return error(StatusCode::kUnavailable, "expected {}, got: {}", what, std::strerror(errno));
}

// Made before fork(): between it and exec nothing may be allocated.
struct ChildStart {
  std::vector<char*> words = {};
  std::vector<char*> environment = {};
  const char* folder = nullptr;
  int input = -1;
  int output = -1;
  int messages = -1;
  std::uint64_t file_bytes = 0;
};

void limit_child(int resource, std::uint64_t most) {
  const rlimit value = {.rlim_cur = static_cast<rlim_t>(most),
                        .rlim_max = static_cast<rlim_t>(most)};
  ::setrlimit(static_cast<decltype(RLIMIT_CORE)>(resource), &value);
}

[[noreturn]] void become(const ChildStart& start) {
  ::setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::dup2(start.input, STDIN_FILENO);
  ::dup2(start.output, STDOUT_FILENO);
  ::dup2(start.messages, STDERR_FILENO);
  // Whatever the caller has open, with or without FD_CLOEXEC.
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const int most = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 16));
  for (int file = STDERR_FILENO + 1; file < most; ++file) ::close(file);
  limit_child(RLIMIT_CORE, 0);
  if (start.file_bytes > 0) limit_child(RLIMIT_FSIZE, start.file_bytes);
  if (::chdir(start.folder) == 0) {
    ::execve(start.words.front(), start.words.data(), start.environment.data());
  }
  ::_exit(kNotStarted);
}

// One of the two streams that are read.
class Stream {
 public:
  // False if there is no pipe.
  bool open() {
    std::array<int, 2> ends = {-1, -1};
    if (::pipe(ends.data()) != 0) return false;
    from_.reset(ends[0]);
    to_.reset(ends[1]);
    for (const int each : ends) ::fcntl(each, F_SETFD, FD_CLOEXEC);
    return ::fcntl(from_.get(), F_SETFL, O_NONBLOCK) == 0;
  }
  int writer() const { return to_.get(); }
  void close_writer() { to_.reset(); }
  pollfd to_poll() const { return {.fd = from_.get(), .events = POLLIN, .revents = 0}; }

  // What is there now, but not much beyond `most`; of more the last bytes, if `last` says so.
  void read(std::string& text, std::uint64_t most, bool last) {
    std::array<char, 1 << 14> piece{};
    while (from_.get() >= 0 && (last || text.size() <= most)) {
      const ssize_t bytes = ::read(from_.get(), piece.data(), piece.size());
      if (bytes < 0) return;
      if (bytes == 0) return from_.reset();
      text.append(piece.data(), static_cast<std::size_t>(bytes));
      if (!last || text.size() <= most) continue;
      text.erase(0, text.size() - most);
      return;  // a child that never pauses must not keep its watcher here
    }
  }

 private:
  Descriptor from_;
  Descriptor to_;
};

// A child that is not waited for yet.
class Watched {
 public:
  Watched(pid_t process, Stream& output, Stream& messages)
      : process_(process), output_(output), messages_(messages) {}
  ~Watched() { end(); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  ChildRun watch(const ChildLimits& limits, const std::atomic<bool>* stop) {
    const Stopwatch clock;
    ChildRun run;
    while (run.end == ChildEnd::kExited && !has_exited()) {
      constexpr int kMilliseconds = 20;
      std::array<pollfd, 2> ready = {output_.to_poll(), messages_.to_poll()};
      // A stream that ended has no number, and poll() skips it.
      ::poll(ready.data(), ready.size(), kMilliseconds);
      read(run, limits);
      if (clock.seconds() > limits.seconds) run.end = ChildEnd::kTimedOut;
      if (stop != nullptr && *stop) run.end = ChildEnd::kStopped;
      if (run.output.size() > limits.output_bytes) run.end = ChildEnd::kTooMuchOutput;
    }
    const int status = end();
    run.seconds = clock.seconds();
    // What the pipes still hold, which is at most a megabyte; nobody of the group writes any more.
    for (int piece = 0; piece < 64; ++piece) read(run, limits);
    if (run.output.size() > limits.output_bytes) {
      if (run.end == ChildEnd::kExited) run.end = ChildEnd::kTooMuchOutput;
      run.output.resize(limits.output_bytes);
    }
    if (run.end != ChildEnd::kExited) return run;
    run.code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    if (!WIFEXITED(status)) run.end = ChildEnd::kSignal;
    return run;
  }

 private:
  void read(ChildRun& run, const ChildLimits& limits) {
    output_.read(run.output, limits.output_bytes, /*last=*/false);
    messages_.read(run.messages, kMostMessages, /*last=*/true);
  }
  bool has_exited() const {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == process_;
  }
  // Kills what is left of the group, and returns how the child ended.
  int end() {
    if (ended_) return 0;
    ended_ = true;
    ::kill(-process_, SIGKILL);
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) continue;
    return status;
  }

  pid_t process_;
  Stream& output_;
  Stream& messages_;
  bool ended_ = false;
};

}  // namespace

Result<ChildRun> run_child(const std::vector<std::string>& words,
                           const std::vector<std::string>& environment,
                           const std::string& folder,
                           const ChildLimits& limits,
                           const std::atomic<bool>* stop) {
  if (::access(words.front().c_str(), X_OK) != 0) {
    return error(StatusCode::kUnavailable, "{}: expected a program: {}", words.front(),
                 std::strerror(errno));
  }
  ChildStart start{.folder = folder.c_str(), .file_bytes = limits.file_bytes};
  // exec() promises to leave them as they are.
  for (const std::string& each : words) start.words.push_back(const_cast<char*>(each.c_str()));
  for (const std::string& each : environment) {
    start.environment.push_back(const_cast<char*>(each.c_str()));
  }
  start.words.push_back(nullptr);
  start.environment.push_back(nullptr);
  const Descriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Stream output;
  Stream messages;
  if (input.get() < 0 || !output.open() || !messages.open()) return no_child("a pipe");
  start.input = input.get();
  start.output = output.writer();
  start.messages = messages.writer();
  const pid_t process = ::fork();
  if (process < 0) return no_child("a process");
  if (process == 0) become(start);
  ::setpgid(process, process);  // whichever of the two comes first
  output.close_writer();
  messages.close_writer();
  return Watched(process, output, messages).watch(limits, stop);
}

Result<ScratchSpace> ScratchSpace::make() {
  ScratchSpace scratch;
  std::error_code failed;
  std::string path =
      (std::filesystem::temp_directory_path(failed) / "kakeya-bridge-XXXXXX").string();
  if (failed || ::mkdtemp(path.data()) == nullptr) return no_child("a temporary folder");
  scratch.path_ = path;
  return scratch;
}

ScratchSpace::~ScratchSpace() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<std::string> find_system_program(const std::string& name) {
  std::string_view folders = kProgramFolders;
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    const std::string program = std::string(folders.substr(0, end)) + "/" + name;
    if (::access(program.c_str(), X_OK) == 0) return program;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return error(StatusCode::kNotFound, "there is no {} in {}", name, kProgramFolders);
}

}  // namespace kakeya::bridge
