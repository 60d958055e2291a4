#include "wire/openai/flat_tools_read.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/json_size.h"
#include "wire/http/json_parts.h"
#include "wire/http/request_limits.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;
using wire::Json;

// The text of a function, {"name", ...}, under this name and without its type.
std::string named_text(std::string_view text, const std::string& name) {
  const std::string rest = wire::without_member(wire::without_member(text, "type"), "name");
  return fmt::format("{{\"name\":{}{}{}", Json(name).dump(), rest == "{}" ? "" : ",",
                     std::string_view(rest).substr(1));
}

// A search of the web that may not ask the web: nothing could be found.
bool is_idle_search(const Json& type, const Json& tool) {
  return type == "web_search" && tool.value("external_web_access", Json()) == false;
}

// The words that tell the model of a form that a text is to have; empty: it may have any.
std::string words_of_format(wire::JsonReader& reader,
                            const Json& format,
                            const std::string& where) {
  const auto is_text = [&](const char* name) {
    return format.contains(name) && format[name].is_string();
  };
  if (format.is_object() && format.value("type", Json()) == "text") return "";
  if (format.is_object() && format.value("type", Json()) == "grammar" && is_text("syntax") &&
      is_text("definition")) {
    return fmt::format("A text of this grammar ({}):\n{}",
                       format["syntax"].get_ref<const std::string&>(),
                       format["definition"].get_ref<const std::string&>());
  }
  reader.refuse(where, R"({"type": "text"} or {"type": "grammar", "syntax", "definition"})",
                wire::shown(format));
  return "";
}

}  // namespace

bool check_tool_list(wire::JsonReader& reader, const Json& tools, const std::string& where) {
  if (tools.is_array() && tools.size() <= wire::kMostTools) return true;
  reader.refuse(where, fmt::format("an array of at most {} tools", wire::kMostTools),
                tools.is_array() ? std::to_string(tools.size()) : wire::shown(tools));
  return false;
}

void check_tool_size(wire::JsonReader& reader, std::string_view text, const std::string& where) {
  if (json_size(text).values <= wire::kMostValuesOfATool) return;
  reader.refuse(where, fmt::format("at most {} JSON values", wire::kMostValuesOfATool), "more");
}

void FlatTools::add(const Json& tools, std::string_view text, const std::string& where) {
  add_of("", tools, text, where);
}

void FlatTools::add_of(const std::string& space,
                       const Json& tools,
                       std::string_view text,
                       const std::string& where) {
  if (!check_tool_list(reader_, tools, where)) return;
  const std::vector<std::string_view> texts = wire::parts_of(text);
  for (std::size_t i = 0; i < tools.size() && !reader_.failed(); ++i) {
    add_tool(space, tools[i], texts[i], fmt::format("{}[{}]", where, i));
  }
}

void FlatTools::add_tool(const std::string& space,
                         const Json& tool,
                         std::string_view text,
                         const std::string& where) {
  const Json* type = tool.is_object() ? reader_.find(tool, "type") : nullptr;
  if (type != nullptr && *type == "namespace" && space.empty()) return add_space(tool, text, where);
  if (type != nullptr && *type == "custom") return add_custom(space, tool, where);
  if (type != nullptr && is_idle_search(*type, tool)) return;
  if (type != nullptr && *type != "function") {
    return reader_.refuse(
        where + ".type",
        space.empty() ? "function, custom or namespace, for others run elsewhere or have no schema"
                      : "function or custom in a namespace",
        wire::shown(*type));
  }
  add_function(space, tool, text, where);
}

void FlatTools::add_space(const Json& space, std::string_view text, const std::string& where) {
  const Json* name = reader_.find(space, "name");
  const Json* tools = reader_.find(space, "tools");
  const bool is_named = name != nullptr && name->is_string() && *name != "";
  if (!is_named || tools == nullptr) {
    return reader_.refuse(where, R"({"type": "namespace", "name": ..., "tools": [...]})",
                          wire::shown(space));
  }
  add_of(name->get<std::string>(), *tools, wire::member_text(text, "tools"), where + ".tools");
}

void FlatTools::add_function(const std::string& space,
                             const Json& tool,
                             std::string_view text,
                             const std::string& where) {
  const Json* name = tool.is_object() && reader_.find(tool, "type") != nullptr
                         ? reader_.find(tool, "name")
                         : nullptr;
  if (name == nullptr || !name->is_string()) {
    return reader_.refuse(where, R"({"type": "function", "name": ..., "parameters": ...})",
                          wire::shown(tool));
  }
  check_tool_size(reader_, text, where);
  const std::string& own = name->get_ref<const std::string&>();
  // Without a namespace the text stays as it is.
  keep(
      {.space = space, .name = own},
      space.empty() ? wire::without_member(text, "type") : named_text(text, shown_name(space, own)),
      where);
}

void FlatTools::add_custom(const std::string& space, const Json& tool, const std::string& where) {
  const Json* name = reader_.find(tool, "name");
  const Json* description = reader_.find(tool, "description");
  if (name == nullptr || !name->is_string() ||
      (description != nullptr && !description->is_string())) {
    return reader_.refuse(where, R"({"type": "custom", "name": ..., "description": ...})",
                          wire::shown(tool));
  }
  ordered_json argument = {{"type", "string"}};
  if (const Json* format = reader_.find(tool, "format")) {
    const std::string words = words_of_format(reader_, *format, where + ".format");
    if (!words.empty()) argument["description"] = words;
  }
  const std::string& own = name->get_ref<const std::string&>();
  ordered_json function = {{"name", shown_name(space, own)}};
  if (description != nullptr) function["description"] = *description;
  function["parameters"] = {{"type", "object"},
                            {"properties", {{kCustomArgument, std::move(argument)}}},
                            {"required", ordered_json::array({kCustomArgument})},
                            {"additionalProperties", false}};
  keep({.space = space, .name = own, .is_custom = true}, function.dump(), where);
}

void FlatTools::keep(const ClientTool& tool, const std::string& text, const std::string& where) {
  const std::string shown = shown_name(tool.space, tool.name);
  if (shown_.size() >= wire::kMostTools) {
    return reader_.refuse("tools", fmt::format("at most {} tools", wire::kMostTools), "more");
  }
  const auto [known, is_new] = names_.try_emplace(shown, tool);
  if (!is_new && known->second != tool) {
    return reader_.refuse(where + ".name", "a name that the model is shown for no other tool",
                          wire::shown(Json(shown)));
  }
  shown_.push_back(
      {.name = shown, .text = fmt::format(R"({{"type":"function","function":{}}})", text)});
}

}  // namespace kakeya::openai
