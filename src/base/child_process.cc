#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/status.h"

namespace kakeya {
namespace {

constexpr std::size_t kMostMessages = 4096;
constexpr int kRefusalFile = 3;  // in the child

// Said by a child that does not become the program.
enum class Refusal : char { kFolder = 1, kConfinement, kProgram };

Unexpected no_child(const char* what) {
  return error(StatusCode::kUnavailable, "expected {}, got: {}", what, std::strerror(errno));
}

// Made before fork(): between it and exec nothing may be allocated.
struct ChildStart {
  std::vector<char*> words = {};
  std::vector<char*> environment = {};
  const char* folder = nullptr;
  const std::function<bool()>* confine = nullptr;
  int input = -1;
  int output = -1;
  int messages = -1;
  int refusal = -1;  // for a Refusal
  std::uint64_t file_bytes = 0;
  std::uint64_t memory_bytes = 0;
  pid_t caller = 0;
};

void limit_child(int resource, std::uint64_t most) {
  const rlimit value = {.rlim_cur = static_cast<rlim_t>(most),
                        .rlim_max = static_cast<rlim_t>(most)};
  ::setrlimit(static_cast<decltype(RLIMIT_CORE)>(resource), &value);
}

[[noreturn]] void refuse(Refusal why) {
  const char byte = static_cast<char>(why);
  [[maybe_unused]] const ssize_t written = ::write(kRefusalFile, &byte, 1);
  ::_exit(1);
}

// Ends this process with the one that started it, also where that one is killed and can end nothing
// itself. Systems other than Linux have no such wish.
void end_with(pid_t caller) {
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != caller) ::_exit(1);  // it was gone before the wish was there
#else
  static_cast<void>(caller);
#endif
}

[[noreturn]] void become(const ChildStart& start) {
  end_with(start.caller);
  // A group of its own, and no terminal, which a program could type commands into.
  ::setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::dup2(start.input, STDIN_FILENO);
  ::dup2(start.output, STDOUT_FILENO);
  ::dup2(start.messages, STDERR_FILENO);
  // This one goes behind the others, one of which may have its number.
  ::dup2(start.refusal, kRefusalFile);
  ::fcntl(kRefusalFile, F_SETFD, FD_CLOEXEC);
  // Whatever the caller has open, with or without FD_CLOEXEC.
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const int most = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 16));
  for (int file = kRefusalFile + 1; file < most; ++file) ::close(file);
  limit_child(RLIMIT_CORE, 0);
  if (start.file_bytes > 0) limit_child(RLIMIT_FSIZE, start.file_bytes);
  if (start.memory_bytes > 0) limit_child(RLIMIT_DATA, start.memory_bytes);
  if (::chdir(start.folder) != 0) refuse(Refusal::kFolder);
  if (*start.confine && !(*start.confine)()) refuse(Refusal::kConfinement);
  ::execve(start.words.front(), start.words.data(), start.environment.data());
  refuse(Refusal::kProgram);
}

// A pipe from the child, of which what is there is read.
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

  // Appends the bytes that are there now, but not much beyond `most`; with `last` it keeps the last
  // `most` of all.
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

// A file that nobody else knows, to be read from its beginning.
Result<Descriptor> input_of(const std::string& text) {
  if (text.empty()) {
    Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (nothing.get() < 0) return no_child("/dev/null");
    return nothing;
  }
  // Removed by the system when it is closed.
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0) {
    return no_child("a temporary file");
  }
  Descriptor input(::fcntl(::fileno(file.get()), F_DUPFD_CLOEXEC, 0));
  file.reset();  // it may move the place to read from, which both share
  if (input.get() < 0 || ::lseek(input.get(), 0, SEEK_SET) != 0)
    return no_child("a temporary file");
  return input;
}

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
    // The pipes still hold at most a megabyte; nobody of the group writes any more.
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
    // The child first: killed before it has made its group, it makes none.
    ::kill(process_, SIGKILL);
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

Result<ChildRun> run_child(const ChildProgram& program,
                           const ChildLimits& limits,
                           const std::atomic<bool>* stop) {
  ChildStart start{.folder = program.folder.c_str(),
                   .confine = &program.confine,
                   .file_bytes = limits.file_bytes,
                   .memory_bytes = limits.memory_bytes,
                   .caller = ::getpid()};
  // exec() promises to leave them as they are.
  for (const std::string& each : program.words) {
    start.words.push_back(const_cast<char*>(each.c_str()));
  }
  for (const std::string& each : program.environment) {
    start.environment.push_back(const_cast<char*>(each.c_str()));
  }
  start.words.push_back(nullptr);
  start.environment.push_back(nullptr);
  KAKEYA_ASSIGN_OR_RETURN(const Descriptor input, input_of(program.input));
  Stream output;
  Stream messages;
  Stream refusal;
  if (!output.open() || !messages.open() || !refusal.open()) return no_child("a pipe");
  start.input = input.get();
  start.output = output.writer();
  start.messages = program.one_stream ? output.writer() : messages.writer();
  start.refusal = refusal.writer();
  const pid_t process = ::fork();
  if (process < 0) return no_child("a process");
  if (process == 0) become(start);
  for (Stream* stream : {&output, &messages, &refusal}) stream->close_writer();
  ChildRun run = Watched(process, output, messages).watch(limits, stop);
  std::string refused;
  refusal.read(refused, 1, /*last=*/false);
  if (refused.empty()) return run;
  const auto why = static_cast<Refusal>(refused.front());
  return error(StatusCode::kUnavailable, "{}: expected {}", program.words.front(),
               why == Refusal::kFolder        ? "a folder that can be entered"
               : why == Refusal::kConfinement ? "a system that confines it"
                                              : "a program that runs");
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

}  // namespace kakeya
