#include "service/grammar/character_classes.h"

#include <utility>

namespace kakeya::service {
namespace {

CharRanges digits() {
  return {{'0', '9'}};
}
CharRanges word_characters() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
CharRanges white_space() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
}

CharRanges with(CharRanges ranges, const CharRanges& more) {
  ranges.insert(ranges.end(), more.begin(), more.end());
  return normalized(std::move(ranges));
}

// Punctuation, arrows, mathematics, technical signs and pictures: blocks without a letter or digit.
CharRanges signs() {
  return {{0x2010, 0x2027}, {0x2030, 0x205E}, {0x20A0, 0x20BF},
          {0x2190, 0x23FF}, {0x2500, 0x2775}, {0x1F300, 0x1FAFF}};
}

// Letters of alphabets without digits of their own: those that come before the first of others,
// Japanese, Chinese, Korean.
CharRanges letters() {
  return {{0xC0, 0x24F},    {0x370, 0x3FF},   {0x400, 0x4FF},
          {0x3041, 0x30FF}, {0x4E00, 0x9FFF}, {0xAC00, 0xD7A3}};
}

// The characters that a letter behind a backslash means to every reader: to ECMA-262, of which
// JSON Schema is, digits and words are of ASCII; to Python and Rust of any alphabet, and the white
// space of these three differs, too.
std::optional<CharRanges> agreed_class(char32_t letter) {
  switch (letter) {
    case 'd':
      return digits();
    case 'D':
      return with(complement_of(with(digits(), {{0x80, kLastChar}})), with(signs(), letters()));
    case 'w':
      return word_characters();
    case 'W':
      return with(complement_of(with(word_characters(), {{0x80, kLastChar}})),
                  with(signs(), white_space()));
    case 's':
      return white_space();
    case 'S':
      return complement_of(with(white_space(), {{0x1C, 0x1F}, {0x85, 0x85}, {0xFEFF, 0xFEFF}}));
    default:
      return {};
  }
}

}  // namespace

std::optional<CharRanges> class_of(char32_t letter, Readers readers) {
  if (readers == Readers::kAll) return agreed_class(letter);
  auto others = agreed_class(opposite_of(letter));
  if (!others) return {};
  return complement_of(*std::move(others));
}

}  // namespace kakeya::service
