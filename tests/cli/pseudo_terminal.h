// A pseudo-terminal in which a program runs, and what a person sees and types there.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

namespace kakeya::test {

class PseudoTerminal {
 public:
  // Starts a command of the shell, which becomes the program.
  explicit PseudoTerminal(const std::string& command) {
    person_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    ::grantpt(person_);
    ::unlockpt(person_);
    const std::string name = ::ptsname(person_);
    // Open here, too, so that its modes can be read when the program has ended.
    terminal_ = ::open(name.c_str(), O_RDWR | O_NOCTTY);
    winsize size = {};
    size.ws_row = 24;
    size.ws_col = 80;
    ::ioctl(terminal_, TIOCSWINSZ, &size);
    modes_before_ = modes();
    process_ = ::fork();
    if (process_ == 0) {
      ::setsid();
      ::ioctl(terminal_, TIOCSCTTY, 0);
      for (int number = 0; number < 3; ++number) ::dup2(terminal_, number);
      ::close(person_);
      ::close(terminal_);
      ::setenv("TERM", "xterm", 1);
      ::execl("/bin/bash", "bash", "-c", ("exec " + command).c_str(), nullptr);
      ::_exit(127);
    }
    ::fcntl(person_, F_SETFL, O_NONBLOCK);
  }
  ~PseudoTerminal() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    ::close(person_);
    ::close(terminal_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  // Types all of it, and reads meanwhile what the program writes.
  void type(std::string_view text) {
    const auto end = deadline();
    while (!text.empty() && step(POLLOUT, end)) {
      const ssize_t wrote = ::write(person_, text.data(), text.size());
      if (wrote > 0) text.remove_prefix(static_cast<std::size_t>(wrote));
    }
    EXPECT_EQ(text.size(), 0U) << "bytes were not taken";
  }
  void paste(const std::string& text) { type("\033[200~" + text + "\033[201~"); }

  // Waits until the program has written this behind what was waited for before.
  void wait_for(const std::string& part) {
    const auto end = deadline();
    for (std::size_t at = 0;;) {
      at = seen_.find(part, waited_for_);
      if (at != std::string::npos) {
        waited_for_ = at + part.size();
        return;
      }
      if (!step(0, end)) break;
    }
    ADD_FAILURE() << "expected '" << part << "', got: " << seen_.substr(waited_for_);
  }

  // The exit code; negative: the signal that ended it.
  int wait_for_end() {
    const auto end = deadline();
    int status = 0;
    while (::waitpid(process_, &status, WNOHANG) == 0) {
      if (!step(0, end)) return -1000;
    }
    step(0, end);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  void send(int signal) const { ::kill(process_, signal); }
  const std::string& seen() const { return seen_; }

  void expect_modes_as_before() const {
    const termios now = modes();
    EXPECT_EQ(now.c_lflag, modes_before_.c_lflag);
    EXPECT_EQ(now.c_iflag, modes_before_.c_iflag);
    EXPECT_EQ(now.c_oflag, modes_before_.c_oflag);
    const std::size_t on = seen_.rfind("\033[?2004h");
    const std::size_t off = seen_.rfind("\033[?2004l");
    EXPECT_NE(on, std::string::npos);
    EXPECT_NE(off, std::string::npos);
    EXPECT_LT(on, off);
  }

 private:
  using Clock = std::chrono::steady_clock;

  static Clock::time_point deadline() { return Clock::now() + std::chrono::seconds(30); }

  termios modes() const {
    termios modes = {};
    EXPECT_EQ(::tcgetattr(terminal_, &modes), 0);
    return modes;
  }

  // Reads what there is, after a short wait for it or for `events`; false when the time is over.
  bool step(short events, Clock::time_point end) {
    pollfd polled = {.fd = person_, .events = static_cast<short>(POLLIN | events), .revents = 0};
    ::poll(&polled, 1, 20);
    char block[65536];
    const ssize_t got = ::read(person_, block, sizeof(block));
    if (got > 0) seen_.append(block, static_cast<std::size_t>(got));
    return Clock::now() < end;
  }

  int person_ = -1;
  int terminal_ = -1;
  pid_t process_ = 0;
  termios modes_before_ = {};
  std::string seen_;
  std::size_t waited_for_ = 0;
};

}  // namespace kakeya::test
