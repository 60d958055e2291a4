// JSON as it comes: whether a text, so far, begins a JSON object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kakeya::service {

inline bool is_json_blank(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

// True of a number of RFC 8259.
bool is_json_number(std::string_view text);

// The text as a part of a JSON string, without the quotes.
std::string json_escaped(std::string_view text);

// Checks an object, a byte at a time, by RFC 8259. Bytes in strings are not checked for UTF-8.
class JsonChecker {
 public:
  // False if no JSON object begins like that, or one whose brackets are deeper than `most_depth`;
  // nothing has changed then.
  bool push(char byte, std::size_t most_depth);

  std::size_t depth() const { return open_.size(); }  // brackets that are open
  bool is_whole() const { return state_ == State::kWhole; }

 private:
  enum class State : std::uint8_t {
    kBegin,
    kFirstKey,  // or the end of the object
    kKey,
    kColon,
    kFirstValue,  // or the end of the array
    kValue,
    kString,
    kEscape,
    kHex,
    kScalar,
    kAfterValue,
    kWhole,
  };

  bool push_string(char byte);
  bool push_value(char byte, std::size_t most_depth);
  bool push_after_value(char byte);
  bool open(char byte, std::size_t most_depth);
  bool close(char byte);

  State state_ = State::kBegin;
  std::string open_ = {};
  std::string scalar_ = {};
  bool is_key_ = false;
  int hex_digits_ = 0;
};

}  // namespace kakeya::service
