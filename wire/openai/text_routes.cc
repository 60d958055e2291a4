#include "wire/openai/text_routes.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "service/answer_request.h"
#include "wire/http/json_reader.h"
#include "wire/openai/completion_read.h"
#include "wire/openai/completion_write.h"
#include "wire/openai/conversation_read.h"
#include "wire/openai/unserved_fields.h"

namespace kakeya::server {
namespace {

using nlohmann::ordered_json;

tl::unexpected<Refusal> problem_of(JsonReader& reader) {
  return tl::unexpected(reader.problem());
}

// A conversation as the model's template writes it.
Outcome<ChatPrompt> read_conversation(const Engine& engine,
                                      const Json& body,
                                      std::string_view text) {
  JsonReader reader;
  std::vector<ChatMessage> messages;
  ChatOptions options;
  read_conversation(reader, body, text, messages, options);
  if (reader.failed()) return problem_of(reader);
  return apply_template(engine, messages, options);
}

// Bounded by what a server can spare for a text, not by the context.
Outcome<std::vector<TokenId>> encoded(
    const std::function<Result<std::vector<TokenId>>(const EncodeOptions&)>& encode,
    const std::string& parameter) {
  auto ids = encode({.most_tokens = static_cast<std::size_t>(kMostTokenized)});
  if (ids) return std::move(ids).value();
  if (ids.error().code() != StatusCode::kResourceExhausted) {
    return tl::unexpected(refusal_of(ids.error()));
  }
  return tl::unexpected(Refusal{
      .message = fmt::format("{}: expected at most {} tokens, got more", parameter, kMostTokenized),
      .parameter = parameter});
}

// Ids of {"content"}, {"prompt"} or {"messages"}.
Outcome<std::vector<TokenId>> ids_of(const Engine& engine,
                                     const Tokenizer& tokenizer,
                                     const Json& body,
                                     std::string_view text) {
  if (body.contains("messages")) {
    const auto chat = read_conversation(engine, body, text);
    if (!chat) return tl::unexpected(chat.error());
    return encoded(
        [&](EncodeOptions options) {
          options.plain = chat->plain;
          return tokenizer.encode(chat->text, options);
        },
        "messages");
  }
  JsonReader reader;
  const char* const name = body.contains("prompt") ? "prompt" : "content";
  const Json* content = reader.find(body, name);
  if (content == nullptr || !content->is_string()) {
    reader.refuse(name, "a text", content == nullptr ? "nothing" : shown(*content));
  }
  bool add_special = true;
  reader.read(body, "add_special", add_special);         // llama.cpp's name
  reader.read(body, "add_special_tokens", add_special);  // vLLM's
  if (reader.failed()) return problem_of(reader);
  const auto& given = content->get_ref<const std::string&>();
  return encoded(
      [&](const EncodeOptions& options) {
        return add_special ? engine.encode_text(given, options) : tokenizer.encode(given, options);
      },
      name);
}

struct EmbeddingRequest {
  std::string model;
  std::vector<RawPrompt> inputs;
  EmbeddingOptions options;
  bool base64 = false;
  int priority = 0;
  std::optional<std::int64_t> dimensions = {};
};

void read_input(JsonReader& reader, const Json& value, std::vector<RawPrompt>& out) {
  RawPrompt& input = out.emplace_back();
  if (value.is_string()) {
    input.text = value.get<std::string>();
  } else if (value.is_array() && !value.empty()) {
    read_token_ids(reader, value, "input", input.ids);
  } else {
    reader.refuse("input", "texts or arrays of token ids", shown(value));
  }
}

void read_inputs(JsonReader& reader, const Json& body, std::vector<RawPrompt>& out) {
  const Json* input = reader.find(body, "input");
  if (input == nullptr) return reader.refuse("input", "a text, or texts", "nothing");
  const bool several = input->is_array() && !input->empty() && !input->front().is_number();
  if (!several) return read_input(reader, *input, out);
  if (input->size() > kMostEmbeddings) {
    return reader.refuse("input", fmt::format("at most {} texts", kMostEmbeddings),
                         std::to_string(input->size()));
  }
  for (const Json& value : *input) read_input(reader, value, out);
}

// One of two words; the first one is the default. Returns whether it is the second.
bool read_choice(
    JsonReader& reader, const Json& body, const char* name, const char* first, const char* second) {
  const Json* value = reader.find(body, name);
  if (value == nullptr || *value == first) return false;
  if (*value != second) {
    reader.refuse(name, fmt::format("{} or {}", first, second), shown(*value));
  }
  return true;
}

Outcome<EmbeddingRequest> read_embedding_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed) return tl::unexpected(std::move(parsed).error());
  JsonReader reader;
  EmbeddingRequest request;
  read_model(reader, *parsed, request.model);
  read_inputs(reader, *parsed, request.inputs);
  request.base64 = read_choice(reader, *parsed, "encoding_format", "float", "base64");
  if (read_choice(reader, *parsed, "pooling", "last", "mean")) {
    request.options.pooling = Pooling::kMean;
  }
  reader.read(*parsed, "normalize", request.options.normalize);
  reader.read(*parsed, "dimensions", 1, std::int64_t{1} << 30, request.dimensions);
  std::optional<int> priority;
  constexpr std::int64_t kMostPriority = std::numeric_limits<int>::max();
  reader.read(*parsed, "priority", -kMostPriority, kMostPriority, priority);
  request.priority = priority.value_or(0);
  refuse_unserved_of_embeddings(reader, *parsed);
  if (reader.failed()) return problem_of(reader);
  return request;
}

