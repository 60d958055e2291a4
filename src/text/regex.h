// A compiled regular expression over valid UTF-8 with Unicode classes, for pre-tokenizers.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kakeya/status.h"
#include "kakeya/tokenizer.h"

namespace kakeya {

// The time that expressions may take for a text as a whole. Every match may look at the rest of the
// text, so that matches of few steps each can take quadratic time, and the library does not tell
// how many steps it used. One thread at a time.
class MatchTime {
 public:
  // A published pre-tokenizer takes a fiftieth of this.
  static constexpr double kSeconds = 0.25;
  static constexpr double kSecondsPerByte = 2e-6;

  explicit MatchTime(std::size_t text_bytes)
      : most_seconds_(kSeconds + kSecondsPerByte * static_cast<double>(text_bytes)) {}

  // True if the time is over. Ask at every match; it looks at the clock now and then.
  bool is_over() {
    if (--matches_until_look_ > 0) return false;
    matches_until_look_ = kMatchesBetweenLooks;
    return watch_.seconds() > most_seconds_;
  }
  double most_seconds() const { return most_seconds_; }

 private:
  static constexpr int kMatchesBetweenLooks = 16;

  double most_seconds_;
  Stopwatch watch_;
  int matches_until_look_ = kMatchesBetweenLooks;
};

// Immutable; any number of threads may match at once.
class Regex {
 public:
  // Errors: kDataLoss with the position if the pattern is malformed or too large.
  static Result<Regex> compile(std::string_view pattern);

  Regex(Regex&& other) noexcept;
  Regex& operator=(Regex&& other) noexcept;
  ~Regex();

  // Appends the successive matches, left to right, none overlapping.
  // Errors: kDataLoss if a match takes too many steps or all of them too much time;
  // kResourceExhausted if memory is out.
  Status find_all(std::string_view text, MatchTime& time, std::vector<TextRange>& matches) const;

 private:
  struct Code;

  explicit Regex(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
};

}  // namespace kakeya
