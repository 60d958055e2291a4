#include "wire/openai/responses_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "base/bounded_json.h"
#include "service/replica_name.h"
#include "wire/fields/known_fields.h"
#include "wire/http/json_parts.h"
#include "wire/http/json_reader.h"
#include "wire/openai/completion_read.h"
#include "wire/openai/conversation_read.h"
#include "wire/openai/format_read.h"
#include "wire/openai/response_items.h"
#include "wire/openai/sampling_read.h"
#include "wire/openai/tools_read.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;
using wire::Json;
using wire::JsonReader;
using wire::shown;

constexpr std::int64_t kMostOutputTokens = std::int64_t{1} << 30;
constexpr std::size_t kMostMetadata = 16;
constexpr std::size_t kMostMetadataKey = 64;     // bytes
constexpr std::size_t kMostMetadataValue = 512;  // characters, of up to 4 bytes

// A member that is a text, empty if it is missing.
std::string optional_text(JsonReader& reader, const Json& body, const char* name) {
  const Json* value = reader.find(body, name);
  if (value == nullptr) return "";
  if (!value->is_string()) {
    reader.refuse(name, "a text", shown(*value));
    return "";
  }
  return value->get<std::string>();
}

const Json* find_object(JsonReader& reader, const Json& body, const char* name) {
  const Json* value = reader.find(body, name);
  if (value == nullptr || value->is_object()) return value;
  reader.refuse(name, "an object", shown(*value));
  return nullptr;
}

// Templates know one message of the system, at the beginning: instructions and the messages of
// developers there are one.
std::vector<ChatMessage> with_instructions(std::string instructions,
                                           std::vector<ChatMessage> messages) {
  const auto end = std::ranges::find_if(
      messages, [](const ChatMessage& message) { return message.role != "system"; });
  if (instructions.empty() && end == messages.begin()) return messages;
  for (auto message = messages.begin(); message != end; ++message) {
    if (!instructions.empty()) instructions += "\n\n";
    instructions += message->content;
  }
  messages.erase(messages.begin(), end);
  messages.insert(messages.begin(), {.role = "system", .content = std::move(instructions)});
  return messages;
}

void read_reasoning(JsonReader& reader, const Json& body, ResponseWish& out) {
  const Json* reasoning = find_object(reader, body, "reasoning");
  const Json* effort = reasoning != nullptr ? reader.find(*reasoning, "effort") : nullptr;
  const Json* text = body.contains("text") && body["text"].is_object() ? &body["text"] : nullptr;
  const NamedField verbosity = {text != nullptr ? reader.find(*text, "verbosity") : nullptr,
                                "text.verbosity"};
  read_template_arguments(reader, body, {effort, "reasoning.effort"}, verbosity, out.answer.chat);
  ordered_json& repeated = out.repeated["reasoning"];
  repeated = {{"effort", nullptr}, {"summary", nullptr}};
  if (reasoning == nullptr || reader.failed()) return;
  for (const auto& [name, value] : reasoning->items()) {
    const bool is_summary = name == "summary" || name == "generate_summary";
    // Thoughts come as they are, which is all that is asked for.
    const bool is_known_summary =
        is_summary && (value == "auto" || value == "concise" || value == "detailed");
    const bool is_default = value.is_null() || is_known_summary ||
                            (name == "context" && value == "auto") ||
                            (name == "mode" && value == "standard");
    if (name == "effort" || is_default) continue;
    return reader.refuse("reasoning." + name, is_summary ? "auto, concise or detailed" : "nothing",
                         shown(value));
  }
  if (effort != nullptr) repeated["effort"] = effort->get<std::string>();
  if (const Json* summary = reader.find(*reasoning, "summary")) {
    repeated["summary"] = summary->get<std::string>();
  }
}