ordered_json vector_json(const std::vector<float>& vector, bool base64) {
  if (!base64) return vector;
  const auto bytes = vector.size() * sizeof(float);
  std::string text((bytes + 2) / 3 * 4 + 1, '\0');  // with the end that OpenSSL writes
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(vector.data()),
                                   static_cast<int>(bytes));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

}  // namespace

Outcome<std::string> tokenize(const Engine& engine, std::string_view body) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(refusal_of(tokenizer.error()));
  const auto parsed = parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  const auto ids = ids_of(engine, **tokenizer, *parsed, body);
  if (!ids) return tl::unexpected(ids.error());
  JsonReader reader;
  bool with_pieces = false;
  reader.read(*parsed, "with_pieces", with_pieces);
  if (reader.failed()) return problem_of(reader);
  std::string tokens;  // there may be many
  for (const TokenId id : *ids) {
    if (!tokens.empty()) tokens += ',';
    if (with_pieces) {
      tokens += json_text({{"id", id}, {"piece", (*tokenizer)->decode({&id, 1}, false)}});
    } else {
      tokens += std::to_string(id);
    }
  }
  return fmt::format(R"({{"tokens":[{}],"count":{},"max_model_len":{}}})", tokens, ids->size(),
                     context_of(engine));
}

Outcome<std::string> detokenize(const Engine& engine, std::string_view body) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(refusal_of(tokenizer.error()));
  const auto parsed = parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader reader;
  const Json* tokens = reader.find(*parsed, "tokens");
  std::vector<TokenId> ids;
  if (tokens == nullptr || !tokens->is_array()) {
    reader.refuse("tokens", "an array of token ids", tokens ? shown(*tokens) : "nothing");
  } else {
    read_token_ids(reader, *tokens, "tokens", ids);
  }
  if (reader.failed()) return problem_of(reader);
  const std::string text = (*tokenizer)->decode(ids, false);
  return json_text({{"content", text}, {"prompt", text}});
}

Outcome<std::string> apply_template_route(const Engine& engine, std::string_view body) {
  const auto parsed = parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  const auto chat = read_conversation(engine, *parsed, body);
  if (!chat) return tl::unexpected(chat.error());
  return json_text({{"prompt", chat->text}});
}

