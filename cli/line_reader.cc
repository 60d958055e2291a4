#include "cli/line_reader.h"

#include "cli/output.h"
#include "cli/report.h"

namespace kakeya::cli {

Result<bool> LineReader::read(std::string& line) {
  if (editor_ == nullptr) write_output(prompt_);
  flush_output();
  return editor_ == nullptr ? read_line(line) : editor_->read(line);
}

}  // namespace kakeya::cli
