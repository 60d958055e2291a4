#include "eval/report/journal_file.h"

#include <filesystem>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace kakeya::eval {
namespace {

std::string journal_line(const Report& json) {
  return json.dump(-1, ' ', false, Report::error_handler_t::replace);
}

// The first value that is not as this run has it, by the names that lead there; empty: none.
std::string difference(const Report& there, const Report& here, const std::string& at = {}) {
  for (const auto& [name, value] : here.items()) {
    const auto found = there.is_object() ? there.find(name) : there.end();
    if (!there.is_object() || found == there.end()) return at + name + ", which is not there";
    if (*found == value) continue;
    if (found->is_object() && value.is_object()) {
      std::string below = difference(*found, value, at + name + "/");
      if (!below.empty()) return below;
    }
    return at + name + ": " + journal_line(*found).substr(0, 80) + " instead of " +
           journal_line(value).substr(0, 80);
  }
  return {};
}

}  // namespace

Result<JournalFile> JournalFile::open(const std::string& path,
                                      const Kind& kind,
                                      const std::function<Status(const Report&)>& take) {
  JournalFile journal;
  journal.path_ = path;
  std::error_code failed;
  std::string text;
  if (std::filesystem::exists(path, failed)) {
    if (!std::filesystem::is_regular_file(path, failed) ||
        std::filesystem::file_size(path, failed) > kMostBytes || failed) {
      return data_loss("{}: expected a journal of at most {} bytes", path, kMostBytes);
    }
    std::ifstream file(path, std::ios::binary);
    text = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    // The program ended while it wrote the last line.
    text.resize(text.rfind('\n') + 1);
    KAKEYA_TRY(journal.read(text, kind, take));
    std::filesystem::resize_file(path, text.size(), failed);
  }
  journal.file_.open(path, std::ios::binary | std::ios::app);
  if (!journal.file_ || failed) {
    return error(StatusCode::kNotFound, "{}: expected a file that can be written", path);
  }
  if (text.empty()) KAKEYA_TRY(journal.write({{"schema", kind.schema}, {"run", kind.run}}));
  return journal;
}

Status JournalFile::read(const std::string& text,
                         const Kind& kind,
                         const std::function<Status(const Report&)>& take) const {
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const Report line = Report::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                      text.begin() + static_cast<std::ptrdiff_t>(end), nullptr,
                                      /*allow_exceptions=*/false);
    begin = end + 1;
    if (++number == 1) {
      if (!line.is_object() || line.value("schema", Report()) != kind.schema) {
        return data_loss("{}: expected a journal of {}, got something else", path_, kind.of);
      }
      const auto there = line.find("run");
      const std::string differs = difference(there == line.end() ? Report() : *there, kind.run);
      if (differs.empty()) continue;
      return Unexpected(Error(StatusCode::kFailedPrecondition,
                              path_ + " is of another run; it differs in " + differs));
    }
    if (const Status taken = take(line); !taken) {
      return data_loss("{}:{}: {}", path_, number, taken.error().message());
    }
  }
  return {};
}

Status JournalFile::write(const Report& line) {
  // A program that is killed leaves what the system has; no more is needed.
  file_ << journal_line(line) << '\n' << std::flush;
  if (file_) return {};
  return error(StatusCode::kUnavailable, "{}: expected a file that takes another line", path_);
}

}  // namespace kakeya::eval
