#include "wire/ollama/requests_read.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_size.h"
#include "wire/fields/known_fields.h"
#include "wire/http/history.h"
#include "wire/http/json_parts.h"
#include "wire/http/json_reader.h"
#include "wire/http/request_limits.h"
#include "wire/http/tool_results.h"

namespace kakeya::ollama {
namespace {

using service::AnswerFormat;
using wire::Json;
using wire::JsonReader;
using wire::shown;

constexpr std::size_t kMostCalls = 256;  // of a message
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

std::string text_of(JsonReader& reader, const Json& object, const char* name) {
  const Json* value = reader.find(object, name);
  if (value == nullptr) return "";
  if (!value->is_string()) {
    reader.refuse(name, "a text", shown(*value));
    return "";
  }
  return value->get<std::string>();
}

// "NAME:latest" is NAME.
std::string without_tag(std::string name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

// [{"function": {"name", "arguments": {...}}}, ...], whose own text is `text`.
void read_calls(JsonReader& reader,
                const Json& message,
                std::string_view text,
                const std::string& where,
                ChatMessage& out) {
  const Json* calls = reader.find(message, "tool_calls");
  if (calls == nullptr) return;
  if (!calls->is_array() || calls->size() > kMostCalls) {
    return reader.refuse(where, fmt::format("an array of at most {} calls", kMostCalls),
                         shown(*calls));
  }
  const auto texts = wire::parts_of(wire::member_text(text, "tool_calls"));
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const Json& call = (*calls)[i];
    const Json* function = call.is_object() ? reader.find(call, "function") : nullptr;
    const Json* name =
        function != nullptr && function->is_object() ? reader.find(*function, "name") : nullptr;
    const Json* arguments = name != nullptr ? reader.find(*function, "arguments") : nullptr;
    const bool sound =
        name != nullptr && name->is_string() && (arguments == nullptr || arguments->is_object());
    if (!sound) {
      return reader.refuse(where, R"({"function": {"name": ..., "arguments": {...}}})",
                           shown(call));
    }
    ToolCall& added = out.tool_calls.emplace_back();
    added.name = name->get<std::string>();
    added.id = text_of(reader, call, "id");
    // Members keep their order, which shows in the prompt.
    const std::string_view own = wire::member_text(texts[i], "function");
    if (arguments != nullptr) added.arguments = wire::member_text(own, "arguments");
  }
}

void read_message(JsonReader& reader,
                  const Json& message,
                  std::string_view text,
                  const std::string& where,
                  ChatMessage& out) {
  if (!message.is_object()) return reader.refuse(where, "an object", shown(message));
  const Json* role = reader.find(message, "role");
  const bool known = role != nullptr && (*role == "system" || *role == "user" ||
                                         *role == "assistant" || *role == "tool");
  if (!known) {
    return reader.refuse(where + ".role", "system, user, assistant or tool",
                         role == nullptr ? "nothing" : shown(*role));
  }
  out.role = role->get<std::string>();
  out.content = text_of(reader, message, "content");
  const Json* images = reader.find(message, "images");
  if (images != nullptr && !images->empty()) {
    const bool is_said = out.role == "system" || out.role == "user";
    if (is_said) return reader.refuse("images", "texts alone", shown(*images));
    wire::append_stand_in(out.content, *wire::stand_in("image"));
  }
  if (out.role == "assistant") {
    out.reasoning = text_of(reader, message, "thinking");
    read_calls(reader, message, text, where + ".tool_calls", out);
  }
  if (out.role == "tool") {
    out.name = text_of(reader, message, "tool_name");
    if (out.name.empty()) out.name = text_of(reader, message, "name");
    out.tool_call_id = text_of(reader, message, "tool_call_id");
  }
}

void read_messages(JsonReader& reader,
                   const Json& body,
                   std::string_view text,
                   service::AnswerRequest& out) {
  const Json* messages = reader.find(body, "messages");
  const bool sound =
      messages != nullptr && messages->is_array() && messages->size() <= wire::kMostMessages;
  if (!sound) {
    return reader.refuse("messages",
                         fmt::format("an array of at most {} messages", wire::kMostMessages),
                         messages == nullptr ? "nothing" : shown(*messages));
  }
  const auto texts = wire::parts_of(wire::member_text(text, "messages"));
  for (std::size_t i = 0; i < messages->size() && !reader.failed(); ++i) {
    read_message(reader, (*messages)[i], texts[i], fmt::format("messages[{}]", i),
                 out.messages.emplace_back());
  }
  if (!reader.failed()) wire::match_results(reader, wire::ResultsBy::kName, out.messages);
}

void read_tools(JsonReader& reader,
                const Json& body,
                std::string_view text,
                service::AnswerRequest& out) {
  const Json* tools = reader.find(body, "tools");
  if (tools == nullptr) return;
  if (!tools->is_array() || tools->size() > wire::kMostTools) {
    return reader.refuse("tools", fmt::format("an array of at most {} tools", wire::kMostTools),
                         shown(*tools));
  }
  const auto texts = wire::parts_of(wire::member_text(text, "tools"));
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const Json* function = tool.is_object() ? reader.find(tool, "function") : nullptr;
    const bool sound = function != nullptr && function->is_object() && function->contains("name") &&
                       (*function)["name"].is_string() &&
                       json_size(texts[i]).values <= wire::kMostValuesOfATool;
    if (!sound) {
      return reader.refuse(fmt::format("tools[{}]", i),
                           R"({"type": "function", "function": {"name": ...}})", shown(tool));
    }
    out.chat.tools.emplace_back(texts[i]);
  }
}

// "json", or a schema, whose own text is `text`.
void read_format(JsonReader& reader,
                 const Json& body,
                 std::string_view text,
                 service::AnswerRequest& out) {
  const Json* format = reader.find(body, "format");
  if (format == nullptr || *format == "") return;
  out.format.field = "format";
  if (*format == "json") {
    out.format.kind = AnswerFormat::Kind::kJsonObject;
  } else if (format->is_object()) {
    out.format.kind = AnswerFormat::Kind::kJsonSchema;
    out.format.text = wire::member_text(text, "format");
    out.format.schema.strict = false;
  } else {
    reader.refuse("format", "json or a JSON schema", shown(*format));
  }
}

// true, false, or how much.
void read_think(JsonReader& reader, const Json& body, service::AnswerRequest& out) {
  const Json* think = reader.find(body, "think");
  if (think == nullptr) return;
  const bool is_much = *think == "low" || *think == "medium" || *think == "high";
  if (!think->is_boolean() && !is_much) {
    return reader.refuse("think", "true, false, low, medium or high", shown(*think));
  }
  out.chat.enable_thinking = is_much || think->get<bool>();
  // Templates that know it are told.
  if (is_much) out.chat.arguments = Json({{"reasoning_effort", *think}}).dump();
}

void read_stops(JsonReader& reader, const Json& options, service::AnswerRequest& out) {
  const Json* stop = reader.find(options, "stop");
  if (stop == nullptr) return;
  const Json texts = stop->is_string() ? Json::array({*stop}) : *stop;
  if (!texts.is_array()) return reader.refuse("stop", "texts", shown(*stop));
  for (const Json& text : texts) {
    if (!text.is_string()) return reader.refuse("stop", "texts", shown(text));
    if (text != "") out.stop_strings.push_back(text.get<std::string>());
  }
}

void read_options(JsonReader& reader,
                  const Json& body,
                  std::int64_t context,
                  service::AnswerRequest& out) {
  const Json* options = reader.find(body, "options");
  if (options == nullptr) return;
  if (!options->is_object()) return reader.refuse("options", "an object", shown(*options));
  wire::refuse_unserved(reader, *options, wire::RequestKind::kOllamaOptions);
  service::SamplingWish& sampling = out.sampling;
  reader.read(*options, "temperature", 0.0F, 2.0F, sampling.temperature);
  reader.read(*options, "top_k", 0, std::numeric_limits<int>::max(), sampling.top_k);
  reader.read(*options, "top_p", 0.0F, 1.0F, sampling.top_p);
  reader.read(*options, "min_p", 0.0F, 1.0F, sampling.min_p);
  reader.read(*options, "repeat_penalty", 0.01F, 100.0F, sampling.repetition_penalty);
  reader.read(*options, "presence_penalty", -2.0F, 2.0F, sampling.presence_penalty);
  reader.read(*options, "frequency_penalty", -2.0F, 2.0F, sampling.frequency_penalty);
  reader.read(*options, "seed", std::numeric_limits<std::int64_t>::min(),
              std::numeric_limits<std::int64_t>::max(), sampling.seed);
  // -1 and -2: what the context leaves.
  std::optional<std::int64_t> most;
  reader.read(*options, "num_predict", -2, kMostTokens, most);
  if (most == 0) reader.refuse("num_predict", "1 or more, or -1", "0");
  if (most && *most > 0) out.max_tokens = most;
  std::optional<std::int64_t> wanted;
  reader.read(*options, "num_ctx", 1, kMostTokens, wanted);
  if (wanted && *wanted > context) {
    reader.refuse("num_ctx", fmt::format("at most {}, as the server was started", context),
                  std::to_string(*wanted));
  }
  read_stops(reader, *options, out);
}

// Options of a request behind which nothing is said: those of sampling change nothing.
void read_runner_options(JsonReader& reader, const Json& body, std::int64_t context) {
  service::AnswerRequest ignored;
  read_options(reader, body, context, ignored);
}

// A text to be embedded, or several.
void read_inputs(JsonReader& reader, const Json* input, service::EmbeddingRequest& out) {
  if (input != nullptr && input->is_string()) {
    out.inputs.push_back({.text = input->get<std::string>()});
    return;
  }
  const bool sound = input != nullptr && input->is_array() && !input->empty() &&
                     input->size() <= service::kMostEmbeddings;
  if (!sound) {
    return reader.refuse("input", fmt::format("a text, or 1 to {} texts", service::kMostEmbeddings),
                         input == nullptr ? "nothing" : shown(*input));
  }
  for (const Json& text : *input) {
    if (!text.is_string()) return reader.refuse("input", "texts", shown(text));
    out.inputs.push_back({.text = text.get<std::string>()});
  }
}

// Reads what both kinds of requests have.
void read_common(JsonReader& reader,
                 const Json& body,
                 std::string_view text,
                 std::int64_t context,
                 service::AnswerRequest& out) {
  out.model = without_tag(text_of(reader, body, "model"));
  out.stream = true;
  reader.read(body, "stream", out.stream);
  read_format(reader, body, text, out);
  reader.read(body, "enable_thinking", out.chat.enable_thinking);  // of other APIs
  read_think(reader, body, out);
  read_options(reader, body, context, out);
}

}  // namespace

