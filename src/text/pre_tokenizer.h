// Cuts text into the words that are encoded one by one, as the "pre_tokenizer" of a tokenizer.json
// says; and the byte-to-character map of byte-level vocabularies.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kakeya/status.h"
#include "text/regex.h"

namespace kakeya {

// The treatment of the matches of a Split (names as in the file).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct Splitter {
  std::variant<std::string, Regex> pattern;  // a literal text, or an expression
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the text between the matches counts as matched
};

// The expression that a ByteLevel pre-tokenizer with use_regex splits by (GPT-2).
inline constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PreTokenizer {
 public:
  void add(Splitter splitter) { splitters_.push_back(std::move(splitter)); }

  // Replaces the content of `words` by the words of `text`, which are views of it, none empty.
  // Errors: as Regex::find_all.
  Status split(std::string_view text, MatchTime& time, std::vector<std::string_view>& words) const;

  // True if all of the text is in some word.
  bool keeps_everything() const;

 private:
  std::vector<Splitter> splitters_;
};

// The reversible map of bytes to printable characters by which byte-level vocabularies are written:
// printable Latin-1 bytes stand for themselves, the other 68 for U+0100 upward in order.
// Source: GPT-2, encoder.py, bytes_to_unicode.
class ByteCharacters {
 public:
  ByteCharacters();

  // Appends the characters of the bytes of `text`.
  void append_encoded(std::string_view text, std::string& out) const;

  // Appends the bytes of the characters of `text`, or the text itself if any of its characters
  // stands for no byte.
  void append_decoded(std::string_view text, std::string& out) const;

 private:
  std::array<std::string, 256> characters_;
  std::array<int, 512> bytes_;  // by scalar value, -1: none
};

}  // namespace kakeya
