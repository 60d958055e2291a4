#include "server/openai_read.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "server/conversation_read.h"

namespace kakeya::server {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

void read_stop(JsonReader& reader, const Json& body, std::vector<std::string>& out) {
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
void read_logit_bias(JsonReader& reader, const Json& body, SamplingWish& out) {
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

void read_sampling(JsonReader& reader, const Json& body, SamplingWish& out) {
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

void read_output(JsonReader& reader, const Json& body, ServeRequest& out) {
  reader.read(body, "max_tokens", 1, kMostTokens, out.max_tokens);
  reader.read(body, "max_completion_tokens", 1, kMostTokens, out.max_tokens);
  read_stop(reader, body, out.stop_strings);
  reader.read(body, "ignore_eos", out.ignore_eos);
  std::optional<int> choices;
  reader.read(body, "n", 1, kMostChoices, choices);
  out.choices = choices.value_or(1);
  reader.read(body, "stream", out.stream);
  reader.read(body, "return_token_ids", out.return_token_ids);
  reader.read(body, "return_runs", out.return_runs);
  const Json* options = reader.find(body, "stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return reader.refuse("stream_options", "an object", shown(*options));
  reader.read(*options, "include_usage", out.include_usage);
}

// Fields without which the answer would not be the one that was asked for.
void refuse_unserved(JsonReader& reader, const Json& body) {
  const Json* functions = reader.find(body, "functions");
  if (functions != nullptr && !functions->empty()) {
    reader.refuse("functions", "tools, as newer clients send", shown(*functions));
  }
  const Json* format = reader.find(body, "response_format");
  if (format == nullptr) return;
  const Json* type = format->is_object() ? reader.find(*format, "type") : nullptr;
  if (type == nullptr || *type != "text") {
    reader.refuse("response_format", "{\"type\": \"text\"}", shown(type ? *type : *format));
  }
}

// A text or token ids; an array of one of these is the same.
void read_prompt(JsonReader& reader, const Json& body, RawPrompt& out) {
  const Json* prompt = reader.find(body, "prompt");
  const bool wrapped = prompt != nullptr && prompt->is_array() && prompt->size() == 1 &&
                       !prompt->front().is_number();
  if (wrapped) prompt = &prompt->front();
  if (prompt != nullptr && prompt->is_string()) {
    out.text = prompt->get<std::string>();
    return;
  }
  if (prompt == nullptr || !prompt->is_array() || prompt->empty()) {
    return reader.refuse("prompt", "a text or an array of token ids",
                         prompt == nullptr ? "nothing" : shown(*prompt));
  }
  read_token_ids(reader, *prompt, "prompt", out.ids);
}

// The number of likeliest tokens, which says that log-probabilities are wanted.
void read_logprob_count(JsonReader& reader, const Json& body, ServeRequest& out) {
  std::optional<int> count;
  reader.read(body, "logprobs", 0, kMostTopLogprobs, count);
  out.logprobs = count.has_value();
  out.top_logprobs = count.value_or(0);
}

void refuse_unserved_of_completions(JsonReader& reader, const Json& body) {
  bool echo = false;
  reader.read(body, "echo", echo);
  if (echo) reader.refuse("echo", "false", "true");
  const Json* suffix = reader.find(body, "suffix");
  if (suffix != nullptr && *suffix != "") reader.refuse("suffix", "none", shown(*suffix));
  std::optional<int> best_of;
  reader.read(body, "best_of", 1, 1, best_of);
}

}  // namespace

void read_model(JsonReader& reader, const Json& body, std::string& out) {
  const Json* model = reader.find(body, "model");
  if (model == nullptr || !model->is_string()) {
    return reader.refuse("model", "the name of a model, as /v1/models lists it",
                         model == nullptr ? "nothing" : shown(*model));
  }
  out = model->get<std::string>();
}

void read_token_ids(JsonReader& reader,
                    const Json& array,
                    const std::string& name,
                    std::vector<TokenId>& out) {
  constexpr std::int64_t kMost = std::numeric_limits<TokenId>::max();
  for (const Json& value : array) {
    const bool fits = value.is_number_unsigned() &&
                      value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMost);
    if (!fits) return reader.refuse(name, "token ids", shown(value));
    out.push_back(value.get<TokenId>());
  }
}

Outcome<ServeRequest> read_chat_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed) return tl::unexpected(std::move(parsed).error());
  JsonReader reader;
  ServeRequest request;
  read_model(reader, *parsed, request.model);
  read_messages(reader, *parsed, request.messages);
  read_tools(reader, *parsed, body, request.chat);
  read_template_arguments(reader, *parsed, request.chat);
  read_sampling(reader, *parsed, request.sampling);
  read_output(reader, *parsed, request);
  reader.read(*parsed, "logprobs", request.logprobs);
  std::optional<int> top_logprobs;
  reader.read(*parsed, "top_logprobs", 0, kMostTopLogprobs, top_logprobs);
  request.top_logprobs = top_logprobs.value_or(0);
  if (request.top_logprobs > 0 && !request.logprobs) {
    reader.refuse("top_logprobs", "\"logprobs\": true beside it", "none");
  }
  refuse_unserved(reader, *parsed);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return request;
}

Outcome<ServeRequest> read_completion_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed) return tl::unexpected(std::move(parsed).error());
  JsonReader reader;
  ServeRequest request;
  request.max_tokens = kDefaultCompletionTokens;
  read_model(reader, *parsed, request.model);
  read_prompt(reader, *parsed, request.prompt.emplace());
  read_sampling(reader, *parsed, request.sampling);
  read_output(reader, *parsed, request);
  read_logprob_count(reader, *parsed, request);
  refuse_unserved_of_completions(reader, *parsed);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return request;
}

}  // namespace kakeya::server
