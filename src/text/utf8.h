// Reading, checking and writing UTF-8. Knows no other encoding and no character properties.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kakeya {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// One step of reading: either a scalar value or a maximal invalid part (Unicode 15, section 3.9,
// "Substitution of Maximal Subparts").
struct Utf8Step {
  char32_t code_point;  // U+FFFD if invalid
  std::size_t size;     // bytes consumed, at least 1
  bool valid;
  bool truncated;  // invalid only because the text ends before the character does
};

// Reads the character at text[offset]; offset < text.size().
Utf8Step read_utf8(std::string_view text, std::size_t offset);

// Appends one scalar value; the caller guarantees that it is one.
void append_utf8(char32_t code_point, std::string& out);

bool is_valid_utf8(std::string_view text);

// Appends `text` with each maximal invalid part replaced by one U+FFFD.
void append_valid_utf8(std::string_view text, std::string& out);

// Number of characters of valid UTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace kakeya
