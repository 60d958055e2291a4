#include "wire/anthropic/tools_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json_size.h"
#include "wire/http/json_parts.h"
#include "wire/http/request_limits.h"

namespace kakeya::anthropic {
namespace {

using service::ToolChoice;
using wire::Json;
using wire::JsonReader;
using wire::shown;

// {"name", "description", "input_schema"}, and maybe "type": "custom". Tools of another type run on
// Anthropic's servers.
void check_tool(JsonReader& reader, const Json& tool, std::string_view text, std::size_t index) {
  const std::string where = fmt::format("tools[{}]", index);
  const Json* type = tool.is_object() ? reader.find(tool, "type") : nullptr;
  if (type != nullptr && *type != "custom") {
    return reader.refuse(where, "a tool of the client", "type " + shown(*type));
  }
  const Json* name = tool.is_object() ? reader.find(tool, "name") : nullptr;
  const Json* schema = tool.is_object() ? reader.find(tool, "input_schema") : nullptr;
  const Json* description = tool.is_object() ? reader.find(tool, "description") : nullptr;
  const bool sound = name != nullptr && name->is_string() && schema != nullptr &&
                     schema->is_object() && (description == nullptr || description->is_string());
  if (!sound) {
    return reader.refuse(where, R"({"name": ..., "description": ..., "input_schema": {...}})",
                         shown(tool));
  }
  if (json_size(text).values > wire::kMostValuesOfATool) {
    reader.refuse(where, fmt::format("at most {} JSON values", wire::kMostValuesOfATool), "more");
  }
}

// The tool as templates expect it.
std::string function_of(const Json& tool, std::string_view text) {
  const auto description = tool.find("description");
  std::string function =
      R"({"type":"function","function":{"name":)" + std::string(wire::member_text(text, "name"));
  if (description != tool.end() && description->is_string()) {
    function.append(R"(,"description":)").append(wire::member_text(text, "description"));
  }
  function.append(R"(,"parameters":)").append(wire::member_text(text, "input_schema"));
  return function + "}}";
}

// {"type": "auto", "any", "tool" or "none", "name", "disable_parallel_tool_use"}
void read_choice(JsonReader& reader,
                 const Json& body,
                 const Json& tools,
                 service::AnswerRequest& out) {
  const Json* choice = reader.find(body, "tool_choice");
  if (choice == nullptr) return;
  const Json* type = choice->is_object() ? reader.find(*choice, "type") : nullptr;
  if (type == nullptr) {
    return reader.refuse("tool_choice", R"({"type": "auto", "any", "tool" or "none"})",
                         shown(*choice));
  }
  bool is_single = false;
  reader.read(*choice, "disable_parallel_tool_use", is_single);
  out.parallel_tool_calls = !is_single;
  if (*type == "auto") return;
  if (*type == "none") {
    out.tool_choice = ToolChoice::kNone;
  } else if (*type == "any" && !tools.empty()) {
    out.tool_choice = ToolChoice::kRequired;
  } else if (*type == "tool") {
    const Json* name = reader.find(*choice, "name");
    const bool known = name != nullptr && std::ranges::any_of(tools, [&](const Json& tool) {
                         return tool.is_object() && tool.contains("name") && tool["name"] == *name;
                       });
    if (!known) {
      return reader.refuse("tool_choice.name", "the name of one of the tools",
                           name == nullptr ? "nothing" : shown(*name));
    }
    out.tool_choice = ToolChoice::kNamed;
    out.tool_name = name->is_string() ? name->get<std::string>() : "";
  } else {
    reader.refuse("tool_choice.type", "auto, any, tool or none, and tools beside it", shown(*type));
  }
}

}  // namespace

void read_tools(JsonReader& reader,
                const Json& body,
                std::string_view text,
                service::AnswerRequest& out) {
  const Json* tools = reader.find(body, "tools");
  if (tools == nullptr) return read_choice(reader, body, Json::array(), out);
  if (!tools->is_array() || tools->size() > wire::kMostTools) {
    return reader.refuse("tools", fmt::format("an array of at most {} tools", wire::kMostTools),
                         tools->is_array() ? std::to_string(tools->size()) : shown(*tools));
  }
  read_choice(reader, body, *tools, out);
  const std::vector<std::string_view> texts = wire::parts_of(wire::member_text(text, "tools"));
  for (std::size_t i = 0; i < tools->size() && !reader.failed(); ++i) {
    check_tool(reader, (*tools)[i], texts[i], i);
    if (reader.failed() || out.tool_choice == service::ToolChoice::kNone) continue;
    out.chat.tools.push_back(function_of((*tools)[i], texts[i]));
  }
}

}  // namespace kakeya::anthropic