// {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "name", "schema", "strict"},
// whose own text is `text`: a schema keeps the order of its members there.
void read_text_format(JsonReader& reader,
                      const Json& format,
                      std::string_view text,
                      service::AnswerFormat& out) {
  const Json* type = format.is_object() ? reader.find(format, "type") : nullptr;
  if (type != nullptr && *type == "text") return;
  out.field = "text.format";
  if (type != nullptr && *type == "json_object") {
    out.kind = service::AnswerFormat::Kind::kJsonObject;
    return;
  }
  if (type == nullptr || *type != "json_schema") {
    return reader.refuse("text.format.type", "text, json_object or json_schema",
                         shown(type != nullptr ? *type : format));
  }
  const Json* schema = reader.find(format, "schema");
  if (schema == nullptr || !schema->is_object()) {
    return reader.refuse("text.format.schema", "a JSON schema",
                         schema == nullptr ? "nothing" : shown(*schema));
  }
  out.kind = service::AnswerFormat::Kind::kJsonSchema;
  out.text = wire::member_text(text, "schema");
  const Json* const strict = reader.find(format, "strict");
  out.schema.strict = strict != nullptr && *strict == true;
}

// {"format": {...}, "verbosity": ...}
void read_text_options(JsonReader& reader,
                       const Json& body,
                       std::string_view text,
                       ResponseWish& out) {
  out.repeated["text"] = {{"format", {{"type", "text"}}}};
  const Json* options = find_object(reader, body, "text");
  if (options != nullptr && reader.find(*options, "format") != nullptr) {
    const Json& format = (*options)["format"];
    read_text_format(reader, format, wire::member_text(wire::member_text(text, "text"), "format"),
                     out.answer.format);
    out.repeated["text"]["format"] = ordered_json(format);
  }
  const Json* verbosity = options != nullptr ? reader.find(*options, "verbosity") : nullptr;
  if (verbosity != nullptr && *verbosity != "medium") {
    out.repeated["text"]["verbosity"] = ordered_json(*verbosity);
  }
  // Forms of other servers, which the service has as well.
  read_format(reader, body, text, out.answer.format);
}

// Texts by names, which the response repeats.
void read_metadata(JsonReader& reader, const Json& body, ResponseWish& out) {
  ordered_json& repeated = out.repeated["metadata"];
  repeated = ordered_json::object();
  const Json* metadata = find_object(reader, body, "metadata");
  if (metadata == nullptr) return;
  if (metadata->size() > kMostMetadata) {
    return reader.refuse("metadata", fmt::format("at most {} members", kMostMetadata),
                         std::to_string(metadata->size()));
  }
  for (const auto& [name, value] : metadata->items()) {
    const bool sound = name.size() <= kMostMetadataKey && value.is_string() &&
                       value.get_ref<const std::string&>().size() <= 4 * kMostMetadataValue;
    if (!sound) {
      return reader.refuse("metadata",
                           fmt::format("texts of at most {} characters, by names of at most {}",
                                       kMostMetadataValue, kMostMetadataKey),
                           shown(value));
    }
    repeated[name] = value.get<std::string>();
  }
}

// "include": more of the response. Thoughts are in it as they are, which needs no ciphertext.
void read_include(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  const Json* include = reader.find(body, "include");
  if (include == nullptr) return;
  if (!include->is_array()) return reader.refuse("include", "an array", shown(*include));
  for (const Json& value : *include) {
    if (value == "reasoning.encrypted_content") continue;
    if (value != "message.output_text.logprobs") {
      return reader.refuse("include", "reasoning.encrypted_content or message.output_text.logprobs",
                           shown(value));
    }
    out.logprobs = true;
  }
}

// Log-probabilities are those of a message's tokens: beside calls it would be open whose they are.
void read_logprobs(JsonReader& reader, const Json& body, ResponseWish& out) {
  read_include(reader, body, out.answer);
  std::optional<int> top;
  reader.read(body, "top_logprobs", 0, kMostTopLogprobs, top);
  out.answer.top_logprobs = top.value_or(0);
  out.answer.logprobs = out.answer.logprobs || out.answer.top_logprobs > 0;
  out.repeated["top_logprobs"] = out.answer.top_logprobs;
  if (out.answer.logprobs && !out.answer.chat.tools.empty()) {
    reader.refuse("tools", "none beside log-probabilities", "tools");
  }
}

