#include "wire/openai/tool_names.h"

#include <fmt/format.h>

namespace kakeya::openai {

std::string shown_name(std::string_view space, std::string_view name) {
  if (space.empty()) return std::string(name);
  while (space.ends_with('_')) space.remove_suffix(1);
  return fmt::format("{}__{}", space, name);
}

}  // namespace kakeya::openai
