// Modes of the terminal during a conversation, and that they are put back whatever ends or stops
// it.
#pragma once

namespace kakeya::cli {

// While it lives, pasted texts come with marks around them (bracketed paste), and signals that end
// or stop the program put the terminal's modes back first. One at a time.
class TerminalModes {
 public:
  TerminalModes();
  ~TerminalModes();
  TerminalModes(const TerminalModes&) = delete;
  TerminalModes& operator=(const TerminalModes&) = delete;

  // Asks the terminal for marks again: programs that ran meanwhile may have ended them.
  void mark_pastes();
  // Stops all programs of the terminal's job, as Ctrl-Z does; returns when they go on.
  void stop();
  // Ends them, as Ctrl-\ does.
  void quit();
  // Once true when the terminal has another size, or the program went on behind a stop: the line is
  // to be drawn again.
  bool needs_drawing();
};

// Puts the terminal's modes back, if they were changed; for handlers of signals, too.
void restore_terminal();

}  // namespace kakeya::cli
