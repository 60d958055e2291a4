// A compiled regular expression over valid UTF-8 with Unicode classes, for pre-tokenizers.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "kakeya/status.h"

namespace kakeya {

struct TextRange {
  std::size_t begin;
  std::size_t end;
};

// Immutable; any number of threads may match at once.
class Regex {
 public:
  // Errors: kDataLoss with the position if the pattern is malformed or too large.
  static Result<Regex> compile(std::string_view pattern);

  Regex(Regex&& other) noexcept;
  Regex& operator=(Regex&& other) noexcept;
  ~Regex();

  // Appends the successive matches, left to right, none overlapping. Matching has a step limit
  // proportional to the text; where a pattern exceeds it, the rest of the text has no match.
  void find_all(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  struct Code;

  explicit Regex(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
};

}  // namespace kakeya
