#include "wire/openai/completion_read.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "wire/fields/known_fields.h"
#include "wire/openai/conversation_read.h"
#include "wire/openai/format_read.h"
#include "wire/openai/sampling_read.h"
#include "wire/openai/tools_read.h"

namespace kakeya::openai {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

void read_stop(wire::JsonReader& reader, const wire::Json& body, std::vector<std::string>& out) {
  const wire::Json* stop = reader.find(body, "stop");
  if (stop == nullptr) return;
  // TextStream checks what a stop string may be.
  const wire::Json texts = stop->is_string() ? wire::Json::array({*stop}) : *stop;
  if (!texts.is_array())
    return reader.refuse("stop", "a text or an array of texts", wire::shown(*stop));
  for (const wire::Json& text : texts) {
    if (!text.is_string()) return reader.refuse("stop", "texts", wire::shown(text));
    // Clients write "" for none.
    if (text != "") out.push_back(text.get<std::string>());
  }
}

void read_id_list(wire::JsonReader& reader,
                  const wire::Json& body,
                  const char* name,
                  std::vector<TokenId>& out) {
  const wire::Json* ids = reader.find(body, name);
  if (ids == nullptr) return;
  if (!ids->is_array() || ids->size() > kMostTokenIds) {
    return reader.refuse(name, fmt::format("an array of at most {} token ids", kMostTokenIds),
                         ids->is_array() ? std::to_string(ids->size()) : wire::shown(*ids));
  }
  read_token_ids(reader, *ids, name, out);
}

// The newer name is the last one, which counts where there are several.
void read_max_tokens(wire::JsonReader& reader,
                     const wire::Json& body,
                     std::int64_t least,
                     std::optional<std::int64_t>& out) {
  for (const char* name : {"max_new_tokens", "n_predict", "max_tokens", "max_completion_tokens"}) {
    const wire::Json* value = reader.find(body, name);
    // In llama.cpp's API, -1 means as many tokens as the context leaves room for.
    if (value != nullptr && wire::whole_number(*value) == -1) {
      out.reset();
    } else {
      reader.read(body, name, least, kMostTokens, out);
    }
  }
}

// "cache_salt", as vLLM has it: a text that is not empty.
void read_cache_salt(wire::JsonReader& reader, const wire::Json& body, std::string& out) {
  const wire::Json* salt = reader.find(body, "cache_salt");
  if (salt == nullptr) return;
  if (!salt->is_string() || salt->get_ref<const std::string&>().empty()) {
    return reader.refuse("cache_salt", "a text that is not empty", wire::shown(*salt));
  }
  out = salt->get<std::string>();
}

}  // namespace

void read_priority(wire::JsonReader& reader, const wire::Json& body, int& out) {
  constexpr std::int64_t kMostPriority = std::numeric_limits<int>::max();
  std::optional<int> priority;
  reader.read(body, "priority", -kMostPriority, kMostPriority, priority);
  out = priority.value_or(0);
}

void read_limits(wire::JsonReader& reader, const wire::Json& body, service::AnswerRequest& out) {
  read_priority(reader, body, out.priority);
  read_cache_salt(reader, body, out.cache_salt);
  std::optional<std::int64_t> least;
  reader.read(body, "min_tokens", 0, kMostTokens, least);
  out.min_tokens = least.value_or(0);
  if (out.max_tokens && out.min_tokens > *out.max_tokens) {
    reader.refuse("min_tokens",
                  fmt::format("at most {}, the most tokens of the answer", *out.max_tokens),
                  std::to_string(out.min_tokens));
  }
  read_id_list(reader, body, "stop_token_ids", out.stop_ids);
  read_id_list(reader, body, "allowed_token_ids", out.allowed_ids);
  if (reader.find(body, "allowed_token_ids") != nullptr && out.allowed_ids.empty()) {
    reader.refuse("allowed_token_ids", "one id or more", "none");
  }
  if (out.thought_budget && !out.allowed_ids.empty()) {
    reader.refuse("allowed_token_ids", "none beside a budget of thoughts", "some");
  }
  reader.read(body, "ignore_eos", out.ignore_eos);
}

namespace {

void read_output(wire::JsonReader& reader, const wire::Json& body, service::AnswerRequest& out) {
  read_stop(reader, body, out.stop_strings);
  std::optional<int> choices;
  reader.read(body, "n", 1, kMostChoices, choices);
  out.choices = choices.value_or(1);
  reader.read(body, "stream", out.stream);
  reader.read(body, "return_token_ids", out.return_token_ids);
  reader.read(body, "return_runs", out.return_runs);
  const wire::Json* options = reader.find(body, "stream_options");
  if (options == nullptr) return;
  if (!options->is_object())
    return reader.refuse("stream_options", "an object", wire::shown(*options));
  reader.read(*options, "include_usage", out.include_usage);
}

// A text, or token ids.
void read_prompt(wire::JsonReader& reader,
                 const wire::Json& prompt,
                 std::vector<service::RawPrompt>& out) {
  service::RawPrompt& read = out.emplace_back();
  if (prompt.is_string()) {
    read.text = prompt.get<std::string>();
  } else if (prompt.is_array() && !prompt.empty()) {
    read_token_ids(reader, prompt, "prompt", read.ids);
  } else {
    reader.refuse("prompt", "texts or arrays of token ids", wire::shown(prompt));
  }
}

// One, or an array of some.
void read_prompts(wire::JsonReader& reader,
                  const wire::Json& body,
                  std::vector<service::RawPrompt>& out) {
  const wire::Json* prompt = reader.find(body, "prompt");
  if (prompt == nullptr) {
    return reader.refuse("prompt", "a text, token ids, or an array of these", "nothing");
  }
  const bool several = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!several) return read_prompt(reader, *prompt, out);
  if (prompt->size() > kMostPrompts) {
    return reader.refuse("prompt", fmt::format("at most {} prompts", kMostPrompts),
                         std::to_string(prompt->size()));
  }
  for (const wire::Json& one : *prompt) read_prompt(reader, one, out);
}

