#include "server/openai_read.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace kakeya::server {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

// Brackets and commas outside of strings say how deep and how large a text can be when it is read.
std::string problem_of_size(std::string_view body) {
  std::size_t depth = 0;
  std::size_t values = 1;
  bool in_string = false;
  for (std::size_t at = 0; at < body.size(); ++at) {
    const char byte = body[at];
    if (in_string) {
      if (byte == '\\') ++at;
      if (byte == '"') in_string = false;
      continue;
    }
    if (byte == '"') in_string = true;
    if (byte == ']' || byte == '}') depth -= depth > 0 ? 1 : 0;
    if (byte == '[' || byte == '{') {
      ++values;
      if (++depth > kMostJsonDepth) {
        return fmt::format("expected at most {} levels of JSON, got more", kMostJsonDepth);
      }
    }
    if (byte == ',' && ++values > kMostJsonValues) {
      return fmt::format("expected at most {} JSON values, got more", kMostJsonValues);
    }
  }
  return {};
}

// What was there, in a few words.
std::string shown(const Json& value) {
  if (!value.is_primitive() || value.is_null()) return value.type_name();
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 40) + "...";
  return text;
}

// Reads fields and keeps the first problem; after one it reads nothing more.
class Reader {
 public:
  bool failed() const { return problem_.has_value(); }
  Refusal problem() { return std::move(*problem_); }

  void refuse(std::string parameter, const std::string& expected, const std::string& got) {
    if (problem_) return;
    Refusal refusal;
    refusal.message = fmt::format("{}: expected {}, got {}", parameter, expected, got);
    refusal.parameter = std::move(parameter);
    problem_ = std::move(refusal);
  }

  // The field, unless it is missing or null, which mean the same.
  const Json* find(const Json& object, const char* name) const {
    if (problem_) return nullptr;
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  void read(const Json& body, const char* name, bool& out) {
    const Json* value = find(body, name);
    if (value == nullptr) return;
    if (!value->is_boolean()) return refuse(name, "true or false", shown(*value));
    out = value->get<bool>();
  }

  void read(
      const Json& body, const char* name, float least, float most, std::optional<float>& out) {
    const Json* value = find(body, name);
    if (value == nullptr) return;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= least && number <= most)) {
      return refuse(name, fmt::format("a number from {} to {}", least, most), shown(*value));
    }
    out = static_cast<float>(number);
  }

  template <typename Integer>
  void read(const Json& body,
            const char* name,
            std::int64_t least,
            std::int64_t most,
            std::optional<Integer>& out) {
    const Json* value = find(body, name);
    if (value == nullptr) return;
    // The parser makes numbers beyond 2^63 unsigned, which get() would wrap.
    const bool fits =
        value->is_number_integer() &&
        (!value->is_number_unsigned() || value->get<std::uint64_t>() <= std::uint64_t{1} << 62);
    const std::int64_t number = fits ? value->get<std::int64_t>() : 0;
    if (!fits || number < least || number > most) {
      return refuse(name, fmt::format("a whole number from {} to {}", least, most), shown(*value));
    }
    out = static_cast<Integer>(number);
  }

 private:
  std::optional<Refusal> problem_;
};

// A text, or parts of {"type": "text"} that are put together.
void read_content(Reader& reader, const Json& message, const std::string& where, std::string& out) {
  const Json* content = reader.find(message, "content");
  if (content == nullptr) {
    return reader.refuse(where, "a text or text parts", "nothing");
  }
  if (content->is_string()) {
    out = content->get<std::string>();
    return;
  }
  if (!content->is_array()) return reader.refuse(where, "a text or text parts", shown(*content));
  for (const Json& part : *content) {
    const Json* type = part.is_object() ? reader.find(part, "type") : nullptr;
    const Json* text = part.is_object() ? reader.find(part, "text") : nullptr;
    if (type == nullptr || *type != "text" || text == nullptr || !text->is_string()) {
      return reader.refuse(where, "parts of {\"type\": \"text\", \"text\": ...}",
                           type == nullptr ? shown(part) : "type " + shown(*type));
    }
    out += text->get_ref<const std::string&>();
  }
}

void read_message(Reader& reader, const Json& message, std::size_t index, ChatMessage& out) {
  const std::string where = fmt::format("messages[{}]", index);
  if (!message.is_object()) return reader.refuse(where, "an object", shown(message));
  const Json* role = reader.find(message, "role");
  const bool known = role != nullptr && (*role == "system" || *role == "developer" ||
                                         *role == "user" || *role == "assistant");
  if (!known) {
    return reader.refuse(where + ".role", "system, developer, user or assistant",
                         role == nullptr ? "nothing" : shown(*role));
  }
  // A developer's message is what newer clients call the system's.
  out.role = *role == "developer" ? "system" : role->get<std::string>();
  const Json* calls = reader.find(message, "tool_calls");
  if (calls != nullptr && !calls->empty()) {
    return reader.refuse(where + ".tool_calls", "none, as tools are not served", shown(*calls));
  }
  read_content(reader, message, where + ".content", out.content);
}

void read_messages(Reader& reader, const Json& body, std::vector<ChatMessage>& out) {
  const Json* messages = reader.find(body, "messages");
  const bool sound = messages != nullptr && messages->is_array() && !messages->empty() &&
                     messages->size() <= kMostMessages;
  if (!sound) {
    std::string got = messages == nullptr ? "nothing" : shown(*messages);
    if (messages != nullptr && messages->is_array()) got = fmt::format("{}", messages->size());
    return reader.refuse("messages", fmt::format("an array of 1 to {} messages", kMostMessages),
                         got);
  }
  out.resize(messages->size());
  for (std::size_t index = 0; index < out.size() && !reader.failed(); ++index) {
    read_message(reader, (*messages)[index], index, out[index]);
  }
}

