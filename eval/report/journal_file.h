// A file of JSON lines that grows while a long run goes on, so that one that ended early goes on
// where it was.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>

#include "eval/report/report_fields.h"
#include "kakeya/status.h"

namespace kakeya::eval {

// A journal, used by one thread. The first line is {"schema", "run"}.
class JournalFile {
 public:
  static constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 30;

  // The purpose of a journal. `run`: what must be the same for its lines to be taken over.
  struct Kind {
    std::string schema;
    std::string of;  // "eval niah", for messages
    Report run;
  };

  JournalFile() = default;  // none
  // Reads the file, if there is one, of which a last line without an end is dropped, and gives
  // `take` each line behind the first; makes one otherwise. Errors: kNotFound for a file that
  // cannot be written, kDataLoss for what is no journal and where `take` fails, with the line,
  // kFailedPrecondition for that of another run, naming what differs.
  static Result<JournalFile> open(const std::string& path,
                                  const Kind& kind,
                                  const std::function<Status(const Report&)>& take);

  const std::string& path() const { return path_; }
  // Adds a line. Errors: kUnavailable if the file takes no more.
  Status write(const Report& line);

 private:
  Status read(const std::string& text,
              const Kind& kind,
              const std::function<Status(const Report&)>& take) const;

  std::string path_;
  std::ofstream file_;
};

}  // namespace kakeya::eval
