#include "server/text_routes.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <utility>
#include <vector>

#include "server/conversation_read.h"
#include "server/json_reader.h"
#include "server/openai_read.h"
#include "server/openai_write.h"
#include "server/serve_request.h"

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
  read_messages(reader, body, messages);
  read_tools(reader, body, text, options);
  read_template_arguments(reader, body, options);
  reader.read(body, "add_generation_prompt", options.add_generation_prompt);
  if (reader.failed()) return problem_of(reader);
  return apply_template(engine, messages, options);
}

// Ids of {"content"}, {"prompt"} or {"messages"}.
Outcome<std::vector<TokenId>> ids_of(const Engine& engine,
                                     const Tokenizer& tokenizer,
                                     const Json& body,
                                     std::string_view text) {
  if (body.contains("messages")) {
    const auto chat = read_conversation(engine, body, text);
    if (!chat) return tl::unexpected(chat.error());
    auto ids = tokenizer.encode(chat->text, {.plain = chat->plain});
    if (!ids) return tl::unexpected(refusal_of(ids.error()));
    return std::move(ids).value();
  }
  JsonReader reader;
  const char* const name = body.contains("prompt") ? "prompt" : "content";
  const Json* content = reader.find(body, name);
  if (content == nullptr || !content->is_string()) {
    reader.refuse(name, "a text", content == nullptr ? "nothing" : shown(*content));
  }
  bool add_special = true;
  reader.read(body, "add_special", add_special);
  if (reader.failed()) return problem_of(reader);
  const auto& whole = content->get_ref<const std::string&>();
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // bodies are smaller
  if (add_special) return encode_text(engine, whole, kMost, name);
  auto ids = tokenizer.encode(whole);
  if (!ids) return tl::unexpected(refusal_of(ids.error()));
  return std::move(ids).value();
}

struct EmbeddingRequest {
  std::string model;
  std::vector<RawPrompt> inputs;
  EmbeddingOptions options;
  bool base64 = false;
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
  return json_text(
      {{"tokens", *ids}, {"count", ids->size()}, {"max_model_len", context_of(engine)}});
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
  return json_text({{"content", (*tokenizer)->decode(ids, false)}});
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
  // All are looked at before the first one is run.
  EmbeddingWish wish = {.texts = {}, .options = request->options, .base64 = request->base64};
  for (const RawPrompt& input : request->inputs) {
    auto ids = input.ids.empty() ? encode_text(engine, input.text, engine.max_context(), "input")
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

Outcome<void> check_model(std::string_view served, std::string_view asked) {
  if (asked == served) return {};
  constexpr std::size_t kMost = 60;
  return tl::unexpected(
      Refusal{.status = StatusCode::kNotFound,
              .message = fmt::format("model: expected {}, got '{}{}'", served,
                                     asked.substr(0, kMost), asked.size() > kMost ? "..." : ""),
              .parameter = "model",
              .code = "model_not_found"});
}

}  // namespace kakeya::server