void read_model(Reader& reader, const Json& body, std::string& out) {
  const Json* model = reader.find(body, "model");
  if (model == nullptr || !model->is_string()) {
    return reader.refuse("model", "the name of a model, as /v1/models lists it",
                         model == nullptr ? "nothing" : shown(*model));
  }
  out = model->get<std::string>();
}

void read_stop(Reader& reader, const Json& body, std::vector<std::string>& out) {
  const Json* stop = reader.find(body, "stop");
  if (stop == nullptr) return;
  // What a stop string may be is TextStream's business.
  const Json texts = stop->is_string() ? Json::array({*stop}) : *stop;
  if (!texts.is_array()) return reader.refuse("stop", "a text or an array of texts", shown(*stop));
  for (const Json& text : texts) {
    if (!text.is_string()) return reader.refuse("stop", "texts", shown(text));
    out.push_back(text.get<std::string>());
  }
}

// {"106": -100}
void read_logit_bias(Reader& reader, const Json& body, SamplingWish& out) {
  const Json* biases = reader.find(body, "logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object() || biases->size() > kMostLogitBiases) {
    return reader.refuse("logit_bias",
                         fmt::format("an object of at most {} token ids", kMostLogitBiases),
                         biases->is_object() ? std::to_string(biases->size()) : shown(*biases));
  }
  for (const auto& [key, value] : biases->items()) {
    TokenId id = 0;
    const char* end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, id);
    if (key.empty() || parsed.ec != std::errc() || parsed.ptr != end || id < 0) {
      return reader.refuse("logit_bias", "token ids as keys", shown(key));
    }
    const double bias = value.is_number() ? value.get<double>() : NAN;
    if (!(bias >= -100.0 && bias <= 100.0)) {
      return reader.refuse("logit_bias", "numbers from -100 to 100", shown(value));
    }
    out.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

void read_sampling(Reader& reader, const Json& body, SamplingWish& out) {
  reader.read(body, "temperature", 0.0F, 2.0F, out.temperature);
  reader.read(body, "top_p", 0.0F, 1.0F, out.top_p);
  reader.read(body, "top_k", 0, kMostTokens, out.top_k);
  reader.read(body, "min_p", 0.0F, 1.0F, out.min_p);
  reader.read(body, "presence_penalty", -2.0F, 2.0F, out.presence_penalty);
  reader.read(body, "frequency_penalty", -2.0F, 2.0F, out.frequency_penalty);
  constexpr std::int64_t kMostSeed = std::int64_t{1} << 62;
  reader.read(body, "seed", -kMostSeed, kMostSeed, out.seed);
  read_logit_bias(reader, body, out);
}

void read_output(Reader& reader, const Json& body, ServeRequest& out) {
  reader.read(body, "max_tokens", 1, kMostTokens, out.max_tokens);
  reader.read(body, "max_completion_tokens", 1, kMostTokens, out.max_tokens);
  read_stop(reader, body, out.stop_strings);
  reader.read(body, "logprobs", out.logprobs);
  std::optional<int> top_logprobs;
  reader.read(body, "top_logprobs", 0, kMostTopLogprobs, top_logprobs);
  out.top_logprobs = top_logprobs.value_or(0);
  if (out.top_logprobs > 0 && !out.logprobs) {
    reader.refuse("top_logprobs", "\"logprobs\": true beside it", "none");
  }
  reader.read(body, "stream", out.stream);
  reader.read(body, "return_token_ids", out.return_token_ids);
  const Json* options = reader.find(body, "stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return reader.refuse("stream_options", "an object", shown(*options));
  reader.read(*options, "include_usage", out.include_usage);
}

// Fields without which the answer would not be the one that was asked for.
void refuse_unserved(Reader& reader, const Json& body) {
  std::optional<int> count;
  reader.read(body, "n", 1, 1, count);
  for (const char* name : {"tools", "functions"}) {
    const Json* tools = reader.find(body, name);
    if (tools != nullptr && !tools->empty()) {
      reader.refuse(name, "none, as tools are not served", shown(*tools));
    }
  }
  const Json* format = reader.find(body, "response_format");
  if (format == nullptr) return;
  const Json* type = format->is_object() ? reader.find(*format, "type") : nullptr;
  if (type == nullptr || *type != "text") {
    reader.refuse("response_format", "{\"type\": \"text\"}", shown(type ? *type : *format));
  }
}

}  // namespace

Outcome<ServeRequest> read_chat_request(std::string_view body) {
  const auto refuse = [](std::string message) {
    Refusal refusal;
    refusal.message = "the body: " + std::move(message);
    return tl::unexpected(std::move(refusal));
  };
  if (std::string problem = problem_of_size(body); !problem.empty()) return refuse(problem);
  Json parsed;
  try {
    parsed = Json::parse(body);
  } catch (const Json::parse_error& failure) {
    return refuse(fmt::format("expected JSON, got an error at byte {}", failure.byte));
  } catch (const Json::out_of_range&) {
    return refuse("expected JSON, got a number beyond all bounds");
  }
  if (!parsed.is_object()) return refuse("expected a JSON object, got " + shown(parsed));
  Reader reader;
  ServeRequest request;
  read_model(reader, parsed, request.model);
  read_messages(reader, parsed, request.messages);
  read_sampling(reader, parsed, request.sampling);
  read_output(reader, parsed, request);
  refuse_unserved(reader, parsed);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return request;
}

}  // namespace kakeya::server
