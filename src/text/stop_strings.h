// Finds stop strings in a text that arrives in pieces, and keeps back what may begin one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "text/flat_map.h"

namespace kakeya {

// The stop string that ends first in the text wins, and among those that end together the longest.
// Keeps back at most one byte less than the longest stop string. One thread at a time.
class StopStringMatcher {
 public:
  static constexpr std::size_t kMaxStrings = 64;
  static constexpr std::size_t kMaxStringBytes = 4096;

  // Errors: kInvalidArgument for an empty string, one that is no UTF-8 or beyond kMaxStringBytes,
  // or too many.
  static Result<StopStringMatcher> create(const std::vector<std::string>& stop_strings);

  // Appends to `out` the text up to the stop string, or all that cannot begin one. Returns whether
  // a stop string was found; from then on further text is ignored. Allocates nothing unless `out`
  // has to grow. If the pieces end at characters, so does what is appended.
  bool feed(std::string_view piece, std::string& out);

  // Appends the text kept back; for when the text has ended without a stop string.
  void flush(std::string& out);

  // Makes it as new.
  void reset();

  // Which stop string was found, by its index.
  std::optional<std::size_t> found() const { return found_; }

 private:
  // A node of the automaton of Aho and Corasick: the longest end of the text that begins some stop
  // string.
  struct Node {
    std::uint32_t fallback = 0;
    std::uint32_t depth = 0;
    std::int32_t match = -1;  // the longest stop string that ends here
  };

  void add(std::string_view text, std::int32_t index);
  void link();
  std::uint32_t advance(std::uint32_t node, char byte) const;

  std::vector<Node> nodes_;
  std::vector<std::vector<std::pair<char, std::uint32_t>>> edges_;  // of building only
  std::vector<std::size_t> sizes_;                                  // of the stop strings
  FlatMap children_;
  std::string held_;
  std::uint32_t node_ = 0;
  std::optional<std::size_t> found_;
};

}  // namespace kakeya