// The text behind the answer, for all prompts; an empty one is none.
void read_suffix(wire::JsonReader& reader, const wire::Json& body, service::AnswerRequest& out) {
  const wire::Json* value = reader.find(body, "suffix");
  if (value == nullptr || *value == "") return;
  if (!value->is_string()) return reader.refuse("suffix", "a text", wire::shown(*value));
  if (out.echo) return reader.refuse("suffix", "none beside echo", "a text");
  for (service::RawPrompt& prompt : out.prompts) {
    if (!prompt.ids.empty()) return reader.refuse("suffix", "prompts that are texts", "token ids");
    prompt.suffix = value->get<std::string>();
  }
}

// The number of likeliest tokens, which says that log-probabilities are wanted; false: they are
// not.
void read_logprob_count(wire::JsonReader& reader,
                        const wire::Json& body,
                        service::AnswerRequest& out) {
  const wire::Json* value = reader.find(body, "logprobs");
  if (value != nullptr && *value == false) return;
  std::optional<int> count;
  reader.read(body, "logprobs", 0, kMostTopLogprobs, count);
  out.logprobs = count.has_value();
  out.top_logprobs = count.value_or(0);
}

}  // namespace

void read_model(wire::JsonReader& reader, const wire::Json& body, std::string& out) {
  const wire::Json* model = reader.find(body, "model");
  if (model == nullptr) return;
  if (!model->is_string()) {
    return reader.refuse("model", "the name of a model, as /v1/models lists it",
                         wire::shown(*model));
  }
  out = model->get<std::string>();
}

void read_token_ids(wire::JsonReader& reader,
                    const wire::Json& array,
                    const std::string& name,
                    std::vector<TokenId>& out) {
  constexpr std::int64_t kMost = std::numeric_limits<TokenId>::max();
  for (const wire::Json& value : array) {
    const auto id = wire::whole_number(value);
    if (!id || *id < 0 || *id > kMost) return reader.refuse(name, "token ids", wire::shown(value));
    out.push_back(static_cast<TokenId>(*id));
  }
}

service::Outcome<service::AnswerRequest> read_chat_request(std::string_view body) {
  auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(std::move(parsed).error());
  wire::JsonReader reader;
  wire::refuse_unserved(reader, *parsed, wire::RequestKind::kChat);
  service::AnswerRequest request;
  read_model(reader, *parsed, request.model);
  read_conversation(reader, *parsed, request);
  read_tools(reader, *parsed, body, request);
  read_sampling(reader, *parsed, request.sampling);
  read_max_tokens(reader, *parsed, 1, request.max_tokens);
  read_limits(reader, *parsed, request);
  read_output(reader, *parsed, request);
  reader.read(*parsed, "logprobs", request.logprobs);
  std::optional<int> top_logprobs;
  reader.read(*parsed, "top_logprobs", 0, kMostTopLogprobs, top_logprobs);
  request.top_logprobs = top_logprobs.value_or(0);
  if (request.top_logprobs > 0 && !request.logprobs) {
    reader.refuse("top_logprobs", "\"logprobs\": true beside it", "none");
  }
  read_format(reader, *parsed, body, request.format);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return request;
}

service::Outcome<service::AnswerRequest> read_completion_request(std::string_view body) {
  auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(std::move(parsed).error());
  wire::JsonReader reader;
  service::AnswerRequest request;
  request.max_tokens = kDefaultCompletionTokens;
  read_prompts(reader, *parsed, request.prompts);
  reader.read(*parsed, "echo", request.echo);
  read_suffix(reader, *parsed, request);
  // A prompt that is repeated is an answer, though nothing follows it.
  read_completion(reader, *parsed, body, request.echo ? 0 : 1, request);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return request;
}

void read_completion(wire::JsonReader& reader,
                     const wire::Json& body,
                     std::string_view text,
                     std::int64_t least_tokens,
                     service::AnswerRequest& out) {
  wire::refuse_unserved(reader, body, wire::RequestKind::kCompletion);
  read_model(reader, body, out.model);
  reader.read(body, "add_special_tokens", out.add_special);
  read_sampling(reader, body, out.sampling);
  read_max_tokens(reader, body, least_tokens, out.max_tokens);
  read_limits(reader, body, out);
  read_output(reader, body, out);
  read_logprob_count(reader, body, out);
  read_format(reader, body, text, out.format);
}

}  // namespace kakeya::openai
