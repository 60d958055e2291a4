#include "tools_file.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bounded_json.h"
#include "base/status.h"
#include "cli/command.h"

namespace kakeya::cli {
namespace {

using nlohmann::ordered_json;

// Adds a tool, as templates expect it. False if it is none.
bool add_tool(ordered_json tool, ToolsFile& file) {
  if (!tool.is_object()) return false;
  if (!tool.contains("type") && !tool.contains("function")) {
    ordered_json function = std::move(tool);
    tool = {{"type", "function"}, {"function", std::move(function)}};
  }
  if (tool.value("type", ordered_json()) != "function") return false;
  const ordered_json function = tool.value("function", ordered_json());
  if (!function.is_object()) return false;
  const ordered_json name = function.value("name", ordered_json());
  if (!name.is_string()) return false;
  file.names.push_back(name);
  file.tools.push_back(tool.dump());
  return true;
}

}  // namespace

Result<ToolsFile> read_tools(const std::string& file) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_text(file));
  auto json = read_json(text);
  if (!json) return Unexpected(json.error().with_context(file));
  if (!json->is_array()) json = ordered_json::array({std::move(*json)});
  ToolsFile tools;
  for (std::size_t i = 0; i < json->size(); ++i) {
    if (add_tool(std::move((*json)[i]), tools)) continue;
    return invalid_argument(
        R"({}: tool {}: expected {{"type": "function", "function": {{"name": ...}}}}, got something else)",
        file, i);
  }
  if (tools.tools.empty()) return invalid_argument("{}: expected tools, got an empty array", file);
  return tools;
}

}  // namespace kakeya::cli
