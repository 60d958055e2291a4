// Texts that were pasted into a line, kept aside: a placeholder stands for each until the line is
// sent.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace kakeya::cli {

class Pastes {
 public:
  explicit Pastes(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // Keeps `text` and returns what stands for it, "[pasted 1: 523 lines, 100000 bytes]". The oldest
  // texts go to make room, but for those that stand in `line`, which is being written. Nothing if
  // there is no room.
  std::optional<std::string> keep(std::string text, std::string_view line);

  // The line with the texts themselves, whose own words are left as they are.
  std::string expand(std::string_view line) const;

 private:
  struct Paste {
    std::string placeholder;
    std::string text;
  };

  const std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  int last_number_ = 0;
  std::map<int, Paste> pastes_;  // by number, the oldest first
};

// True if `text` can be typed into a line as it is: one short line of UTF-8 that no terminal and no
// editor takes for a command.
bool is_typed_as_it_is(std::string_view text);

}  // namespace kakeya::cli
