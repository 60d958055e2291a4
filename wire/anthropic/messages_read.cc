#include "wire/anthropic/messages_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "wire/anthropic/tools_read.h"
#include "wire/http/json_parts.h"
#include "wire/http/json_reader.h"
#include "wire/http/request_limits.h"
#include "wire/http/unserved_field.h"

namespace kakeya::anthropic {
namespace {

using wire::Json;
using wire::JsonReader;
using wire::shown;

constexpr std::size_t kMostToolCalls = 256;  // of a message

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

// {"type": "tool_use", "id", "name", "input"} of an assistant. `text` is the block's own.
void read_call(JsonReader& reader,
               const Json& block,
               std::string_view text,
               const std::string& where,
               ChatMessage& out) {
  const Json* id = reader.find(block, "id");
  const Json* name = reader.find(block, "name");
  const Json* input = reader.find(block, "input");
  const auto is_text = [](const Json* value) { return value != nullptr && value->is_string(); };
  if (!is_text(id) || !is_text(name) || input == nullptr || !input->is_object()) {
    return reader.refuse(where, R"({"type": "tool_use", "id", "name", "input": {...}})",
                         shown(block));
  }
  if (out.tool_calls.size() >= kMostToolCalls) {
    return reader.refuse(where, fmt::format("at most {} calls", kMostToolCalls), "more");
  }
  // Members keep their order, which shows in the prompt.
  out.tool_calls.push_back({.name = name->get<std::string>(),
                            .arguments = std::string(wire::member_text(text, "input")),
                            .id = id->get<std::string>()});
}

// {"type": "tool_result", "tool_use_id", "content", "is_error"} of a user: a message of its own.
void read_result(JsonReader& reader,
                 const Json& block,
                 const std::vector<ToolCall>& calls,
                 const std::string& where,
                 std::vector<ChatMessage>& out) {
  const Json* id = reader.find(block, "tool_use_id");
  const auto call = std::ranges::find_if(
      calls, [id](const ToolCall& one) { return id != nullptr && *id == one.id; });
  if (call == calls.end()) {
    return reader.refuse(where + ".tool_use_id", "the id of a tool_use of the message before",
                         id == nullptr ? "nothing" : shown(*id));
  }
  ChatMessage& added = out.emplace_back();
  added.role = "tool";
  added.tool_call_id = call->id;
  added.name = call->name;
  const Json* content = reader.find(block, "content");
  if (content != nullptr) read_content(reader, content, where + ".content", added);
  bool is_error = false;
  reader.read(block, "is_error", is_error);
}

bool is_of_type(const Json& block, const char* type) {
  return block.is_object() && block.contains("type") && block["type"] == type;
}

// An assistant's blocks, `text` being theirs.
void read_assistant(JsonReader& reader,
                    const Json& content,
                    std::string_view text,
                    const std::string& where,
                    ChatMessage& out) {
  if (!content.is_array()) return read_content(reader, &content, where, out);
  const std::vector<std::string_view> texts = wire::parts_of(text);
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string block = fmt::format("{}[{}]", where, i);
    if (is_of_type(content[i], "tool_use")) {
      read_call(reader, content[i], texts[i], block, out);
    } else {
      read_block(reader, content[i], block, out);
    }
  }
}

// A user's blocks: results of the calls before, each a message, then what the user says.
void read_user(JsonReader& reader,
               const Json& content,
               const std::vector<ToolCall>& calls,
               const std::string& where,
               std::vector<ChatMessage>& out) {
  ChatMessage said = {.role = "user", .content = ""};
  bool has_said = false;
  for (std::size_t i = 0; content.is_array() && i < content.size(); ++i) {
    const std::string block = fmt::format("{}[{}]", where, i);
    if (!is_of_type(content[i], "tool_result")) {
      has_said = true;
      read_block(reader, content[i], block, said);
    } else if (has_said) {
      return reader.refuse(block, "tool_result blocks in front of others", "one behind");
    } else {
      read_result(reader, content[i], calls, block, out);
    }
  }
  const bool is_result = content.is_array() && !content.empty() && !has_said;
  if (!content.is_array()) read_content(reader, &content, where, said);
  if (!is_result) out.push_back(std::move(said));
}

// Messages, whose own text is `text`.
void read_messages(JsonReader& reader,
                   const Json& messages,
                   std::string_view text,
                   service::AnswerRequest& out) {
  const std::vector<std::string_view> texts = wire::parts_of(text);
  std::vector<ToolCall> calls;  // of the message before
  for (std::size_t i = 0; i < messages.size() && !reader.failed(); ++i) {
    const Json& message = messages[i];
    const std::string where = fmt::format("messages[{}]", i);
    const Json* role = message.is_object() ? reader.find(message, "role") : nullptr;
    if (role == nullptr || (*role != "user" && *role != "assistant")) {
      return reader.refuse(where + ".role", "user or assistant",
                           role == nullptr ? "nothing" : shown(*role));
    }
    const Json* content = reader.find(message, "content");
    if (content == nullptr) {
      return reader.refuse(where + ".content", "a text or blocks", "nothing");
    }
    if (*role == "user") {
      read_user(reader, *content, calls, where + ".content", out.messages);
      calls.clear();
      continue;
    }
    ChatMessage& added = out.messages.emplace_back();
    added.role = "assistant";
    read_assistant(reader, *content, wire::member_text(texts[i], "content"), where + ".content",
                   added);
    calls = added.tool_calls;
  }
}

void read_conversation(JsonReader& reader,
                       const Json& body,
                       std::string_view text,
                       service::AnswerRequest& out) {
  if (const Json* system = reader.find(body, "system")) {
    ChatMessage& message = out.messages.emplace_back();
    message.role = "system";
    read_content(reader, system, "system", message);
  }
  const Json* messages = reader.find(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty() ||
      messages->size() > wire::kMostMessages) {
    return reader.refuse("messages",
                         fmt::format("an array of 1 to {} messages", wire::kMostMessages),
                         messages == nullptr ? "nothing" : shown(*messages));
  }
  read_messages(reader, *messages, wire::member_text(text, "messages"), out);
  if (reader.failed() || out.messages.back().role != "assistant") return;
  // The model goes on with what was put into its mouth.
  if (!out.messages.back().tool_calls.empty()) {
    return reader.refuse("messages", "a tool_result for each tool_use", "none behind the last one");
  }
  out.chat.add_generation_prompt = false;
  out.chat.continue_final_message = true;
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

// Fields by which clients of other APIs ask for another answer, and how this one asks for it. Left
// unread they would change nothing, and nobody would know.
constexpr const char* kForm = "output_config.format";
constexpr wire::UnservedField kOfOtherApis[] = {
    {"stop", std::nullopt, "stop_sequences"},
    {"max_completion_tokens", std::nullopt, "max_tokens"},
    {"response_format", std::nullopt, kForm},
    {"structured_outputs", std::nullopt, kForm},
    {"json_schema", std::nullopt, kForm},
    {"guided_json", std::nullopt, kForm},
    {"guided_json_object", std::nullopt, kForm},
    {"guided_regex"},
    {"guided_choice"},
    {"guided_grammar"},
    {"grammar"},
    {"regex"},
    {"ebnf"},
    {"seed"},
    {"n", 1.0},
    {"min_p", 0.0},
    {"min_tokens", 0.0},
    {"repetition_penalty", 1.0},
    {"repeat_penalty", 1.0},
    {"presence_penalty", 0.0},
    {"frequency_penalty", 0.0},
    {"logit_bias"},
    {"allowed_token_ids"},
    {"stop_token_ids"},
    {"ignore_eos"},
    {"logprobs"},
    {"top_logprobs", 0.0},
    {"chat_template_kwargs", std::nullopt, "thinking"},
    {"enable_thinking", std::nullopt, "thinking"},
    {"reasoning_effort", std::nullopt, "thinking"},
    {"functions", std::nullopt, "tools"},
    {"cache_salt", std::nullopt, "nothing: /v1/chat/completions has it"},
};

// Fields that would make another answer, and that this server cannot give.
void refuse_servers_fields(JsonReader& reader, const Json& body) {
  for (const char* const name : {"mcp_servers", "container", "context_management"}) {
    const Json* value = reader.find(body, name);
    const bool says_nothing = value == nullptr || (value->is_array() && value->empty()) ||
                              (value->is_object() && value->value("type", Json()) == "none");
    if (!says_nothing) reader.refuse(name, "nothing, for it is not served", shown(*value));
  }
}

// {"type": "json_schema", "schema": {...}}, whose own text is `text`.
void read_format(JsonReader& reader,
                 const Json& format,
                 std::string_view text,
                 const std::string& where,
                 service::AnswerRequest& out) {
  const Json* schema = format.is_object() ? reader.find(format, "schema") : nullptr;
  if (schema == nullptr || !schema->is_object() || format.value("type", Json()) != "json_schema") {
    return reader.refuse(where, R"({"type": "json_schema", "schema": {...}})", shown(format));
  }
  out.format = {.kind = service::AnswerFormat::Kind::kJsonSchema,
                .text = std::string(wire::member_text(text, "schema")),
                .field = where};
}

// "output_config": {"format": ...}, or "output_format", as it was called before.
void read_formats(JsonReader& reader,
                  const Json& body,
                  std::string_view text,
                  service::AnswerRequest& out) {
  if (const Json* format = reader.find(body, "output_format")) {
    read_format(reader, *format, wire::member_text(text, "output_format"), "output_format", out);
  }
  const Json* config = reader.find(body, "output_config");
  if (config == nullptr) return;
  if (!config->is_object()) return reader.refuse("output_config", "an object", shown(*config));
  for (const auto& [name, value] : config->items()) {
    if (value.is_null()) continue;
    if (name != "format") return reader.refuse("output_config", "format alone", name);
    const std::string_view own = wire::member_text(text, "output_config");
    read_format(reader, value, wire::member_text(own, "format"), "output_config.format", out);
  }
}

void read_prompt(JsonReader& reader,
                 const Json& body,
                 std::string_view text,
                 service::AnswerRequest& out) {
  const Json* model = reader.find(body, "model");
  if (model != nullptr && !model->is_string()) {
    reader.refuse("model", "the name of a model", shown(*model));
  } else if (model != nullptr) {
    out.model = model->get<std::string>();
  }
  read_conversation(reader, body, text, out);
  read_tools(reader, body, text, out);
  read_thinking(reader, body, out);
  refuse_servers_fields(reader, body);
}

void read_answer(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  reader.read(body, "max_tokens", 1, std::int64_t{1} << 40, out.max_tokens);
  if (!out.max_tokens) reader.refuse("max_tokens", "the most tokens of the answer", "nothing");
  reader.read(body, "temperature", 0.0F, 2.0F, out.sampling.temperature);
  reader.read(body, "top_p", 0.0F, 1.0F, out.sampling.top_p);
  reader.read(body, "top_k", 0, std::numeric_limits<int>::max(), out.sampling.top_k);
  reader.read(body, "stream", out.stream);
  read_stop_sequences(reader, body, out);
  wire::refuse_unserved(reader, body, kOfOtherApis);
}

service::Outcome<service::AnswerRequest> read_request(std::string_view body, bool is_answered) {
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader reader;
  service::AnswerRequest request;
  read_prompt(reader, *parsed, body, request);
  if (is_answered) {
    read_answer(reader, *parsed, request);
    read_formats(reader, *parsed, body, request);
  }
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
