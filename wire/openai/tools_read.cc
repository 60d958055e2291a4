#include "wire/openai/tools_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "wire/http/json_parts.h"
#include "wire/openai/flat_tools_read.h"

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
  check_tool_size(reader, text, where);
}

// The name that the model is shown of the function that a tool or a choice of one names; none: it
// names none.
using FindName = std::optional<std::string> (*)(const wire::Json& value);

std::optional<std::string> text_in(const wire::Json& object, const char* name) {
  const auto text = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || text == object.end() || !text->is_string()) return std::nullopt;
  return text->get<std::string>();
}

// {"name"}, and "namespace" of one that stands in it.
std::optional<std::string> flat_name(const wire::Json& value) {
  const auto name = text_in(value, "name");
  if (!name) return std::nullopt;
  return shown_name(text_in(value, "namespace").value_or(""), *name);
}

std::optional<std::string> nested_name(const wire::Json& value) {
  const auto function = value.is_object() ? value.find("function") : value.end();
  if (!value.is_object() || function == value.end()) return std::nullopt;
  return text_in(*function, "name");
}

// True if a tool of this name is among them.
bool is_listed(const wire::Json& tools,
               FindName find_name,
               const std::optional<std::string>& name) {
  return name &&
         std::ranges::any_of(tools, [&](const auto& tool) { return find_name(tool) == name; });
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
    const auto name = find_name(tool);
    if (!is_listed(tools, find_name, name)) {
      return reader.refuse("tool_choice", "functions among the tools",
                           wire::shown(name ? wire::Json(*name) : tool));
    }
    only.insert(*name);
  }
  if (*mode == "required") out.tool_choice = ToolChoice::kRequired;
}

// "auto", "none", "required", {"type": "function", ...} with the name of a tool, or {"type":
// "allowed_tools", ...} with some, whose names go into `only`; `untyped`: the type of a choice that
// does not say it; null: choices say it, and may be of {"type": "custom", "name"}.
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
  const wire::Json type = choice->is_object() ? choice->value("type", untyped) : wire::Json();
  const bool is_function = type == "function" || (type == "custom" && untyped.is_null());
  const auto name = is_function ? find_name(*choice) : std::nullopt;
  const bool known = is_listed(tools, find_name, name);
  if (!known) {
    return reader.refuse("tool_choice", "auto, none, required or the function of one of the tools",
                         wire::shown(name ? wire::Json(*name) : *choice));
  }
  out.tool_choice = ToolChoice::kNamed;
  out.tool_name = *name;
}

// True of a tool that may be called; `only` is empty: all may.
bool is_shown(const std::string& name, const std::set<std::string>& only) {
  return only.empty() || only.contains(name);
}

// "tools", null if there are none.
const wire::Json* find_tools(wire::JsonReader& reader, const wire::Json& body) {
  const wire::Json* tools = reader.find(body, "tools");
  if (tools == nullptr || tools->empty()) return nullptr;
  return check_tool_list(reader, *tools, "tools") ? tools : nullptr;
}

// Tools that a client lists among the items of its conversation.
void add_tools_of_items(wire::JsonReader& reader,
                        const wire::Json& body,
                        std::string_view text,
                        FlatTools& out) {
  const wire::Json* input = reader.find(body, "input");
  std::vector<std::string_view> texts;
  for (std::size_t i = 0; input != nullptr && input->is_array() && i < input->size(); ++i) {
    const wire::Json& item = (*input)[i];
    if (text_in(item, "type") != "additional_tools") continue;
    const std::string where = fmt::format("input[{}].tools", i);
    const wire::Json* tools = reader.find(item, "tools");
    if (tools == nullptr) return reader.refuse(where, "an array of tools", "nothing");
    if (texts.empty()) texts = wire::parts_of(wire::member_text(text, "input"));
    out.add(*tools, wire::member_text(texts[i], "tools"), where);
  }
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

ClientTools read_flat_tools(wire::JsonReader& reader,
                            const wire::Json& body,
                            std::string_view text,
                            service::AnswerRequest& out) {
  reader.read(body, "parallel_tool_calls", out.parallel_tool_calls);
  FlatTools tools(reader);
  if (const wire::Json* list = reader.find(body, "tools")) {
    tools.add(*list, wire::member_text(text, "tools"), "tools");
  }
  add_tools_of_items(reader, body, text, tools);
  wire::Json listed = wire::Json::array();
  for (const FlatTools::Shown& tool : tools.shown()) listed.push_back({{"name", tool.name}});
  std::set<std::string> only;
  read_choice(reader, body, listed, flat_name, nullptr, out, only);
  // With "none" the model is not shown them.
  for (const FlatTools::Shown& tool : tools.shown()) {
    if (out.tool_choice != ToolChoice::kNone && is_shown(tool.name, only)) {
      out.chat.tools.push_back(tool.text);
    }
  }
  return tools.take_names();
}

}  // namespace kakeya::openai
