#include "wire/http/json_parts.h"

#include <cstddef>

#include "wire/http/json_reader.h"

namespace kakeya::wire {
namespace {

// True if a member, one of parts_of() an object, has this name; `end`: where the name ends.
bool is_named(std::string_view member, std::string_view name, std::size_t& end) {
  const std::size_t begin = member.find('"');
  end = begin + 1;
  while (end < member.size() && member[end] != '"') end += member[end] == '\\' ? 2 : 1;
  if (end >= member.size()) return false;  // an object without members
  return Json::parse(member.substr(begin, end + 1 - begin)) == name;
}

}  // namespace

std::vector<std::string_view> parts_of(std::string_view json) {
  std::vector<std::string_view> parts;
  std::size_t depth = 0;
  std::size_t begin = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < json.size(); ++at) {
    const char byte = json[at];
    if (in_string) {
      if (byte == '\\') ++at;
      if (byte == '"') in_string = false;
      continue;
    }
    if (byte == '"') in_string = true;
    if ((byte == '[' || byte == '{') && ++depth == 1) begin = at + 1;
    const bool closes = byte == ']' || byte == '}';
    if (depth == 1 && (byte == ',' || closes)) {
      parts.push_back(json.substr(begin, at - begin));
      begin = at + 1;
    }
    if (closes) --depth;
  }
  return parts;
}

std::string_view member_text(std::string_view json, std::string_view name) {
  std::string_view found;
  for (const std::string_view part : parts_of(json)) {
    std::size_t end = 0;
    if (is_named(part, name, end)) found = part.substr(part.find(':', end) + 1);
  }
  return found;
}

std::string without_member(std::string_view json, std::string_view name) {
  std::string left;
  for (const std::string_view part : parts_of(json)) {
    std::size_t end = 0;
    if (is_named(part, name, end)) continue;
    if (!left.empty()) left += ',';
    left += part;
  }
  return '{' + left + '}';
}

}  // namespace kakeya::wire
