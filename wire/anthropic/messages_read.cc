#include "wire/anthropic/messages_read.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include "wire/anthropic/context_edits.h"
#include "wire/anthropic/conversation_read.h"
#include "wire/anthropic/tools_read.h"
#include "wire/fields/known_fields.h"
#include "wire/http/json_parts.h"
#include "wire/http/json_reader.h"

namespace kakeya::anthropic {
namespace {

using wire::Json;
using wire::JsonReader;
using wire::shown;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

// {"type": "enabled", "budget_tokens"}, {"type": "adaptive"} or {"type": "disabled"}
void read_thinking(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  const Json* thinking = reader.find(body, "thinking");
  if (thinking == nullptr) return;
  const Json* type = thinking->is_object() ? reader.find(*thinking, "type") : nullptr;
  if (type == nullptr || (*type != "enabled" && *type != "adaptive" && *type != "disabled")) {
    return reader.refuse("thinking.type", "enabled, adaptive or disabled",
                         type == nullptr ? "nothing" : shown(*type));
  }
  // An adaptive one is as the publisher has it, for models that think.
  out.chat.enable_thinking = *type != "disabled";
  if (*type != "enabled") return;
  const Json* budget = reader.find(*thinking, "budget_tokens");
  const auto tokens = budget != nullptr ? wire::whole_number(*budget) : std::nullopt;
  if (!tokens || *tokens < 1 || *tokens > kMostTokens) {
    return reader.refuse("thinking.budget_tokens", "the most tokens to think, 1 or more",
                         budget == nullptr ? "nothing" : shown(*budget));
  }
  out.thought_budget = tokens;
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
                .schema = {.strict = false},
                .field = where};
}

// How much is to be thought and said, which templates that know it are told.
void read_effort(JsonReader& reader, const Json& effort, service::AnswerRequest& out) {
  constexpr const char* kEfforts[] = {"low", "medium", "high", "xhigh", "max"};
  if (std::ranges::find(kEfforts, effort) == std::end(kEfforts)) {
    return reader.refuse("output_config.effort", "low, medium, high, xhigh or max", shown(effort));
  }
  out.chat.arguments = Json({{"reasoning_effort", effort}}).dump();
}

// "output_config": {"format", "effort"}, or "output_format", as the first was called before.
void read_output_config(JsonReader& reader,
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
    if (name == "effort") {
      read_effort(reader, value, out);
    } else if (name == "format") {
      const std::string_view own = wire::member_text(text, "output_config");
      read_format(reader, value, wire::member_text(own, "format"), "output_config.format", out);
    } else {
      return reader.refuse("output_config." + name, "format and effort alone", shown(value));
    }
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
  for (const char* const name : {"think", "enable_thinking"}) {  // of other APIs
    reader.read(body, name, out.chat.enable_thinking);
  }
  read_thinking(reader, body, out);
  read_output_config(reader, body, text, out);
  if (!reader.failed()) read_context_edits(reader, body, out);
}

void read_answer(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  reader.read(body, "max_tokens", 1, kMostTokens, out.max_tokens);
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
  wire::refuse_unserved(reader, *parsed,
                        is_answered ? wire::RequestKind::kMessage : wire::RequestKind::kCount);
  service::AnswerRequest request;
  read_prompt(reader, *parsed, body, request);
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
