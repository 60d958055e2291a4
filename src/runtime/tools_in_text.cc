#include "runtime/tools_in_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace kakeya {
namespace {

constexpr std::string_view kToolRole = "tool";

std::string text_of_tools(const std::vector<std::string>& tools) {
  std::string text =
      "You may call functions to help with what the user asks. These are their signatures, one a "
      "line:\n<tools>\n";
  for (const std::string& tool : tools) text += tool + "\n";
  return text +
         "</tools>\nTo call a function, write a JSON object with its name and its arguments "
         "between tags, one for each call:\n<tool_call>\n{\"name\": <name of the function>, "
         "\"arguments\": <object with the arguments>}\n</tool_call>";
}

void append_part(std::string_view part, std::string& text) {
  if (!text.empty() && !part.empty()) text += "\n";
  text += part;
}

// The arguments stay as they were written: a model reads its own words again.
std::string text_of_call(const ToolCall& call) {
  // A name may be no UTF-8.
  const std::string name =
      nlohmann::json(call.name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return "<tool_call>\n{\"name\": " + name +
         ", \"arguments\": " + (call.arguments.empty() ? "{}" : call.arguments) + "}\n</tool_call>";
}

void put_in_front(const std::vector<std::string>& tools,
                  ToolsPlace place,
                  std::vector<ChatMessage>& messages) {
  const std::string text = text_of_tools(tools);
  if (place == ToolsPlace::kSystem) {
    const bool has_system = !messages.empty() && messages.front().role == "system";
    if (!has_system)
      messages.insert(messages.begin(), ChatMessage{.role = "system", .content = {}});
    std::string& content = messages.front().content;
    content += (content.empty() ? "" : "\n\n") + text;
    return;
  }
  const auto user = std::ranges::find(messages, "user", &ChatMessage::role);
  if (user != messages.end()) {
    user->content = text + "\n\n" + user->content;
  } else {
    messages.insert(messages.begin(), ChatMessage{.role = "user", .content = text});
  }
}

}  // namespace

bool has_tools(std::span<const ChatMessage> messages, const std::vector<std::string>& tools) {
  return !tools.empty() || std::ranges::any_of(messages, [](const ChatMessage& message) {
    return message.role == kToolRole || !message.tool_calls.empty();
  });
}

std::vector<ChatMessage> with_tools_in_text(std::span<const ChatMessage> messages,
                                            const std::vector<std::string>& tools,
                                            ToolsPlace place) {
  std::vector<ChatMessage> written;
  bool results = false;  // the last message is one of results
  for (const ChatMessage& message : messages) {
    if (message.role == kToolRole) {
      const std::string result = "<tool_response>\n" + message.content + "\n</tool_response>";
      if (!results) written.push_back({.role = "user", .content = {}});
      append_part(result, written.back().content);
      results = true;
      continue;
    }
    results = false;
    ChatMessage& plain = written.emplace_back(message);
    for (const ToolCall& call : plain.tool_calls) append_part(text_of_call(call), plain.content);
    plain.tool_calls.clear();
  }
  if (!tools.empty()) put_in_front(tools, place, written);
  return written;
}

}  // namespace kakeya
