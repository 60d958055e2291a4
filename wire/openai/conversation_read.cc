#include "wire/openai/conversation_read.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "wire/http/history.h"
#include "wire/http/request_limits.h"
#include "wire/http/tool_results.h"

namespace kakeya::openai {
namespace {

constexpr std::int64_t kMostThoughtTokens = std::int64_t{1} << 40;

// A part {"type": "text", "text": ...}, of an assistant also {"type": "refusal", "refusal": ...},
// or one that something stands for.
void read_part(wire::JsonReader& reader,
               const wire::Json& part,
               const std::string& where,
               ChatMessage& out) {
  const wire::Json* given = part.is_object() ? reader.find(part, "type") : nullptr;
  const std::string type =
      given != nullptr && given->is_string() ? given->get<std::string>() : std::string();
  const bool is_refusal = type == "refusal" && out.role == "assistant";
  const wire::Json* text = type == "text" || is_refusal ? reader.find(part, type.c_str()) : nullptr;
  if (text != nullptr && text->is_string()) {
    out.content += text->get_ref<const std::string&>();
    return;
  }
  const auto words = wire::stand_in(type);
  if (words && (out.role == "assistant" || out.role == "tool")) {
    return wire::append_stand_in(out.content, *words);
  }
  reader.refuse(where, "parts of {\"type\": \"text\", \"text\": ...}",
                given == nullptr ? wire::shown(part) : "type " + wire::shown(*given));
}

// A text, or parts that are put together. Clients repeat answers that had none as they came, with
// null.
void read_content(wire::JsonReader& reader,
                  const wire::Json& message,
                  const std::string& where,
                  ChatMessage& out) {
  const wire::Json* content = reader.find(message, "content");
  if (content == nullptr) {
    if (out.role == "assistant" || out.role == "tool") return;
    return reader.refuse(where, "a text or text parts", "nothing");
  }
  if (content->is_string()) {
    out.content = content->get<std::string>();
    return;
  }
  if (!content->is_array())
    return reader.refuse(where, "a text or text parts", wire::shown(*content));
  for (const wire::Json& part : *content) read_part(reader, part, where, out);
}

void read_text(wire::JsonReader& reader,
               const wire::Json& object,
               const char* name,
               const std::string& where,
               std::string& out) {
  const wire::Json* text = reader.find(object, name);
  if (text == nullptr) return;
  if (!text->is_string()) {
    return reader.refuse(fmt::format("{}.{}", where, name), "a text", wire::shown(*text));
  }
  out = text->get<std::string>();
}

// {"id", "type": "function", "function": {"name", "arguments": TEXT}}
void read_tool_calls(wire::JsonReader& reader,
                     const wire::Json& message,
                     const std::string& where,
                     std::vector<ToolCall>& out) {
  const wire::Json* calls = reader.find(message, "tool_calls");
  if (calls == nullptr) return;
  if (!calls->is_array() || calls->size() > kMostToolCalls) {
    return reader.refuse(where, fmt::format("an array of at most {} calls", kMostToolCalls),
                         wire::shown(*calls));
  }
  for (const wire::Json& call : *calls) {
    const wire::Json* function = call.is_object() ? reader.find(call, "function") : nullptr;
    if (function == nullptr || !function->is_object() || !function->contains("name")) {
      return reader.refuse(where, "calls with \"function\": {\"name\", \"arguments\"}",
                           wire::shown(call));
    }
    ToolCall& added = out.emplace_back();
    read_text(reader, call, "id", where, added.id);
    read_text(reader, *function, "name", where, added.name);
    read_text(reader, *function, "arguments", where, added.arguments);
  }
}

void read_message(wire::JsonReader& reader,
                  const wire::Json& message,
                  std::size_t index,
                  ChatMessage& out) {
  const std::string where = fmt::format("messages[{}]", index);
  if (!message.is_object()) return reader.refuse(where, "an object", wire::shown(message));
  const wire::Json* role = reader.find(message, "role");
  const bool known =
      role != nullptr && (*role == "system" || *role == "developer" || *role == "user" ||
                          *role == "assistant" || *role == "tool");
  if (!known) {
    return reader.refuse(where + ".role", "system, developer, user, assistant or tool",
                         role == nullptr ? "nothing" : wire::shown(*role));
  }
  // A developer's message is what newer clients call the system's.
  out.role = *role == "developer" ? "system" : role->get<std::string>();
  if (out.role == "assistant") {
    read_tool_calls(reader, message, where + ".tool_calls", out.tool_calls);
    read_text(reader, message, "reasoning", where, out.reasoning);  // vLLM's name
    read_text(reader, message, "reasoning_content", where, out.reasoning);
  }
  read_text(reader, message, "tool_call_id", where, out.tool_call_id);
  read_text(reader, message, "name", where, out.name);
  read_content(reader, message, where + ".content", out);
}

void read_messages(wire::JsonReader& reader,
                   const wire::Json& body,
                   std::vector<ChatMessage>& out) {
  const wire::Json* messages = reader.find(body, "messages");
  const bool sound = messages != nullptr && messages->is_array() && !messages->empty() &&
                     messages->size() <= wire::kMostMessages;
  if (!sound) {
    std::string got = messages == nullptr ? "nothing" : wire::shown(*messages);
    if (messages != nullptr && messages->is_array()) got = fmt::format("{}", messages->size());
    return reader.refuse("messages",
                         fmt::format("an array of 1 to {} messages", wire::kMostMessages), got);
  }
  out.resize(messages->size());
  for (std::size_t index = 0; index < out.size() && !reader.failed(); ++index) {
    read_message(reader, (*messages)[index], index, out[index]);
  }
  if (!reader.failed()) wire::match_results(reader, wire::ResultsBy::kId, out);
}

// One of some words, which templates that know `variable` are told. Returns whether there is one.
bool read_word(wire::JsonReader& reader,
               const NamedField& field,
               std::span<const std::string_view> words,
               const char* variable,
               wire::Json& arguments) {
  if (field.value == nullptr) return false;
  const bool known = field.value->is_string() &&
                     std::ranges::find(words, field.value->get<std::string>()) != words.end();
  if (!known) {
    reader.refuse(field.name, fmt::format("{}", fmt::join(words, ", ")), wire::shown(*field.value));
    return false;
  }
  arguments[variable] = *field.value;
  return true;
}

void read_effort(wire::JsonReader& reader,
                 const NamedField& effort,
                 wire::Json& arguments,
                 ChatOptions& out) {
  static constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                                  "high", "xhigh",   "max"};
  if (!read_word(reader, effort, kEfforts, "reasoning_effort", arguments)) return;
  out.enable_thinking = *effort.value != "none";
  if (*effort.value == "none") arguments.erase("reasoning_effort");
}

// {"effort", "max_tokens", "enabled", "exclude"}, as routers of many providers have it.
NamedField read_reasoning(wire::JsonReader& reader,
                          const wire::Json& body,
                          std::optional<std::int64_t>& budget,
                          ChatOptions& out) {
  const wire::Json* reasoning = reader.find(body, "reasoning");
  if (reasoning == nullptr) return {reader.find(body, "reasoning_effort"), "reasoning_effort"};
  if (!reasoning->is_object()) {
    reader.refuse("reasoning", R"({"effort": ..., "max_tokens": ...})", wire::shown(*reasoning));
    return {};
  }
  for (const auto& [name, value] : reasoning->items()) {
    const bool is_known = name == "effort" || name == "max_tokens" || name == "enabled";
    if (is_known || value.is_null() || (name == "exclude" && value == false)) continue;
    if (name == "summary" || name == "generate_summary") continue;  // thoughts come as they are
    reader.refuse("reasoning." + name, "effort, max_tokens and enabled alone", wire::shown(value));
    return {};
  }
  reader.read(*reasoning, "enabled", out.enable_thinking);
  reader.read(*reasoning, "max_tokens", 0, kMostThoughtTokens, budget);
  const wire::Json* effort = reader.find(*reasoning, "effort");
  if (effort != nullptr) return {effort, "reasoning.effort"};
  return {reader.find(body, "reasoning_effort"), "reasoning_effort"};
}

// {"type": "enabled", "adaptive", "auto" or "disabled", "budget_tokens"}, of Anthropic's and
// others.
void read_thinking(wire::JsonReader& reader,
                   const wire::Json& body,
                   std::optional<std::int64_t>& budget,
                   ChatOptions& out) {
  const wire::Json* thinking = reader.find(body, "thinking");
  if (thinking == nullptr) return;
  const wire::Json* type = thinking->is_object() ? reader.find(*thinking, "type") : nullptr;
  if (type != nullptr && *type == "auto") return;
  if (type == nullptr || (*type != "enabled" && *type != "adaptive" && *type != "disabled")) {
    return reader.refuse("thinking.type", "enabled, adaptive, auto or disabled",
                         type == nullptr ? "nothing" : wire::shown(*type));
  }
  out.enable_thinking = *type != "disabled";
  if (*type == "enabled") reader.read(*thinking, "budget_tokens", 0, kMostThoughtTokens, budget);
}

}  // namespace

