#include "wire/openai/responses_store.h"

#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "service/json_text.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;

// A kept text is a body of a request, an answer and what they are in.
constexpr JsonLimits kLimits = {.depth = 80, .values = 4 << 20};

ordered_json message_json(const ChatMessage& message) {
  ordered_json calls = ordered_json::array();
  for (const ToolCall& call : message.tool_calls) {
    calls.push_back({{"name", call.name}, {"arguments", call.arguments}, {"id", call.id}});
  }
  return {{"role", message.role},           {"content", message.content},
          {"tool_calls", std::move(calls)}, {"tool_call_id", message.tool_call_id},
          {"name", message.name},           {"reasoning", message.reasoning}};
}

ChatMessage message_of(const ordered_json& json) {
  ChatMessage message = {.role = json.at("role"), .content = json.at("content")};
  for (const ordered_json& call : json.at("tool_calls")) {
    message.tool_calls.push_back(
        {.name = call.at("name"), .arguments = call.at("arguments"), .id = call.at("id")});
  }
  message.tool_call_id = json.at("tool_call_id");
  message.name = json.at("name");
  message.reasoning = json.at("reasoning");
  return message;
}

// Throws what nlohmann::json throws for a text that put() did not write.
StoredResponse response_of(const std::string& text) {
  const ordered_json json = read_json(text, kLimits).value_or(ordered_json());
  StoredResponse response = {.json = json.at("response"), .messages = {}};
  for (const ordered_json& message : json.at("messages")) {
    response.messages.push_back(message_of(message));
  }
  // Responses that were kept by earlier versions do not say it: all of their conversation.
  response.first_input = json.value("first_input", std::size_t{0});
  for (const ordered_json& item : json.at("items")) {
    response.items.emplace_back(item.at(0), item.at(1));
  }
  return response;
}

}  // namespace

Status ResponseStore::put(const std::string& id,
                          const std::string& owner,
                          const StoredResponse& response) {
  ordered_json messages = ordered_json::array();
  for (const ChatMessage& message : response.messages) messages.push_back(message_json(message));
  ordered_json items = ordered_json::array();
  for (const auto& [item, json] : response.items) items.push_back({item, json});
  return texts_.put(owner, id,
                    service::json_text({{"response", response.json},
                                        {"messages", std::move(messages)},
                                        {"first_input", response.first_input},
                                        {"items", std::move(items)}}));
}

Result<std::shared_ptr<const StoredResponse>> ResponseStore::find(std::string_view id,
                                                                  const std::string& owner) const {
  const auto text = texts_.find(owner, std::string(id));
  if (!text) {
    if (text.error().code() == StatusCode::kNotFound) return nullptr;
    return Unexpected(text.error());
  }
  try {
    return std::make_shared<const StoredResponse>(response_of(*text));
  } catch (const ordered_json::exception&) {
    return Unexpected(texts_.report_damage(std::string(id)));
  }
}

Status ResponseStore::erase(const std::string& id, const std::string& owner) {
  return texts_.remove(owner, id);
}

}  // namespace kakeya::openai
