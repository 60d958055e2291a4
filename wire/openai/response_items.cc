#include "wire/openai/response_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "wire/http/history.h"
#include "wire/openai/conversation_read.h"
#include "wire/openai/tool_names.h"

namespace kakeya::openai {
namespace {

using wire::Json;
using wire::shown;

// A text, or parts of these types, whose texts are put together. `takes_others`: parts that
// something stands for are taken, too.
void read_parts(wire::JsonReader& reader,
                const Json* content,
                const std::string& where,
                std::initializer_list<std::string_view> types,
                bool takes_others,
                std::string& out) {
  if (content == nullptr) return reader.refuse(where, "a text or parts of texts", "nothing");
  if (content->is_string()) {
    out += content->get_ref<const std::string&>();
    return;
  }
  if (!content->is_array())
    return reader.refuse(where, "a text or parts of texts", shown(*content));
  for (std::size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    const Json* given = part.is_object() ? reader.find(part, "type") : nullptr;
    const std::string type =
        given != nullptr && given->is_string() ? given->get<std::string>() : std::string();
    const bool known = std::ranges::find(types, type) != types.end();
    const Json* text = known ? reader.find(part, type == "refusal" ? "refusal" : "text") : nullptr;
    if (text != nullptr && text->is_string()) {
      out += text->get_ref<const std::string&>();
      continue;
    }
    const auto words = takes_others ? wire::stand_in(type) : std::nullopt;
    if (!words) {
      return reader.refuse(fmt::format("{}[{}]", where, i),
                           fmt::format("parts {{\"type\": \"{}\", \"text\": ...}}", *types.begin()),
                           given == nullptr ? shown(part) : "type " + shown(*given));
    }
    wire::append_stand_in(out, *words);
  }
}

}  // namespace

void ItemReader::read_input(const Json& body) {
  const Json* input = reader_.find(body, "input");
  if (input != nullptr && input->is_string()) {
    out_.push_back({.role = "user", .content = input->get<std::string>()});
    return;
  }
  if (input == nullptr || !input->is_array() || input->empty() || input->size() > kMostItems) {
    const bool is_array = input != nullptr && input->is_array();
    return reader_.refuse("input", fmt::format("a text or an array of 1 to {} items", kMostItems),
                          input == nullptr ? "nothing"
                          : is_array       ? std::to_string(input->size())
                                           : shown(*input));
  }
  for (std::size_t i = 0; i < input->size() && !reader_.failed(); ++i) {
    read((*input)[i], fmt::format("input[{}]", i));
  }
  if (out_.empty()) reader_.refuse("input", "something to answer", "nothing");
}

void ItemReader::read(const Json& item, const std::string& where) {
  if (!item.is_object()) return reader_.refuse(where, "an object", shown(item));
  const Json* type = reader_.find(item, "type");
  // Messages need not say that they are.
  if (type == nullptr || *type == "message") return message(item, where);
  if (*type == "reasoning") return reasoning(item, where);
  if (*type == "agent_message") return agent_message(item, where);
  if (*type == "additional_tools") return;  // read with the others
  if (*type == "function_call" || *type == "custom_tool_call") return call(item, where);
  if (*type == "local_shell_call" && item.contains("action")) return shell_call(item, where);
  if (*type == "local_shell_call_output" && item.contains("output")) return result(item, where);
  if (*type == "function_call_output" || *type == "custom_tool_call_output") {
    return result(item, where);
  }
  if (*type == "item_reference") return reference(item, where);
  const auto words =
      type->is_string() ? wire::stand_in(type->get_ref<const std::string&>()) : std::nullopt;
  if (!words) {
    return reader_.refuse(
        where + ".type",
        "message, reasoning, function_call, function_call_output or item_reference", shown(*type));
  }
  if (!words->empty()) wire::append_stand_in(assistant().content, *words);
}

void ItemReader::message(const Json& item, const std::string& where) {
  const Json* role = reader_.find(item, "role");
  const bool known = role != nullptr && (*role == "user" || *role == "assistant" ||
                                         *role == "system" || *role == "developer");
  if (!known) {
    return reader_.refuse(where + ".role", "user, assistant, system or developer",
                          role == nullptr ? "nothing" : shown(*role));
  }
  std::string content;
  const Json* given = reader_.find(item, "content");
  if (*role == "assistant") {
    read_parts(reader_, given, where + ".content", {"output_text", "input_text", "text", "refusal"},
               true, content);
    // Two messages in a row are two, but text around calls is of one answer.
    if (goes_on_ && !out_.back().content.empty() && out_.back().tool_calls.empty()) {
      goes_on_ = false;
    }
    assistant().content += content;
    return;
  }
  read_parts(reader_, given, where + ".content", {"input_text", "output_text", "text"}, false,
             content);
  goes_on_ = false;
  // A developer's message is what newer clients call the system's.
  out_.push_back({.role = *role == "user" ? "user" : "system", .content = std::move(content)});
}

// Words of one agent for another: an assistant's message of its own, which says whose they are.
void ItemReader::agent_message(const Json& item, const std::string& where) {
  std::string content;
  read_parts(reader_, reader_.find(item, "content"), where + ".content",
             {"input_text", "output_text", "text"}, true, content);
  const std::string author = text(item, "author", where);
  const std::string recipient = text(item, "recipient", where);
  goes_on_ = false;
  out_.push_back({.role = "assistant",
                  .content = fmt::format("[{} says to {}]\n{}", author, recipient, content)});
}

void ItemReader::reasoning(const Json& item, const std::string& where) {
  // Thoughts that only their author can read ("encrypted_content") are not told to the template.
  std::string thought;
  const Json* content = reader_.find(item, "content");
  if (content != nullptr)
    read_parts(reader_, content, where + ".content", {"reasoning_text"}, false, thought);
  const Json* summary = reader_.find(item, "summary");
  if (thought.empty() && summary != nullptr) {
    read_parts(reader_, summary, where + ".summary", {"summary_text"}, false, thought);
  }
  if (!thought.empty()) assistant().reasoning += thought;
}

void ItemReader::call(const Json& item, const std::string& where) {
  ToolCall added;
  added.id = text(item, "call_id", where);
  const std::string space =
      reader_.find(item, "namespace") == nullptr ? "" : text(item, "namespace", where);
  added.name = shown_name(space, text(item, "name", where));
  // A custom tool takes a text, which is no JSON.
  added.arguments = item.value("type", Json()) == "custom_tool_call"
                        ? Json({{kCustomArgument, text(item, "input", where)}}).dump()
                        : text(item, "arguments", where);
  add_call(std::move(added), where);
}

void ItemReader::add_call(ToolCall added, const std::string& where) {
  ChatMessage& message = assistant();
  if (message.tool_calls.size() >= kMostToolCalls) {
    return reader_.refuse(where, fmt::format("at most {} calls", kMostToolCalls), "more");
  }
  message.tool_calls.push_back(std::move(added));
}

// A command that a client has run: whoever asked for it, its result follows.
void ItemReader::shell_call(const Json& item, const std::string& where) {
  add_call({.name = "local_shell", .arguments = item["action"].dump(), .id = id_of(item, where)},
           where);
}

void ItemReader::result(const Json& item, const std::string& where) {
  const std::string id = item.value("type", Json()) == "local_shell_call_output"
                             ? id_of(item, where)
                             : text(item, "call_id", where);
  // Templates leave out a result that does not stand behind its call: whatever came between them
  // comes behind it.
  for (std::size_t at = out_.size(); at > 0; --at) {
    const auto& calls = out_[at - 1].tool_calls;
    const auto of = std::ranges::find(calls, id, &ToolCall::id);
    if (of == calls.end()) continue;
    ChatMessage added = {.role = "tool", .content = "", .tool_call_id = id, .name = of->name};
    bool is_answered = false;
    for (; at < out_.size() && out_[at].role == "tool"; ++at) {
      is_answered = is_answered || out_[at].tool_call_id == id;
    }
    if (is_answered) break;
    read_parts(reader_, reader_.find(item, "output"), where + ".output", {"input_text", "text"},
               true, added.content);
    if (at == out_.size()) goes_on_ = false;
    out_.insert(out_.begin() + static_cast<std::ptrdiff_t>(at), std::move(added));
    return;
  }
  reader_.refuse(where + ".call_id", "the call_id of a function_call before it, once",
                 wire::shown(Json(id)));
}

void ItemReader::reference(const Json& item, const std::string& where) {
  // "KIND_RESPONSE_INDEX" is an item of the response "resp_RESPONSE".
  const std::string id = text(item, "id", where);
  const std::size_t begin = id.find('_');
  const std::size_t end = id.rfind('_');
  const bool may_be = begin != std::string::npos && end > begin;
  const auto response = may_be ? find_("resp" + id.substr(begin, end - begin)) : nullptr;
  if (response != nullptr && seen_.insert(id).second) {
    for (const auto& [known, json] : response->items) {
      if (known == id) return read(Json::parse(json), where);
    }
  }
  reader_.refuse(where + ".id", "the id of an item of a stored response, each once",
                 wire::shown(Json(id)));
}

ChatMessage& ItemReader::assistant() {
  if (!std::exchange(goes_on_, true)) out_.push_back({.role = "assistant", .content = ""});
  return out_.back();
}

std::string ItemReader::id_of(const Json& item, const std::string& where) {
  return text(item, reader_.find(item, "call_id") != nullptr ? "call_id" : "id", where);
}

std::string ItemReader::text(const Json& item, const char* name, const std::string& where) {
  const Json* value = reader_.find(item, name);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  reader_.refuse(fmt::format("{}.{}", where, name), "a text",
                 value == nullptr ? "nothing" : shown(*value));
  return "";
}

}  // namespace kakeya::openai
