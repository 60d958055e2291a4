#include "wire/openai/tools_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/json_size.h"
#include "wire/http/json_parts.h"
#include "wire/http/request_limits.h"

namespace kakeya::openai {
namespace {

using service::ToolChoice;

void check_size(wire::JsonReader& reader, std::string_view text, const std::string& where) {
  if (json_size(text).values <= wire::kMostValuesOfATool) return;
  reader.refuse(where, fmt::format("at most {} JSON values", wire::kMostValuesOfATool), "more");
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

// Where a function's name stands in tools and in choices of one; null: there is none.
using FindName = const wire::Json* (*)(const wire::Json& value);

const wire::Json* flat_name(const wire::Json& value) {
  const auto name = value.is_object() ? value.find("name") : value.end();
  return value.is_object() && name != value.end() && !name->is_null() ? &*name : nullptr;
}

const wire::Json* nested_name(const wire::Json& value) {
  const auto function = value.is_object() ? value.find("function") : value.end();
  return value.is_object() && function != value.end() ? flat_name(*function) : nullptr;
}

// True if a tool of this name is among them.
bool is_listed(const wire::Json& tools, FindName find_name, const wire::Json* name) {
  return name != nullptr && name->is_string() && std::ranges::any_of(tools, [&](const auto& tool) {
           const wire::Json* its = find_name(tool);
           return its != nullptr && *its == *name;
         });
}

// {"mode": "auto" or "required", "tools": [...]}: the answer may call these alone, so the model is
// shown no others. Puts their names into `only`.
void read_allowed_tools(wire::JsonReader& reader,
                        const wire::Json& allowed,
                        const wire::Json& tools,
                        FindName find_name,
                        service::AnswerRequest& out,
                        std::set<std::string>& only) {
  const wire::Json* mode = allowed.is_object() ? reader.find(allowed, "mode") : nullptr;
  const wire::Json* listed = mode != nullptr ? reader.find(allowed, "tools") : nullptr;
  const bool is_sound = listed != nullptr && listed->is_array() && !listed->empty() &&
                        (*mode == "auto" || *mode == "required");
  if (!is_sound) {
    return reader.refuse("tool_choice", R"({"mode": "auto" or "required", "tools": [...]})",
                         wire::shown(allowed));
  }
  for (const wire::Json& tool : *listed) {
    const wire::Json* name = find_name(tool);
    if (!is_listed(tools, find_name, name)) {
      return reader.refuse("tool_choice", "functions among the tools",
                           wire::shown(name == nullptr ? tool : *name));
    }
    only.insert(name->get<std::string>());
  }
  if (*mode == "required") out.tool_choice = ToolChoice::kRequired;
}

// "auto", "none", "required", {"type": "function", ...} with the name of a tool, or {"type":
// "allowed_tools", ...} with some, whose names go into `only`; `untyped`: the type of a choice that
// does not say it.
void read_choice(wire::JsonReader& reader,
                 const wire::Json& body,
                 const wire::Json& tools,
                 FindName find_name,
                 const wire::Json& untyped,
                 service::AnswerRequest& out,
                 std::set<std::string>& only) {
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
  if (choice->is_object() && choice->value("type", wire::Json()) == "allowed_tools") {
    const wire::Json* nested = reader.find(*choice, "allowed_tools");
    return read_allowed_tools(reader, nested != nullptr ? *nested : *choice, tools, find_name, out,
                              only);
  }
  const bool is_function = choice->is_object() && choice->value("type", untyped) == "function";
  const wire::Json* name = is_function ? find_name(*choice) : nullptr;
  const bool known = is_listed(tools, find_name, name);
  if (!known) {
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

// True of a tool that may be called; `only` is empty: all may.
bool is_shown(const wire::Json& name, const std::set<std::string>& only) {
  return only.empty() || only.contains(name.get<std::string>());
}

// "tools", null if there are none.
const wire::Json* find_tools(wire::JsonReader& reader, const wire::Json& body) {
  const wire::Json* tools = reader.find(body, "tools");
  if (tools == nullptr || tools->empty()) return nullptr;
  if (tools->is_array() && tools->size() <= wire::kMostTools) return tools;
  reader.refuse("tools", fmt::format("an array of at most {} tools", wire::kMostTools),
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
  const wire::Json none = wire::Json::array();
  std::set<std::string> only;
  read_choice(reader, body, tools == nullptr ? none : *tools, nested_name, "function", out, only);
  if (tools == nullptr) return;
  if (out.tool_choice == ToolChoice::kNone) return;  // the model is not shown them
  // Each tool's own text is handed on, for members keep their order.
  const std::vector<std::string_view> texts = wire::parts_of(wire::member_text(text, "tools"));
  for (std::size_t index = 0; index < tools->size() && !reader.failed(); ++index) {
    check_tool(reader, (*tools)[index], texts[index], index);
    if (reader.failed()) return;
    if (!is_shown(*nested_name((*tools)[index]), only)) continue;
    out.chat.tools.emplace_back(texts[index]);
  }
}

void read_flat_tools(wire::JsonReader& reader,
                     const wire::Json& body,
                     std::string_view text,
                     service::AnswerRequest& out) {
  reader.read(body, "parallel_tool_calls", out.parallel_tool_calls);
  const wire::Json* tools = find_tools(reader, body);
  std::set<std::string> only;
  if (tools == nullptr) {
    return read_choice(reader, body, wire::Json::array(), flat_name, nullptr, out, only);
  }
  read_choice(reader, body, *tools, flat_name, nullptr, out, only);
  const std::vector<std::string_view> texts = wire::parts_of(wire::member_text(text, "tools"));
  for (std::size_t index = 0; index < tools->size() && !reader.failed(); ++index) {
    check_flat_tool(reader, (*tools)[index], texts[index], index);
    if (reader.failed()) return;
    if (!is_shown(*flat_name((*tools)[index]), only)) continue;
    out.chat.tools.push_back(fmt::format(R"({{"type":"function","function":{}}})",
                                         wire::without_member(texts[index], "type")));
  }
  if (out.tool_choice == ToolChoice::kNone) out.chat.tools.clear();  // the model is not shown them
}

}  // namespace kakeya::openai