void read_template_arguments(wire::JsonReader& reader,
                             const wire::Json& body,
                             const NamedField& effort,
                             const NamedField& verbosity,
                             ChatOptions& out) {
  static constexpr std::string_view kVerbosities[] = {"low", "medium", "high"};
  wire::Json arguments = wire::Json::object();
  read_effort(reader, effort, arguments, out);
  read_word(reader, verbosity, kVerbosities, "verbosity", arguments);
  if (verbosity.value != nullptr && *verbosity.value == "medium") arguments.erase("verbosity");
  for (const char* const name : {"think", "enable_thinking"}) {
    reader.read(body, name, out.enable_thinking);
  }
  const wire::Json* given = reader.find(body, "chat_template_kwargs");
  if (given != nullptr && !given->is_object()) {
    return reader.refuse("chat_template_kwargs", "an object", wire::shown(*given));
  }
  if (given != nullptr) {
    for (const char* name : {"messages", "tools", "add_generation_prompt", "continue_final_message",
                             "bos_token", "eos_token"}) {
      if (!given->contains(name)) continue;
      return reader.refuse("chat_template_kwargs", "what the template is not told by other fields",
                           name);
    }
    reader.read(*given, "enable_thinking", out.enable_thinking);
    arguments.update(*given);
    arguments.erase("enable_thinking");
  }
  if (arguments.empty()) return;
  out.arguments = arguments.dump(-1, ' ', false, wire::Json::error_handler_t::replace);
}

