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

void check_size(wire::JsonReader& reader, std::string_view text, const std::string& where) {
  if (json_size(text).values <= kMostValuesOfATool) return;
  reader.refuse(where, fmt::format("at most {} JSON values", kMostValuesOfATool), "more");
}

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
  check_size(reader, text, where);
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
  if (*choice == "required") {
    if (tools.empty()) return reader.refuse("tool_choice", "tools beside required", "none");
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

// {"type": "function", "name", ...}
void check_flat_tool(wire::JsonReader& reader,
                     const wire::Json& tool,
                     std::string_view text,
                     std::size_t index) {
  const std::string where = fmt::format("tools[{}]", index);
  const wire::Json* type = tool.is_object() ? reader.find(tool, "type") : nullptr;
  if (type != nullptr && *type != "function") {
    return reader.refuse(where + ".type", "function, for others run on OpenAI's servers",
                         wire::shown(*type));
  }
  const wire::Json* name = type != nullptr ? reader.find(tool, "name") : nullptr;
  if (name == nullptr || !name->is_string()) {
    return reader.refuse(where, R"({"type": "function", "name": ..., "parameters": ...})",
                         wire::shown(tool));
  }
  check_size(reader, text, where);
}

// "auto", "none", "required" or {"type": "function", "name": ...}.
void read_flat_choice(wire::JsonReader& reader,
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
  const bool is_function = choice->is_object() && choice->value("type", wire::Json()) == "function";
  const wire::Json* name = is_function ? reader.find(*choice, "name") : nullptr;
  const bool known = name != nullptr && name->is_string() &&
                     std::ranges::any_of(tools, [name](const wire::Json& tool) {
                       return tool.is_object() && tool.contains("name") && tool["name"] == *name;
                     });
  if (!known) {
    return reader.refuse("tool_choice", "auto, none, required or the function of one of the tools",
                         wire::shown(name == nullptr ? *choice : *name));
  }
  out.tool_choice = ToolChoice::kNamed;
  out.tool_name = name->get<std::string>();
}

// "tools", null if there are none.
const wire::Json* find_tools(wire::JsonReader& reader, const wire::Json& body) {
  const wire::Json* tools = reader.find(body, "tools");
  if (tools == nullptr || tools->empty()) return nullptr;
  if (tools->is_array() && tools->size() <= kMostTools) return tools;
  reader.refuse("tools", fmt::format("an array of at most {} tools", kMostTools),
                tools->is_array() ? std::to_string(tools->size()) : wire::shown(*tools));
  return nullptr;
}

}  // namespace

void read_tools(wire::JsonReader& reader,
                const wire::Json& body,
                std::string_view text,
                service::AnswerRequest& out) {
  reader.read(body, "parallel_tool_calls", out.parallel_tool_calls);
  const wire::Json* tools = find_tools(reader, body);
  if (tools == nullptr) return read_choice(reader, body, wire::Json::array(), out);
  read_choice(reader, body, *tools, out);
  if (out.tool_choice == ToolChoice::kNone) return;  // the model is not shown them
  // Each tool's own text is handed on, for members keep their order.
  const std::vector<std::string_view> texts = wire::parts_of(wire::member_text(text, "tools"));
  for (std::size_t index = 0; index < tools->size() && !reader.failed(); ++index) {
    check_tool(reader, (*tools)[index], texts[index], index);
    out.chat.tools.emplace_back(texts[index]);
  }
}

void read_flat_tools(wire::JsonReader& reader,
                     const wire::Json& body,
                     std::string_view text,
                     service::AnswerRequest& out) {
  reader.read(body, "parallel_tool_calls", out.parallel_tool_calls);
  const wire::Json* tools = find_tools(reader, body);
  if (tools == nullptr) return read_flat_choice(reader, body, wire::Json::array(), out);
  const std::vector<std::string_view> texts = wire::parts_of(wire::member_text(text, "tools"));
  for (std::size_t index = 0; index < tools->size() && !reader.failed(); ++index) {
    check_flat_tool(reader, (*tools)[index], texts[index], index);
    if (reader.failed()) return;
    out.chat.tools.push_back(fmt::format(R"({{"type":"function","function":{}}})",
                                         wire::without_member(texts[index], "type")));
  }
  read_flat_choice(reader, body, *tools, out);
  if (out.tool_choice == ToolChoice::kNone) out.chat.tools.clear();  // the model is not shown them
}

}  // namespace kakeya::openai