Outcome<EmbeddingWish> read_embeddings(const Engine& engine,
                                       std::string_view model_name,
                                       std::string_view body) {
  const auto request = read_embedding_request(body);
  if (!request) return tl::unexpected(request.error());
  if (auto known = check_model(model_name, request->model); !known) {
    return tl::unexpected(std::move(known).error());
  }
  if (request->dimensions && *request->dimensions != engine.hidden_size()) {
    return tl::unexpected(
        Refusal{.message = fmt::format("dimensions: expected {}, as this model's vectors have, for "
                                       "it was not trained to be cut, got {}",
                                       engine.hidden_size(), *request->dimensions),
                .parameter = "dimensions"});
  }
  // All are looked at before the first one is run.
  EmbeddingWish wish = {.texts = {},
                        .options = request->options,
                        .base64 = request->base64,
                        .priority = request->priority};
  for (const RawPrompt& input : request->inputs) {
    auto ids = input.ids.empty()
                   ? encode_text(engine, input.text, true, engine.max_context(), "input")
                   : Outcome<std::vector<TokenId>>(input.ids);
    if (!ids) return tl::unexpected(std::move(ids).error());
    wish.tokens += std::ssize(*ids);
    wish.texts.push_back(std::move(*ids));
  }
  if (wish.tokens > kMostEmbeddingTokens) {
    return tl::unexpected(
        Refusal{.message = fmt::format("input: expected at most {} tokens, got {}",
                                       kMostEmbeddingTokens, wish.tokens),
                .parameter = "input",
                .code = "context_length_exceeded"});
  }
  return wish;
}

std::string embeddings_json(const EmbeddingWish& wish,
                            std::string_view model_name,
                            const std::vector<std::vector<float>>& vectors) {
  ordered_json data = ordered_json::array();
  for (const std::vector<float>& vector : vectors) {
    data.push_back({{"object", "embedding"},
                    {"index", data.size()},
                    {"embedding", vector_json(vector, wish.base64)}});
  }
  return json_text({{"object", "list"},
                    {"data", std::move(data)},
                    {"model", model_name},
                    {"usage", {{"prompt_tokens", wish.tokens}, {"total_tokens", wish.tokens}}}});
}

std::string props_json(const Engine& engine, const ServeOptions& options) {
  const SamplingOptions sampling = engine.recommended_sampling();
  return json_text({{"model", options.model_name},
                    {"backend", engine.backend_name()},
                    {"threads", engine.num_threads()},
                    {"context", context_of(engine)},
                    {"max_context", engine.max_context()},
                    {"vocab_size", engine.vocab_size()},
                    {"hidden_size", engine.hidden_size()},
                    {"parallel", options.scheduler.max_sequences},
                    {"memory_bytes", engine.footprint().total_reserved()},
                    {"prompt_cache_bytes", engine.prompt_cache_statistics().limit_bytes},
                    {"default_sampling",
                     {{"temperature", sampling.temperature},
                      {"top_k", sampling.top_k},
                      {"top_p", sampling.top_p},
                      {"min_p", sampling.min_p}}}});
}

Outcome<std::string> tokenizer_json(const Engine& engine) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(refusal_of(tokenizer.error()));
  const auto text_of = [&](TokenId id) {
    const auto text = (*tokenizer)->token_text(id);
    return text ? ordered_json(std::string(*text)) : ordered_json();
  };
  const auto stops = engine.stop_ids();
  return json_text({{"tokenizer_class", "kakeya"},
                    {"bos_token", text_of(engine.bos_id())},
                    {"eos_token", stops.empty() ? ordered_json() : text_of(stops.front())},
                    {"vocab_size", engine.vocab_size()},
                    {"model_max_length", context_of(engine)}});
}

Outcome<void> check_model(std::string_view served, std::string_view asked) {
  if (asked.empty() || asked == served) return {};
  constexpr std::size_t kMost = 60;
  return tl::unexpected(
      Refusal{.status = StatusCode::kNotFound,
              .message = fmt::format("model: expected {}, got '{}{}'", served,
                                     asked.substr(0, kMost), asked.size() > kMost ? "..." : ""),
              .parameter = "model",
              .code = "model_not_found"});
}

}  // namespace kakeya::server
