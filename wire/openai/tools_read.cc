#include "wire/openai/tools_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json_size.h"
#include "wire/http/json_parts.h"

namespace kakeya::openai {
namespace {

using service::ToolChoice;

// {"type": "function", "function": {"name", ...}}, as templates expect it.
void check_tool(wire::JsonReader& reader,
                const wire::Json& tool,
                std::string_view text,
                std::size_t index) {
  const std::string where = fmt::format("tools[{}]", index);
  const wire::Json* type = tool.is_object() ? reader.find(tool, "type") : nullptr;
  const wire::Json* function = tool.is_object() ? reader.find(tool, "function") : nullptr;
  const bool sound = (type == nullptr || *type == "function") && function != nullptr &&
                     function->is_object() && function->contains("name") &&
                     (*function)["name"].is_string();
  if (!sound) {
    std::string got = wire::shown(tool);
    if (type != nullptr && *type != "function") got = "a tool of type " + wire::shown(*type);
    if (tool.is_object() && function == nullptr) got += " without \"function\"";
    return reader.refuse(where, R"({"type": "function", "function": {"name": ...}})", got);
  }
  if (json_size(text).values > kMostValuesOfATool) {
    reader.refuse(where, fmt::format("at most {} JSON values", kMostValuesOfATool), "more");
  }
}

bool has_tool(const wire::Json& tools, const wire::Json& name) {
  return std::ranges::any_of(tools, [&name](const wire::Json& tool) {
    return tool.is_object() && tool.contains("function") && tool["function"].is_object() &&
           tool["function"].contains("name") && tool["function"]["name"] == name;
  });
}

// "auto", "none", "required" or {"type": "function", "function": {"name": ...}}.
void read_choice(wire::JsonReader& reader,
                 const wire::Json& body,
                 const wire::Json& tools,
                 service::AnswerRequest& out) {
  const wire::Json* choice = reader.find(body, "tool_choice");
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    out.tool_choice = ToolChoice::kNone;
    return;
  }
  if (*choice == "required" && !tools.empty()) {
    out.tool_choice = ToolChoice::kRequired;
    return;
  }
  const wire::Json* function =
      choice->is_object() && choice->value("type", wire::Json("function")) == "function"
          ? reader.find(*choice, "function")
          : nullptr;
  const wire::Json* name =
      function != nullptr && function->is_object() ? reader.find(*function, "name") : nullptr;
  if (name == nullptr || !name->is_string() || !has_tool(tools, *name)) {
    return reader.refuse("tool_choice", "auto, none, required or the function of one of the tools",
                         wire::shown(name == nullptr ? *choice : *name));
  }
  out.tool_choice = ToolChoice::kNamed;
  out.tool_name = name->get<std::string>();
}

}  // namespace

void read_tools(wire::JsonReader& reader,
                const wire::Json& body,
                std::string_view text,
                service::AnswerRequest& out) {
  reader.read(body, "parallel_tool_calls", out.parallel_tool_calls);
  const wire::Json* tools = reader.find(body, "tools");
  const wire::Json none = wire::Json::array();
  if (tools == nullptr || tools->empty()) return read_choice(reader, body, none, out);
  if (!tools->is_array() || tools->size() > kMostTools) {
    return reader.refuse("tools", fmt::format("an array of at most {} tools", kMostTools),
                         tools->is_array() ? std::to_string(tools->size()) : wire::shown(*tools));
  }
  read_choice(reader, body, *tools, out);
  if (out.tool_choice == ToolChoice::kNone) return;  // the model is not shown them
  // Each tool's own text is handed on, for members keep their order.
  const std::vector<std::string_view> texts = wire::parts_of(wire::member_text(text, "tools"));
  for (std::size_t index = 0; index < tools->size() && !reader.failed(); ++index) {
    check_tool(reader, (*tools)[index], texts[index], index);
    out.chat.tools.emplace_back(texts[index]);
  }
}

}  // namespace kakeya::openai