// Repeats the tools and the choice as they came, after they were read.
void repeat_tools(const Json& body, std::string_view text, ResponseWish& out) {
  using service::ToolChoice;
  const auto tools = body.find("tools");
  const bool given = tools != body.end() && tools->is_array() && !tools->empty();
  out.repeated["tools"] =
      given ? read_json(wire::member_text(text, "tools")).value_or(ordered_json::array())
            : ordered_json::array();
  ordered_json& choice = out.repeated["tool_choice"];
  const auto asked = body.find("tool_choice");
  if (asked != body.end() && asked->is_object() &&
      asked->value("type", Json()) == "allowed_tools") {
    choice = ordered_json(*asked);
    out.repeated["parallel_tool_calls"] = out.answer.parallel_tool_calls;
    return;
  }
  switch (out.answer.tool_choice) {
    case ToolChoice::kAuto:
      choice = "auto";
      break;
    case ToolChoice::kNone:
      choice = "none";
      break;
    case ToolChoice::kRequired:
      choice = "required";
      break;
    case ToolChoice::kNamed:
      choice = {{"type", (*asked)["type"]}, {"name", (*asked)["name"]}};
      if (asked->contains("namespace")) choice["namespace"] = (*asked)["namespace"];
      break;
  }
  out.repeated["parallel_tool_calls"] = out.answer.parallel_tool_calls;
}

void read_output_options(JsonReader& reader, const Json& body, ResponseWish& out) {
  reader.read(body, "max_output_tokens", 1, kMostOutputTokens, out.answer.max_tokens);
  reader.read(body, "stream", out.answer.stream);
  reader.read(body, "store", out.store);
  const Json* options = find_object(reader, body, "stream_options");
  bool is_obfuscated = false;
  if (options != nullptr) reader.read(*options, "include_obfuscation", is_obfuscated);
  if (is_obfuscated) reader.refuse("stream_options.include_obfuscation", "false", "true");
  const auto& limit = out.answer.max_tokens;
  out.repeated["max_output_tokens"] = limit ? ordered_json(*limit) : ordered_json();
  for (const char* const name : {"temperature", "top_p"}) {
    const Json* number = reader.find(body, name);
    out.repeated[name] = number != nullptr ? ordered_json(number->get<double>()) : ordered_json();
  }
  out.repeated["store"] = out.store;
  out.repeated["truncation"] = "disabled";
  out.repeated["service_tier"] = "default";
  out.repeated["background"] = false;
}

}  // namespace

service::Refusal no_such_response(std::string_view id, std::string parameter, std::string code) {
  return {.status = StatusCode::kNotFound,
          .message = fmt::format("{}: expected the id of a response that is stored, got {}{}",
                                 parameter, shown(Json(id)), service::made_by(id)),
          .parameter = std::move(parameter),
          .code = std::move(code)};
}

service::Outcome<ResponseWish> read_response_request(std::string_view body,
                                                     const FindResponse& find) {
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader reader;
  wire::refuse_unserved(reader, *parsed, wire::RequestKind::kResponse);
  ResponseWish wish;
  read_model(reader, *parsed, wish.answer.model);
  std::string instructions = optional_text(reader, *parsed, "instructions");
  wish.repeated["instructions"] =
      instructions.empty() ? ordered_json() : ordered_json(instructions);
  const std::string previous = optional_text(reader, *parsed, "previous_response_id");
  wish.repeated["previous_response_id"] =
      previous.empty() ? ordered_json() : ordered_json(previous);
  if (!previous.empty()) {
    const auto before = find(previous);
    if (before == nullptr) {
      return tl::unexpected(
          no_such_response(previous, "previous_response_id", "previous_response_not_found"));
    }
    wish.conversation = before->messages;
    wish.first_input = wish.conversation.size();
  }
  ItemReader(reader, find, wish.conversation).read_input(*parsed);
  wish.tools = read_flat_tools(reader, *parsed, body, wish.answer);
  read_sampling(reader, *parsed, wish.answer.sampling);
  read_reasoning(reader, *parsed, wish);
  read_thought_budget(reader, *parsed, wish.answer.thought_budget);
  read_text_options(reader, *parsed, body, wish);
  read_metadata(reader, *parsed, wish);
  read_logprobs(reader, *parsed, wish);
  read_output_options(reader, *parsed, wish);
  read_limits(reader, *parsed, wish.answer);
  if (reader.failed()) return tl::unexpected(reader.problem());
  repeat_tools(*parsed, body, wish);
  wish.answer.messages = with_instructions(std::move(instructions), wish.conversation);
  if (!wish.store) wish.conversation.clear();
  return wish;
}

}  // namespace kakeya::openai
