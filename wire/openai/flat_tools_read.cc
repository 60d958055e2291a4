#include "wire/openai/flat_tools_read.h"

#include <fmt/format.h>

#include <cstddef>

#include "base/json_size.h"
#include "wire/http/json_parts.h"
#include "wire/http/request_limits.h"

namespace kakeya::openai {
namespace {

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

}  // namespace

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
  if (!tools.is_array() || tools.size() > wire::kMostTools) {
    return reader_.refuse(where, fmt::format("an array of at most {} tools", wire::kMostTools),
                          tools.is_array() ? std::to_string(tools.size()) : wire::shown(tools));
  }
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
  if (type != nullptr && is_idle_search(*type, tool)) return;
  if (type != nullptr && *type != "function") {
    return reader_.refuse(
        where + ".type",
        space.empty() ? "function or namespace, for others run elsewhere or have no JSON schema"
                      : "function in a namespace",
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

void FlatTools::keep(ClientTool tool, std::string text, const std::string& where) {
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