service::Outcome<service::AnswerRequest> read_chat(std::string_view body, std::int64_t context) {
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader reader;
  wire::refuse_unserved(reader, *parsed, wire::RequestKind::kOllamaChat);
  service::AnswerRequest request;
  read_common(reader, *parsed, body, context, request);
  read_messages(reader, *parsed, body, request);
  read_tools(reader, *parsed, body, request);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return request;
}

service::Outcome<service::AnswerRequest> read_generate(std::string_view body,
                                                       std::int64_t context) {
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader reader;
  wire::refuse_unserved(reader, *parsed, wire::RequestKind::kOllamaGenerate);
  service::AnswerRequest request;
  read_common(reader, *parsed, body, context, request);
  const std::string prompt = text_of(reader, *parsed, "prompt");
  const std::string system = text_of(reader, *parsed, "system");
  bool is_raw = false;
  reader.read(*parsed, "raw", is_raw);
  const std::string suffix = text_of(reader, *parsed, "suffix");
  if (is_raw && !system.empty()) reader.refuse("system", "nothing beside raw", "a text");
  if (!suffix.empty() && !system.empty()) {
    reader.refuse("system", "nothing beside suffix", "a text");
  }
  if (reader.failed()) return tl::unexpected(reader.problem());
  if (!suffix.empty()) {
    request.prompts.push_back({.text = prompt, .suffix = suffix});
    return request;
  }
  if (prompt.empty()) return request;
  if (is_raw) {
    request.prompts.push_back({.text = prompt});
    return request;
  }
  if (!system.empty()) request.messages.push_back({.role = "system", .content = system});
  request.messages.push_back({.role = "user", .content = prompt});
  return request;
}

