#include "wire/anthropic/messages_read.h"

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "wire/http/json_reader.h"

namespace kakeya::anthropic {
namespace {

using wire::Json;
using wire::JsonReader;
using wire::shown;

constexpr std::size_t kMostMessages = 4096;

// A block {"type": "text", "text": ...} or, of an assistant, {"type": "thinking", "thinking": ...}.
void read_block(JsonReader& reader, const Json& block, const std::string& where, ChatMessage& out) {
  const Json* type = block.is_object() ? reader.find(block, "type") : nullptr;
  const bool is_thought = type != nullptr && *type == "thinking" && out.role == "assistant";
  // A thought that only its author can read.
  if (type != nullptr && *type == "redacted_thinking" && out.role == "assistant") return;
  const char* const name = is_thought ? "thinking" : "text";
  const bool known = is_thought || (type != nullptr && *type == "text");
  const Json* text = known ? reader.find(block, name) : nullptr;
  if (text == nullptr || !text->is_string()) {
    return reader.refuse(where, "blocks {\"type\": \"text\", \"text\": ...}",
                         type == nullptr ? shown(block) : "type " + shown(*type));
  }
  (is_thought ? out.reasoning : out.content) += text->get_ref<const std::string&>();
}

// A text, or blocks that are put together.
void read_content(JsonReader& reader,
                  const Json* content,
                  const std::string& where,
                  ChatMessage& out) {
  if (content != nullptr && content->is_string()) {
    out.content = content->get<std::string>();
  } else if (content != nullptr && content->is_array()) {
    for (std::size_t i = 0; i < content->size(); ++i) {
      read_block(reader, (*content)[i], fmt::format("{}[{}]", where, i), out);
    }
  } else {
    reader.refuse(where, "a text or blocks", content == nullptr ? "nothing" : shown(*content));
  }
}

void read_conversation(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  if (const Json* system = reader.find(body, "system")) {
    ChatMessage& message = out.messages.emplace_back();
    message.role = "system";
    read_content(reader, system, "system", message);
  }
  const Json* messages = reader.find(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty() ||
      messages->size() > kMostMessages) {
    return reader.refuse("messages", fmt::format("an array of 1 to {} messages", kMostMessages),
                         messages == nullptr ? "nothing" : shown(*messages));
  }
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const Json& message = (*messages)[i];
    const std::string where = fmt::format("messages[{}]", i);
    const Json* role = message.is_object() ? reader.find(message, "role") : nullptr;
    if (role == nullptr || (*role != "user" && *role != "assistant")) {
      return reader.refuse(where + ".role", "user or assistant",
                           role == nullptr ? "nothing" : shown(*role));
    }
    ChatMessage& added = out.messages.emplace_back();
    added.role = role->get<std::string>();
    read_content(reader, reader.find(message, "content"), where + ".content", added);
  }
  // The model goes on with what was put into its mouth.
  if (out.messages.back().role == "assistant") {
    out.chat.add_generation_prompt = false;
    out.chat.continue_final_message = true;
  }
}

// {"type": "adaptive"} or {"type": "disabled"}: no budget of tokens can be kept.
void read_thinking(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  const Json* thinking = reader.find(body, "thinking");
  if (thinking == nullptr) return;
  const Json* type = thinking->is_object() ? reader.find(*thinking, "type") : nullptr;
  if (type == nullptr || (*type != "adaptive" && *type != "disabled")) {
    return reader.refuse("thinking.type",
                         "adaptive or disabled, for a budget of thoughts is not enforced",
                         type == nullptr ? "nothing" : shown(*type));
  }
  out.chat.enable_thinking = *type == "adaptive";
}

void read_stop_sequences(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  const Json* sequences = reader.find(body, "stop_sequences");
  if (sequences == nullptr) return;
  if (!sequences->is_array()) {
    return reader.refuse("stop_sequences", "an array of texts", shown(*sequences));
  }
  for (const Json& sequence : *sequences) {
    if (!sequence.is_string()) return reader.refuse("stop_sequences", "texts", shown(sequence));
    out.stop_strings.push_back(sequence.get<std::string>());
  }
}

// Fields that would make another answer, and that this server cannot give.
void refuse_unserved(JsonReader& reader, const Json& body) {
  for (const char* const name : {"tools", "tool_choice", "mcp_servers", "container",
                                 "context_management", "output_config", "output_format"}) {
    const Json* value = reader.find(body, name);
    const bool says_nothing = value == nullptr || (value->is_array() && value->empty()) ||
                              (value->is_object() && value->value("type", "") == "none");
    if (!says_nothing) reader.refuse(name, "nothing, for it is not served", shown(*value));
  }
}

void read_prompt(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  const Json* model = reader.find(body, "model");
  if (model != nullptr && !model->is_string()) {
    reader.refuse("model", "the name of a model", shown(*model));
  } else if (model != nullptr) {
    out.model = model->get<std::string>();
  }
  read_conversation(reader, body, out);
  read_thinking(reader, body, out);
  refuse_unserved(reader, body);
}

void read_answer(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  reader.read(body, "max_tokens", 1, std::int64_t{1} << 40, out.max_tokens);
  if (!out.max_tokens) reader.refuse("max_tokens", "the most tokens of the answer", "nothing");
  reader.read(body, "temperature", 0.0F, 2.0F, out.sampling.temperature);
  reader.read(body, "top_p", 0.0F, 1.0F, out.sampling.top_p);
  reader.read(body, "top_k", 0, std::numeric_limits<int>::max(), out.sampling.top_k);
  reader.read(body, "stream", out.stream);
  read_stop_sequences(reader, body, out);
}

service::Outcome<service::AnswerRequest> read_request(std::string_view body, bool is_answered) {
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader reader;
  service::AnswerRequest request;
  read_prompt(reader, *parsed, request);
  if (is_answered) read_answer(reader, *parsed, request);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return request;
}

}  // namespace

service::Outcome<service::AnswerRequest> read_messages_request(std::string_view body) {
  return read_request(body, true);
}

service::Outcome<service::AnswerRequest> read_count_request(std::string_view body) {
  return read_request(body, false);
}

}  // namespace kakeya::anthropic
