#include "cli/terminal_modes.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

namespace kakeya::cli {
namespace {

constexpr std::string_view kMarksOn = "\033[?2004h";
constexpr std::string_view kMarksOff = "\033[?2004l";
constexpr int kEndingSignals[] = {SIGTERM, SIGHUP, SIGQUIT};

// Signal handlers can reach only globals.
volatile std::sig_atomic_t modes_changed = 0;
volatile std::sig_atomic_t drawing_needed = 0;
termios modes_before = {};

void send_to_terminal(std::string_view bytes) {
  const ssize_t lost = ::write(STDERR_FILENO, bytes.data(), bytes.size());
  static_cast<void>(lost);  // a terminal that is gone has no modes
}

void on_ending_signal(int signal) {
  restore_terminal();
  std::signal(signal, SIG_DFL);
  ::raise(signal);  // comes when this handler is left
}

void on_stop_signal(int signal) {
  const int error_before = errno;
  termios modes_now = {};
  const bool known = ::tcgetattr(STDIN_FILENO, &modes_now) == 0;
  restore_terminal();
  struct sigaction standard = {};
  struct sigaction own = {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, &own);
  ::raise(signal);
  sigset_t stopping;
  sigset_t mask;
  sigemptyset(&stopping);
  sigaddset(&stopping, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &stopping, &mask);  // stops here
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::sigaction(signal, &own, nullptr);
  if (known) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_now);
  modes_changed = 1;
  send_to_terminal(kMarksOn);
  drawing_needed = 1;
  errno = error_before;
}

void on_new_size(int /*signal*/) {
  drawing_needed = 1;
}

// Leaves signals that are ignored, as nohup does.
void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // waits for a key notice signals all the same
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void restore_terminal() {
  if (modes_changed == 0) return;
  modes_changed = 0;
  send_to_terminal(kMarksOff);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_before);
}

TerminalModes::TerminalModes() {
  if (::tcgetattr(STDIN_FILENO, &modes_before) != 0) return;
  modes_changed = 1;
  for (const int signal : kEndingSignals) handle(signal, on_ending_signal);
  handle(SIGTSTP, on_stop_signal);
  handle(SIGWINCH, on_new_size);
}

TerminalModes::~TerminalModes() {
  restore_terminal();
  for (const int signal : kEndingSignals) handle(signal, SIG_DFL);
  handle(SIGTSTP, SIG_DFL);
  handle(SIGWINCH, SIG_DFL);
}

void TerminalModes::mark_pastes() {
  send_to_terminal(kMarksOn);
}

void TerminalModes::stop() {
  ::kill(0, SIGTSTP);
}

void TerminalModes::quit() {
  ::kill(0, SIGQUIT);
}

bool TerminalModes::needs_drawing() {
  if (drawing_needed == 0) return false;
  drawing_needed = 0;
  return true;
}

}  // namespace kakeya::cli
