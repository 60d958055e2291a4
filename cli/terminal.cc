#include "cli/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/terminal_modes.h"

namespace kakeya::cli {
namespace {

// Signal handlers can reach only globals.
volatile std::sig_atomic_t interrupts = 0;

void on_interrupt(int /*signal*/) {
  interrupts = interrupts + 1;
  if (interrupts == 1) return;
  restore_terminal();
  ::_exit(kExitInterrupted);
}

}  // namespace

bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1;
}
bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}

void note(std::string_view text) {
  flush_output();  // the answer comes first
  if (stderr_is_terminal()) {
    print_error("\033[2m{}\033[0m\n", text);
  } else {
    print_error("{}\n", text);
  }
}

std::string without_controls(std::string_view text) {
  std::string shown;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto next = static_cast<unsigned char>(at + 1 < text.size() ? text[at + 1] : '\0');
    const bool is_c1 = byte == 0xC2 && next >= 0x80 && next <= 0x9F;  // U+0080 to U+009F
    if (is_c1) {
      ++at;
    } else if (byte >= 0x20 ? byte != 0x7F : byte == '\n' || byte == '\t') {
      shown += text[at];
    }
  }
  return shown;
}

void show_answer(std::string_view text) {
  if (stdout_is_terminal()) {
    write_output(without_controls(text));
  } else {
    write_output(text);
  }
  flush_output();
}

void note_part(std::string_view text) {
  flush_output();
  if (stderr_is_terminal()) {
    print_error("\033[2m{}\033[0m", without_controls(text));
  } else {
    write_error(text);
  }
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)) {}

ProgressBar::~ProgressBar() {
  if (drawn_percent_ >= 0) print_error("\r\033[K");
}

void ProgressBar::update(std::uint64_t done, std::uint64_t total) {
  if (!stderr_is_terminal() || total == 0) return;
  constexpr int kWidth = 30;
  const double fraction = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int percent = static_cast<int>(100.0 * fraction);
  if (percent == drawn_percent_) return;
  drawn_percent_ = percent;
  const auto filled = static_cast<std::size_t>(kWidth * fraction);
  print_error("\r{} [{}{}] {:3}%", label_, std::string(filled, '#'),
              std::string(kWidth - filled, '.'), percent);
  std::fflush(stderr);
}

ProgressLine::~ProgressLine() {
  if (drawn_ && stderr_is_terminal()) print_error("\r\033[K");
}

bool ProgressLine::is_due(double seconds) const {
  return seconds - last_seconds_ >= (stderr_is_terminal() ? 0.5 : 30.0);
}

void ProgressLine::show(double seconds, std::string_view text) {
  last_seconds_ = seconds;
  drawn_ = true;
  if (stderr_is_terminal()) {
    print_error("\r\033[K{}", text);
  } else {
    print_error("{}\n", text);
  }
}

InterruptGuard::InterruptGuard() {
  interrupts = 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a pending read returns
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
}

bool InterruptGuard::interrupted() const {
  return interrupts > 0;
}
void InterruptGuard::reset() {
  interrupts = 0;
}

}  // namespace kakeya::cli
