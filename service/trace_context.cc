#include "service/trace_context.h"

#include <cstddef>

namespace kakeya::service {

std::string_view trace_id_of(std::string_view text) {
  // version "-" trace-id "-" parent-id "-" flags, and maybe more behind a "-" in later versions.
  constexpr std::size_t kLength = 55;
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
  const std::string_view version = text.substr(0, 2);
  const std::string_view trace_id = text.substr(3, 32);
  const std::string_view parent_id = text.substr(36, 16);
  for (const std::string_view part : {version, trace_id, parent_id, text.substr(53, 2)}) {
    if (part.find_first_not_of("0123456789abcdef") != part.npos) return {};
  }
  const auto is_zero = [](std::string_view part) {
    return part.find_first_not_of('0') == part.npos;
  };
  if (version == "ff" || is_zero(trace_id) || is_zero(parent_id)) return {};
  if (text.size() > kLength && (is_zero(version) || text[kLength] != '-')) return {};
  return trace_id;
}

}  // namespace kakeya::service
