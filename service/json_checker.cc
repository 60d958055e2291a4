#include "service/json_checker.h"

#include <fmt/format.h>

#include <algorithm>

namespace kakeya::service {
namespace {

constexpr std::size_t kMostScalarBytes = 1024;

bool is_digit(char byte) {
  return byte >= '0' && byte <= '9';
}

// Leaves out digits; whether there was one.
bool skip_digits(std::string_view& text) {
  const auto end = std::ranges::find_if_not(text, is_digit);
  const auto count = static_cast<std::size_t>(end - text.begin());
  text.remove_prefix(count);
  return count > 0;
}

bool is_word(std::string_view text) {
  return text == "true" || text == "false" || text == "null";
}

bool may_begin_scalar(char byte) {
  return is_digit(byte) || byte == '-' || byte == 't' || byte == 'f' || byte == 'n';
}

bool is_hex_digit(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

bool is_json_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const bool begins_with_zero = text.starts_with('0');
  const std::size_t size = text.size();
  if (!skip_digits(text) || (begins_with_zero && size - text.size() > 1)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!skip_digits(text)) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (!skip_digits(text)) return false;
  }
  return text.empty();
}

std::string json_escaped(std::string_view text) {
  std::string escaped;
  for (const char byte : text) {
    switch (byte) {
      case '"':
      case '\\':
        escaped += '\\';
        escaped += byte;
        break;
      case '\n':
        escaped += "\\n";
        break;
      case '\r':
        escaped += "\\r";
        break;
      case '\t':
        escaped += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(byte) < 0x20) {
          escaped += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
        } else {
          escaped += byte;
        }
    }
  }
  return escaped;
}

bool JsonChecker::push(char byte, std::size_t most_depth) {
  switch (state_) {
    case State::kBegin:
      return byte == '{' && open(byte, most_depth);
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return push_string(byte);
    case State::kFirstKey:
    case State::kKey:
      if (is_json_blank(byte)) return true;
      if (byte == '}' && state_ == State::kFirstKey) return close(byte);
      if (byte != '"') return false;
      is_key_ = true;
      state_ = State::kString;
      return true;
    case State::kColon:
      if (is_json_blank(byte)) return true;
      if (byte != ':') return false;
      state_ = State::kValue;
      return true;
    case State::kFirstValue:
    case State::kValue:
      return push_value(byte, most_depth);
    case State::kScalar:
    case State::kAfterValue:
      return push_after_value(byte);
    case State::kWhole:
      break;
  }
  return is_json_blank(byte);
}

bool JsonChecker::push_string(char byte) {
  if (state_ == State::kHex) {
    if (!is_hex_digit(byte)) return false;
    if (++hex_digits_ == 4) state_ = State::kString;
  } else if (state_ == State::kEscape) {
    if (std::string_view("\"\\/bfnrtu").find(byte) == std::string_view::npos) return false;
    hex_digits_ = 0;
    state_ = byte == 'u' ? State::kHex : State::kString;
  } else if (byte == '"') {
    state_ = is_key_ ? State::kColon : State::kAfterValue;
    is_key_ = false;
  } else if (byte == '\\') {
    state_ = State::kEscape;
  } else if (static_cast<unsigned char>(byte) < 0x20) {
    return false;
  }
  return true;
}

bool JsonChecker::push_value(char byte, std::size_t most_depth) {
  if (is_json_blank(byte)) return true;
  if (byte == '{' || byte == '[') return open(byte, most_depth);
  if (byte == ']' && state_ == State::kFirstValue) return close(byte);
  if (byte == '"') {
    state_ = State::kString;
    return true;
  }
  if (!may_begin_scalar(byte)) return false;
  scalar_ = byte;
  state_ = State::kScalar;
  return true;
}

bool JsonChecker::push_after_value(char byte) {
  if (state_ == State::kScalar) {
    const bool ends = is_json_blank(byte) || byte == ',' || byte == '}' || byte == ']';
    if (!ends) {
      const bool known = is_digit(byte) || (byte >= 'a' && byte <= 'z') || byte == '.' ||
                         byte == '-' || byte == '+' || byte == 'E';
      if (!known || scalar_.size() >= kMostScalarBytes) return false;
      scalar_ += byte;
      return true;
    }
    if (!is_word(scalar_) && !is_json_number(scalar_)) return false;
  }
  if (byte == '}' || byte == ']') return close(byte);
  if (!is_json_blank(byte) && byte != ',') return false;
  if (byte == ',') {
    state_ = open_.back() == '{' ? State::kKey : State::kValue;
  } else {
    state_ = State::kAfterValue;
  }
  return true;
}

bool JsonChecker::open(char byte, std::size_t most_depth) {
  if (open_.size() >= most_depth) return false;
  open_ += byte;
  state_ = byte == '{' ? State::kFirstKey : State::kFirstValue;
  return true;
}

bool JsonChecker::close(char byte) {
  if (open_.back() != (byte == '}' ? '{' : '[')) return false;
  open_.pop_back();
  state_ = open_.empty() ? State::kWhole : State::kAfterValue;
  return true;
}

}  // namespace kakeya::service
