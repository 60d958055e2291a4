// Small things about what a request says.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <charconv>
#include <string>
#include <string_view>

namespace kakeya::wire {

inline std::string_view view_of(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

// The path of a request's target, without what is asked of it. Clients that put "/v1" behind an
// address with a slash at its end mean the same path.
inline std::string_view path_of(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  const std::size_t name = std::min(path.find_first_not_of('/'), path.size());
  return name > 1 ? path.substr(name - 1) : path;
}

// A segment of a path as it is meant: "%2F" is a slash, as clients write it that quote names. What
// is no such sign stays as it is.
inline std::string decoded(std::string_view segment) {
  std::string text;
  for (std::size_t i = 0; i < segment.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = segment.data() + i + 1;
    const bool is_coded = segment[i] == '%' && i + 2 < segment.size() &&
                          std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    text += is_coded ? static_cast<char>(byte) : segment[i];
    if (is_coded) i += 2;
  }
  return text;
}

// The beginning of what a client sent, for a message.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 60;
  return fmt::format("'{}{}'", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

}  // namespace kakeya::wire
