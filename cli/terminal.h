// Output for a person at a terminal beside the answer: progress bars, dim notes, Ctrl-C. Nothing of
// it is printed when the output is no terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kakeya::cli {

// True if people read standard error / standard output.
bool stderr_is_terminal();
bool stdout_is_terminal();

// A line on stderr, dim on a terminal.
void note(std::string_view text);

// The text without control characters, but for line ends and tabs: what a model or a server wrote
// must not move a cursor, set a title or answer a question of the terminal.
std::string without_controls(std::string_view text);

// A part of an answer on stdout, at once; on a terminal without control characters.
void show_answer(std::string_view text);

// A part of a text on stderr as it comes, dim on a terminal.
void note_part(std::string_view text);

// A bar on stderr, redrawn in place; silent if stderr is no terminal. Erased when destroyed.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::uint64_t done, std::uint64_t total);

 private:
  std::string label_;
  int drawn_percent_ = -1;
};

// How far something long is, in words, on stderr: on a terminal one line that changes, elsewhere a
// line every half minute. Erased when destroyed.
class ProgressLine {
 public:
  ProgressLine() = default;
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // True if the last line is old enough for another one; `seconds`: since whatever began.
  bool is_due(double seconds) const;
  void show(double seconds, std::string_view text);

 private:
  double last_seconds_ = 0.0;
  bool drawn_ = false;
};

// While it lives Ctrl-C sets a flag instead of ending the program; a second one during the same
// reply ends it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
  void reset();
};

}  // namespace kakeya::cli
