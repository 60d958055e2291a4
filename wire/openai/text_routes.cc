#include "wire/openai/text_routes.h"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "service/answer_request.h"
#include "service/json_text.h"
#include "wire/fields/known_fields.h"
#include "wire/http/json_reader.h"
#include "wire/openai/completion_read.h"
#include "wire/openai/conversation_read.h"
#include "wire/openai/tools_read.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;

tl::unexpected<service::Refusal> problem_of(wire::JsonReader& reader) {
  return tl::unexpected(reader.problem());
}

// A conversation as the model's template writes it.
service::Outcome<ChatPrompt> written_conversation(const Engine& engine,
                                                  const wire::Json& body,
                                                  std::string_view text) {
  wire::JsonReader reader;
  service::AnswerRequest request;
  read_conversation(reader, body, request);
  read_tools(reader, body, text, request);
  if (reader.failed()) return problem_of(reader);
  return service::apply_template(engine, request.messages, request.chat);
}

// Bounded by what a server can spare for a text, not by the context.
service::Outcome<std::vector<TokenId>> encoded(
    const std::function<Result<std::vector<TokenId>>(const EncodeOptions&)>& encode,
    const std::string& parameter) {
  auto ids = encode({.most_tokens = static_cast<std::size_t>(kMostTokenized)});
  if (ids) return std::move(ids).value();
  if (ids.error().code() != StatusCode::kResourceExhausted) {
    return tl::unexpected(service::refusal_of(ids.error()));
  }
  return tl::unexpected(service::Refusal{
      .message = fmt::format("{}: expected at most {} tokens, got more", parameter, kMostTokenized),
      .parameter = parameter});
}

bool is_chat(const wire::Json& body) {
  const auto messages = body.find("messages");
  const bool is_given = messages != body.end() && messages->is_array() && !messages->empty();
  return is_given ||
         (messages != body.end() && !body.contains("prompt") && !body.contains("content"));
}

// Ids of {"content"}, {"prompt"} or {"messages"}.
service::Outcome<std::vector<TokenId>> ids_of(const Engine& engine,
                                              const Tokenizer& tokenizer,
                                              const wire::Json& body,
                                              std::string_view text) {
  if (is_chat(body)) {
    const auto chat = written_conversation(engine, body, text);
    if (!chat) return tl::unexpected(chat.error());
    return encoded(
        [&](EncodeOptions options) {
          options.plain = chat->plain;
          return tokenizer.encode(chat->text, options);
        },
        "messages");
  }
  wire::JsonReader reader;
  const char* const name = body.contains("prompt") ? "prompt" : "content";
  const wire::Json* content = reader.find(body, name);
  if (name != std::string_view("content") && reader.find(body, "content") != nullptr) {
    reader.refuse("content", "none beside prompt", wire::shown(body["content"]));
  }
  if (content == nullptr || !content->is_string()) {
    reader.refuse(name, "a text", content == nullptr ? "nothing" : wire::shown(*content));
  }
  bool add_special = true;
  reader.read(body, "add_special", add_special);         // llama.cpp's name
  reader.read(body, "add_special_tokens", add_special);  // vLLM's
  bool parse_special = true;
  reader.read(body, "parse_special", parse_special);  // llama.cpp's
  if (reader.failed()) return problem_of(reader);
  const auto& given = content->get_ref<const std::string&>();
  return encoded(
      [&](EncodeOptions options) {
        options.parse_special = parse_special;
        return add_special ? engine.encode_text(given, options) : tokenizer.encode(given, options);
      },
      name);
}

}  // namespace

service::Outcome<std::string> tokenize(const Engine& engine, std::string_view body) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(service::refusal_of(tokenizer.error()));
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  wire::JsonReader reader;
  wire::refuse_unserved(
      reader, *parsed,
      is_chat(*parsed) ? wire::RequestKind::kTokenizedChat : wire::RequestKind::kText);
  if (reader.failed()) return problem_of(reader);
  const auto ids = ids_of(engine, **tokenizer, *parsed, body);
  if (!ids) return tl::unexpected(ids.error());
  bool with_pieces = false;
  reader.read(*parsed, "with_pieces", with_pieces);
  if (reader.failed()) return problem_of(reader);
  std::string tokens;  // there may be many
  for (const TokenId id : *ids) {
    if (!tokens.empty()) tokens += ',';
    if (with_pieces) {
      tokens +=
          service::json_text({{"id", id}, {"piece", (*tokenizer)->decode({&id, 1}, false, false)}});
    } else {
      tokens += std::to_string(id);
    }
  }
  return fmt::format(R"({{"tokens":[{}],"count":{},"max_model_len":{}}})", tokens, ids->size(),
                     service::context_of(engine));
}

service::Outcome<std::string> detokenize(const Engine& engine, std::string_view body) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(service::refusal_of(tokenizer.error()));
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  wire::JsonReader reader;
  wire::refuse_unserved(reader, *parsed, wire::RequestKind::kTokens);
  const wire::Json* tokens = reader.find(*parsed, "tokens");
  std::vector<TokenId> ids;
  if (tokens == nullptr || !tokens->is_array()) {
    reader.refuse("tokens", "an array of token ids", tokens ? wire::shown(*tokens) : "nothing");
  } else {
    read_token_ids(reader, *tokens, "tokens", ids);
  }
  for (const TokenId id : ids) {
    if (id < engine.vocab_size()) continue;
    reader.refuse("tokens", fmt::format("ids from 0 to {}", engine.vocab_size() - 1),
                  std::to_string(id));
    break;
  }
  if (reader.failed()) return problem_of(reader);
  const std::string text = (*tokenizer)->decode(ids, false);
  return service::json_text({{"content", text}, {"prompt", text}});
}

service::Outcome<std::string> apply_template(const Engine& engine, std::string_view body) {
  const auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(parsed.error());
  wire::JsonReader reader;
  wire::refuse_unserved(reader, *parsed, wire::RequestKind::kTemplate);
  if (reader.failed()) return problem_of(reader);
  const auto chat = written_conversation(engine, *parsed, body);
  if (!chat) return tl::unexpected(chat.error());
  return service::json_text({{"prompt", chat->text}});
}

std::string props_json(const Engine& engine, const service::ServiceOptions& options) {
  const SamplingOptions sampling = engine.recommended_sampling();
  return service::json_text({{"model", options.model_name},
                             {"backend", engine.backend_name()},
                             {"threads", engine.num_threads()},
                             {"context", service::context_of(engine)},
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

service::Outcome<std::string> tokenizer_json(const Engine& engine) {
  const auto tokenizer = engine.tokenizer();
  if (!tokenizer) return tl::unexpected(service::refusal_of(tokenizer.error()));
  const auto text_of = [&](TokenId id) {
    const auto text = (*tokenizer)->token_text(id);
    return text ? ordered_json(std::string(*text)) : ordered_json();
  };
  const auto stops = engine.stop_ids();
  return service::json_text({{"tokenizer_class", "kakeya"},
                             {"bos_token", text_of(engine.bos_id())},
                             {"eos_token", stops.empty() ? ordered_json() : text_of(stops.front())},
                             {"vocab_size", engine.vocab_size()},
                             {"model_max_length", service::context_of(engine)}});
}

}  // namespace kakeya::openai
