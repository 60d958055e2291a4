#include "server/conversation_read.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace kakeya::server {
namespace {

// A text, or parts of {"type": "text"} that are put together.
void read_content(JsonReader& reader,
                  const Json& message,
                  const std::string& where,
                  bool may_be_missing,
                  std::string& out) {
  const Json* content = reader.find(message, "content");
  if (content == nullptr) {
    if (may_be_missing) return;
    return reader.refuse(where, "a text or text parts", "nothing");
  }
  if (content->is_string()) {
    out = content->get<std::string>();
    return;
  }
  if (!content->is_array()) return reader.refuse(where, "a text or text parts", shown(*content));
  for (const Json& part : *content) {
    const Json* type = part.is_object() ? reader.find(part, "type") : nullptr;
    const Json* text = part.is_object() ? reader.find(part, "text") : nullptr;
    if (type == nullptr || *type != "text" || text == nullptr || !text->is_string()) {
      return reader.refuse(where, "parts of {\"type\": \"text\", \"text\": ...}",
                           type == nullptr ? shown(part) : "type " + shown(*type));
    }
    out += text->get_ref<const std::string&>();
  }
}

void read_text(JsonReader& reader,
               const Json& object,
               const char* name,
               const std::string& where,
               std::string& out) {
  const Json* text = reader.find(object, name);
  if (text == nullptr) return;
  if (!text->is_string()) {
    return reader.refuse(fmt::format("{}.{}", where, name), "a text", shown(*text));
  }
  out = text->get<std::string>();
}

// {"id", "type": "function", "function": {"name", "arguments": TEXT}}
void read_tool_calls(JsonReader& reader,
                     const Json& message,
                     const std::string& where,
                     std::vector<ToolCall>& out) {
  const Json* calls = reader.find(message, "tool_calls");
  if (calls == nullptr) return;
  if (!calls->is_array() || calls->size() > kMostToolCalls) {
    return reader.refuse(where, fmt::format("an array of at most {} calls", kMostToolCalls),
                         shown(*calls));
  }
  for (const Json& call : *calls) {
    const Json* function = call.is_object() ? reader.find(call, "function") : nullptr;
    if (function == nullptr || !function->is_object() || !function->contains("name")) {
      return reader.refuse(where, "calls with \"function\": {\"name\", \"arguments\"}",
                           shown(call));
    }
    ToolCall& added = out.emplace_back();
    read_text(reader, call, "id", where, added.id);
    read_text(reader, *function, "name", where, added.name);
    read_text(reader, *function, "arguments", where, added.arguments);
  }
}

void read_message(JsonReader& reader, const Json& message, std::size_t index, ChatMessage& out) {
  const std::string where = fmt::format("messages[{}]", index);
  if (!message.is_object()) return reader.refuse(where, "an object", shown(message));
  const Json* role = reader.find(message, "role");
  const bool known =
      role != nullptr && (*role == "system" || *role == "developer" || *role == "user" ||
                          *role == "assistant" || *role == "tool");
  if (!known) {
    return reader.refuse(where + ".role", "system, developer, user, assistant or tool",
                         role == nullptr ? "nothing" : shown(*role));
  }
  // A developer's message is what newer clients call the system's.
  out.role = *role == "developer" ? "system" : role->get<std::string>();
  if (out.role == "assistant") {
    read_tool_calls(reader, message, where + ".tool_calls", out.tool_calls);
    read_text(reader, message, "reasoning_content", where, out.reasoning);
  }
  read_text(reader, message, "tool_call_id", where, out.tool_call_id);
  read_text(reader, message, "name", where, out.name);
  read_content(reader, message, where + ".content", !out.tool_calls.empty(), out.content);
}

}  // namespace

void read_messages(JsonReader& reader, const Json& body, std::vector<ChatMessage>& out) {
  const Json* messages = reader.find(body, "messages");
  const bool sound = messages != nullptr && messages->is_array() && !messages->empty() &&
                     messages->size() <= kMostMessages;
  if (!sound) {
    std::string got = messages == nullptr ? "nothing" : shown(*messages);
    if (messages != nullptr && messages->is_array()) got = fmt::format("{}", messages->size());
    return reader.refuse("messages", fmt::format("an array of 1 to {} messages", kMostMessages),
                         got);
  }
  out.resize(messages->size());
  for (std::size_t index = 0; index < out.size() && !reader.failed(); ++index) {
    read_message(reader, (*messages)[index], index, out[index]);
  }
}

void read_template_arguments(JsonReader& reader, const Json& body, ChatOptions& out) {
  const Json* arguments = reader.find(body, "chat_template_kwargs");
  if (arguments == nullptr) return;
  const bool sound = arguments->is_object() &&
                     arguments->size() == (arguments->contains("enable_thinking") ? 1U : 0U);
  if (!sound) {
    return reader.refuse("chat_template_kwargs", "an object with enable_thinking alone",
                         shown(*arguments));
  }
  reader.read(*arguments, "enable_thinking", out.enable_thinking);
}

void read_tools(JsonReader& reader, const Json& body, std::string_view text, ChatOptions& out) {
  const Json* tools = reader.find(body, "tools");
  if (tools == nullptr || tools->empty()) return;
  if (!tools->is_array()) return reader.refuse("tools", "an array of tools", shown(*tools));
  const Json* choice = reader.find(body, "tool_choice");
  if (choice != nullptr && *choice == "none") return;
  if (choice != nullptr && *choice != "auto") {
    return reader.refuse("tool_choice", "none or auto", shown(*choice));
  }
  // Read a second time, as members keep their order, which takes a search for each.
  if (most_values(text) > kMostValuesWithTools) {
    return reader.refuse(
        "tools", fmt::format("at most {} JSON values beside them", kMostValuesWithTools), "more");
  }
  const auto ordered = nlohmann::ordered_json::parse(text);
  for (const auto& tool : ordered["tools"]) {
    out.tools.push_back(tool.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

}  // namespace kakeya::server
