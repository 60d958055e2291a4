// Lines that a person writes at a terminal: keys to edit them and to go back to earlier ones, and
// texts of many lines that were pasted.
#pragma once

#include <memory>
#include <string>

#include "cli/terminal.h"
#include "kakeya/status.h"

namespace kakeya::cli {

class LineEditor {
 public:
  virtual ~LineEditor() = default;

  // Shows `prompt` on standard error before each line. Nothing where standard input and standard
  // error are not both a terminal that knows its keys, and in builds without libedit. The
  // terminal's modes are the editor's until it is destroyed, so that what is pasted during an
  // answer is whole, too.
  static std::unique_ptr<LineEditor> open(const std::string& prompt,
                                          const InterruptGuard& interrupt);

  // Reads a line without its end. False behind Ctrl-D in an empty line; Ctrl-C gives an empty line.
  // Errors: kInvalidArgument for a line of more than kMostPromptBytes.
  virtual Result<bool> read(std::string& line) = 0;
};

}  // namespace kakeya::cli