service::Outcome<service::EmbeddingRequest> read_embed(std::string_view body,
                                                       std::int64_t context,
                                                       std::int64_t hidden_size) {
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader reader;
  wire::refuse_unserved(reader, *parsed, wire::RequestKind::kOllamaEmbed);
  service::EmbeddingRequest request = {.model = without_tag(text_of(reader, *parsed, "model")),
                                       .inputs = {}};
  read_inputs(reader, reader.find(*parsed, "input"), request);
  reader.expect_dimensions(*parsed, hidden_size);
  read_runner_options(reader, *parsed, context);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return request;
}

service::Outcome<service::EmbeddingRequest> read_embeddings(std::string_view body,
                                                            std::int64_t context) {
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader reader;
  wire::refuse_unserved(reader, *parsed, wire::RequestKind::kOllamaEmbeddings);
  service::EmbeddingRequest request = {.model = without_tag(text_of(reader, *parsed, "model")),
                                       .inputs = {}};
  request.inputs.push_back({.text = text_of(reader, *parsed, "prompt")});
  if (request.inputs.front().text.empty()) reader.refuse("prompt", "a text", "nothing");
  read_runner_options(reader, *parsed, context);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return request;
}

service::Outcome<std::string> read_model_name(std::string_view body) {
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader reader;
  std::string name = text_of(reader, *parsed, "model");
  if (name.empty()) name = text_of(reader, *parsed, "name");
  if (name.empty()) reader.refuse("model", "the name of a model", "nothing");
  if (reader.failed()) return tl::unexpected(reader.problem());
  return without_tag(std::move(name));
}

}  // namespace kakeya::ollama
