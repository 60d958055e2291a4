// Ends of answers by their lines: what editors ask for that show one while the user types.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace kakeya::service {

struct LineLimits {
  // An answer ends before a line behind its first one that is indented by fewer blanks (spaces and
  // tabs), as an empty one is; 0: any line.
  std::int64_t least_indent = 0;
  // An answer that has a line end ends with the first token that comes later than so many seconds
  // behind its first one; 0: whenever.
  double most_seconds = 0.0;
};

// Follows one answer. One thread at a time.
class LineGuard {
 public:
  explicit LineGuard(const LineLimits& limits) : limits_(limits) {}

  // Looks at what a token has appended to `text` behind its first `before` bytes. Returns whether
  // that ends the answer, and takes away what belongs to no line of it.
  bool push(std::string& text, std::size_t before);

 private:
  LineLimits limits_;
  std::optional<std::chrono::steady_clock::time_point> first_ = {};  // token
  bool has_line_end_ = false;
  bool in_indent_ = false;  // at the blanks of a line behind the first one
  std::int64_t indent_ = 0;
};

}  // namespace kakeya::service
