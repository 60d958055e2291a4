// Small things about what a request says.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// The query of a request's target, behind the mark; empty without one.
inline std::string_view query_of(std::string_view target) {
  const std::size_t mark = target.find('?');
  return mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
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

// The members of a query ("a=1&b=2"), in their order; one without a value has an empty one.
inline std::vector<std::pair<std::string, std::string>> members_of(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> members;
  while (!query.empty()) {
    const std::string_view member = query.substr(0, query.find('&'));
    const std::size_t equals = std::min(member.find('='), member.size());
    if (!member.empty()) {
      members.emplace_back(decoded(member.substr(0, equals)),
                           decoded(member.substr(std::min(equals + 1, member.size()))));
    }
    query.remove_prefix(std::min(member.size() + 1, query.size()));
  }
  return members;
}

// The beginning of what a client sent, for a message.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 60;
  return fmt::format("'{}{}'", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

}  // namespace kakeya::wire
