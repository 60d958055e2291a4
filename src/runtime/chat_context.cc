#include "runtime/chat_context.h"

#include <cstddef>
#include <utility>

#include "base/bounded_json.h"
#include "base/status.h"

namespace kakeya {
namespace {

using nlohmann::ordered_json;

// Variables of a template, each of which it compares a name with that it looks for.
constexpr std::size_t kMostVariables = 256;

// A copy of the value with every text and name of a member hidden.
ordered_json hide_texts(const ordered_json& json, const HideText& hide) {
  if (json.is_string()) return ordered_json(hide(json.get_ref<const std::string&>()));
  if (json.is_array()) {
    ordered_json list = ordered_json::array();
    for (const ordered_json& item : json) {
      list.push_back(hide_texts(item, hide));
    }
    return list;
  }
  if (!json.is_object()) return json;
  ordered_json object = ordered_json::object();
  for (const auto& [name, item] : json.items()) {
    append_member(object, hide(name), hide_texts(item, hide));
  }
  return object;
}

Result<ordered_json> read_object(std::string_view text, const HideText& hide) {
  KAKEYA_ASSIGN_OR_RETURN(const ordered_json json, read_json(text));
  if (!json.is_object()) {
    return invalid_argument("expected a JSON object, got a JSON {}", json.type_name());
  }
  return hide_texts(json, hide);
}

Result<ordered_json> call_context(const ToolCall& call, const HideText& hide) {
  ordered_json function = {{"name", hide(call.name)}, {"arguments", ordered_json::object()}};
  if (!call.arguments.empty()) {
    KAKEYA_TRY(check_json_size(call.arguments));
    const Result<ordered_json> parsed = read_json(call.arguments);
    if (parsed && parsed->is_object()) {
      function["arguments"] = hide_texts(*parsed, hide);
    } else {
      function["arguments"] = hide(call.arguments);  // cut off, as clients repeat it
    }
  }
  ordered_json context = {{"type", "function"}};
  if (!call.id.empty()) context["id"] = hide(call.id);
  context["function"] = std::move(function);
  return context;
}

// Cuts channels (Gemma 4: <|channel>NAME\nTHOUGHT<channel|>) out of an answer in whose text a
// client has kept them, as Gemma's template does: once hidden, the markers are none to it.
std::string without_channels(std::string_view content, const HideText& hide) {
  constexpr std::string_view kBegin = "<|channel>";
  constexpr std::string_view kEnd = "<channel|>";
  if (hide(kBegin) == kBegin) return std::string(content);  // text in this vocabulary
  std::string said;
  while (true) {
    const std::size_t end = content.find(kEnd);
    const std::string_view part = content.substr(0, end);
    said += part.substr(0, part.find(kBegin));
    if (end == std::string_view::npos) return said;
    content.remove_prefix(end + kEnd.size());
  }
}

Result<ordered_json> message_context(const ChatMessage& message, const HideText& hide) {
  const bool is_answer = message.role == "assistant" || message.role == "model";
  const std::string content = is_answer ? without_channels(message.content, hide) : message.content;
  ordered_json context = {{"role", hide(message.role)}, {"content", hide(content)}};
  const auto add = [&](const char* key, const std::string& text) {
    if (!text.empty()) context[key] = hide(text);
  };
  add("reasoning_content", message.reasoning);
  for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
    auto call = call_context(message.tool_calls[i], hide);
    if (!call) {
      return Unexpected(call.error().with_context(fmt::format("arguments of tool call {}", i)));
    }
    context["tool_calls"].push_back(std::move(call).value());
  }
  add("name", message.name);
  add("tool_call_id", message.tool_call_id);
  return context;
}

}  // namespace

Result<ordered_json> chat_context(std::span<const ChatMessage> messages,
                                  const ChatOptions& options,
                                  const HideText& hide) {
  ordered_json context = ordered_json::object();
  if (!options.arguments.empty()) {
    auto arguments = read_object(options.arguments, hide);
    if (!arguments) return Unexpected(arguments.error().with_context("what the template is told"));
    if (arguments->size() > kMostVariables) {
      return invalid_argument("what the template is told: expected at most {} variables, got {}",
                              kMostVariables, arguments->size());
    }
    context = std::move(arguments).value();
  }
  context["messages"] = ordered_json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto message = message_context(messages[i], hide);
    if (!message) return Unexpected(message.error().with_context(fmt::format("message {}", i)));
    context["messages"].push_back(std::move(message).value());
  }
  context.erase("tools");
  for (std::size_t i = 0; i < options.tools.size(); ++i) {
    auto tool = read_object(options.tools[i], hide);
    if (!tool) {
      return Unexpected(tool.error().with_context(fmt::format("ChatOptions::tools[{}]", i)));
    }
    context["tools"].push_back(std::move(tool).value());
  }
  context["add_generation_prompt"] = options.add_generation_prompt;
  if (options.enable_thinking) context["enable_thinking"] = *options.enable_thinking;
  return context;
}

}  // namespace kakeya
