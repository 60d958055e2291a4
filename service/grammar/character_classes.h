// The classes of characters that regular expressions name by a letter, which differ between
// readers.
#pragma once

#include <cstdint>
#include <optional>

#include "service/grammar/grammar.h"

namespace kakeya::service {

// The readers of an expression: ECMA-262's, of which JSON Schema is, Python's and Rust's.
enum class Readers : std::uint8_t { kAll, kAny };

// The characters that \d, \D, \w, \W, \s or \S means to all readers, or to any; none for another
// letter.
std::optional<CharRanges> class_of(char32_t letter, Readers readers);

// The letter of the class of all other characters: D of d.
constexpr char32_t opposite_of(char32_t letter) {
  return letter ^ U' ';
}

}  // namespace kakeya::service
