// The lines of a conversation, from a person at a terminal, a pipe or a file.
#pragma once

#include <memory>
#include <string>

#include "cli/line_editor.h"

namespace kakeya::cli {

class LineReader {
 public:
  // `prompt` is shown before each line.
  LineReader(const std::string& prompt, const InterruptGuard& interrupt)
      : prompt_(prompt), editor_(LineEditor::open(prompt, interrupt)) {}

  // Reads as LineEditor where lines are edited, else as read_line().
  Result<bool> read(std::string& line);

 private:
  const std::string prompt_;
  const std::unique_ptr<LineEditor> editor_;
};

}  // namespace kakeya::cli