void read_thought_budget(wire::JsonReader& reader,
                         const wire::Json& body,
                         std::optional<std::int64_t>& out) {
  for (const char* const name : {"max_thinking_tokens", "thinking_budget", "thinking_budget_tokens",
                                 "thinking_token_budget"}) {
    reader.read(body, name, -1, kMostThoughtTokens, out);
  }
  if (out == -1) out.reset();
}

void read_conversation(wire::JsonReader& reader,
                       const wire::Json& body,
                       service::AnswerRequest& out) {
  ChatOptions& options = out.chat;
  read_messages(reader, body, out.messages);
  read_thinking(reader, body, out.thought_budget, options);
  const NamedField effort = read_reasoning(reader, body, out.thought_budget, options);
  read_template_arguments(reader, body, effort, {reader.find(body, "verbosity"), "verbosity"},
                          options);
  read_thought_budget(reader, body, out.thought_budget);
  reader.read(body, "continue_final_message", options.continue_final_message);
  options.add_generation_prompt = !options.continue_final_message;
  reader.read(body, "add_generation_prompt", options.add_generation_prompt);
  if (options.continue_final_message && options.add_generation_prompt) {
    reader.refuse("continue_final_message", "false beside add_generation_prompt", "true");
  }
}

}  // namespace kakeya::openai
