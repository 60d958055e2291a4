#include "wire/openai/completion_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace kakeya::server {
namespace {

using nlohmann::ordered_json;

ordered_json text_or_null(std::string_view text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

const char* name_of(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

// The bytes of a token that is a part of a character, empty of one whose text says it all.
std::string bytes_of_part(const Tokenizer& tokenizer, TokenId id, std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  if (text.find(kReplacement) == std::string_view::npos) return "";
  std::string bytes = tokenizer.token_bytes(id);
  return bytes.find(kReplacement) == std::string::npos ? bytes : "";
}

// The text shown for a token: its own, or for a part of a character its bytes as OpenAI writes
// them.
std::string shown_token(const Tokenizer& tokenizer, TokenId id, std::string_view prefix) {
  const std::string text = tokenizer.decode({&id, 1}, false);
  const std::string bytes = bytes_of_part(tokenizer, id, text);
  if (bytes.empty()) return text;
  std::string escaped(prefix);
  for (const char byte : bytes) {
    escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return escaped;
}

constexpr float kLeastLogprob = -9999.0F;  // JSON has no infinity

ordered_json logprob_json(const Tokenizer& tokenizer, const TokenLogprob& of) {
  const std::string text = shown_token(tokenizer, of.id, "");
  const std::string part = bytes_of_part(tokenizer, of.id, tokenizer.decode({&of.id, 1}, false));
  ordered_json bytes = ordered_json::array();
  for (const char byte : part.empty() ? text : part) {
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", text},
          {"logprob", std::max(of.logprob, kLeastLogprob)},
          {"bytes", std::move(bytes)}};
}

// {"content": [...]}, as text: entries are many and each is small.
std::string chat_logprobs(const Tokenizer& tokenizer, const AnswerPiece& piece) {
  std::string text = "{\"content\":[";
  bool first = true;
  for (const GeneratedToken& token : piece.tokens) {
    if (!token.logprobs) continue;
    ordered_json entry = logprob_json(tokenizer, token.logprobs->token);
    entry["top_logprobs"] = ordered_json::array();
    for (const TokenLogprob& top : token.logprobs->top) {
      entry["top_logprobs"].push_back(logprob_json(tokenizer, top));
    }
    if (!std::exchange(first, false)) text += ',';
    text += json_text(entry);
  }
  return text + "]}";
}

ordered_json ids_json(const AnswerPiece& piece) {
  ordered_json ids = ordered_json::array();
  for (const GeneratedToken& token : piece.tokens) ids.push_back(token.id);
  return ids;
}

ordered_json runs_json(const AnswerPiece& piece) {
  ordered_json runs = ordered_json::array();
  std::size_t begin = 0;
  for (const TextRun& run : piece.runs) {
    runs.push_back({{"text", piece.text.substr(begin, run.bytes)}, {"drafted", run.drafted}});
    begin += run.bytes;
  }
  return runs;
}

ordered_json usage_json(std::int64_t prompt_tokens,
                        std::int64_t completion_tokens,
                        std::int64_t cached) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

// As /v1/completions has them: columns. Of a prompt's first token nothing is known.
std::string completion_logprobs(const Tokenizer& tokenizer, const AnswerPiece& piece) {
  ordered_json tokens = ordered_json::array();
  ordered_json logprobs = ordered_json::array();
  ordered_json offsets = ordered_json::array();
  std::string tops = "[";
  std::int64_t offset = piece.begin;
  for (const GeneratedToken& token : piece.tokens) {
    tokens.push_back(shown_token(tokenizer, token.id, "bytes:"));
    offsets.push_back(offset);
    offset += characters_of(tokenizer.decode({&token.id, 1}));
    if (tops.size() > 1) tops += ',';
    if (!token.logprobs) {
      logprobs.push_back(nullptr);
      tops += "null";
      continue;
    }
    logprobs.push_back(std::max(token.logprobs->token.logprob, kLeastLogprob));
    ordered_json top = ordered_json::object();
    for (const TokenLogprob& other : token.logprobs->top) {
      top[shown_token(tokenizer, other.id, "bytes:")] = std::max(other.logprob, kLeastLogprob);
    }
    tops += json_text(top);
  }
  return fmt::format(R"({{"tokens":{},"token_logprobs":{},"top_logprobs":{}],"text_offset":{}}})",
                     json_text(tokens), json_text(logprobs), tops, json_text(offsets));
}

// `object` with one more member, whose value is a text of JSON.
std::string with_member(const ordered_json& object, std::string_view name, std::string_view value) {
  std::string text = json_text(object);
  text.pop_back();
  return fmt::format(R"({}{}"{}":{}}})", text, object.empty() ? "" : ",", name, value);
}

}  // namespace

std::string json_text(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string error_json(const Refusal& refusal) {
  return json_text({{"error",
                     {{"message", refusal.message},
                      {"type", http_error(refusal.status).type},
                      {"param", text_or_null(refusal.parameter)},
                      {"code", text_or_null(refusal.code)}}}});
}

std::string model_json(std::string_view model_name, std::int64_t created, std::int64_t context) {
  // The length of its context by the names that vLLM and OpenRouter have given it.
  return json_text({{"id", model_name},
                    {"object", "model"},
                    {"created", created},
                    {"owned_by", "kakeya"},
                    {"max_model_len", context},
                    {"context_length", context}});
}

std::string models_json(std::string_view model_name, std::int64_t created, std::int64_t context) {
  return R"({"object":"list","data":[)" + model_json(model_name, created, context) + "]}";
}

std::string server_event(std::string_view text) {
  return "data: " + std::string(text) + "\n\n";
}

CompletionWriter::CompletionWriter(const Tokenizer& tokenizer,
                                   const ServeRequest& request,
                                   const AnswerFrame& frame)
    : tokenizer_(tokenizer),
      request_(request),
      id_(frame.id),
      model_(frame.model),
      created_(frame.created),
      prompt_tokens_(frame.prompt_tokens) {}

std::string CompletionWriter::completion(const std::vector<WholeAnswer>& answers,
                                         std::int64_t cached) const {
  std::string choices;
  std::int64_t tokens = 0;
  for (std::size_t index = 0; index < answers.size(); ++index) {
    const WholeAnswer& answer = answers[index];
    ordered_json choice = {{"index", index}};
    if (is_chat()) {
      choice["message"] = {{"role", "assistant"}, {"content", answer.piece.text}};
      if (!answer.piece.reasoning.empty()) {
        choice["message"]["reasoning_content"] = answer.piece.reasoning;
      }
    } else {
      choice["text"] = answer.piece.text;
    }
    choice["finish_reason"] = name_of(answer.reason);
    if (index > 0) choices += ',';
    choices += choice_text(std::move(choice), answer.piece);
    tokens += answer.generated;
  }
  ordered_json json = frame(is_chat() ? "chat.completion" : "text_completion");
  json["usage"] = usage_json(prompt_tokens_, tokens, cached);
  return with_member(json, "choices", '[' + choices + ']');
}

std::string CompletionWriter::first_chunk(int index) const {
  return chunk_of(json_text({{"index", index},
                             {"delta", {{"role", "assistant"}, {"content", ""}}},
                             {"finish_reason", nullptr}}));
}

bool CompletionWriter::says_anything(const AnswerPiece& piece) const {
  const bool of_tokens = request_.logprobs || request_.return_token_ids;
  return !piece.text.empty() || !piece.reasoning.empty() || (of_tokens && !piece.tokens.empty());
}

std::string CompletionWriter::chunk(int index, const AnswerPiece& piece) const {
  ordered_json choice = {{"index", index}};
  if (is_chat()) {
    choice["delta"] = ordered_json::object();
    if (!piece.reasoning.empty()) choice["delta"]["reasoning_content"] = piece.reasoning;
    if (piece.reasoning.empty() || !piece.text.empty()) choice["delta"]["content"] = piece.text;
  } else {
    choice["text"] = piece.text;
  }
  choice["finish_reason"] = nullptr;
  return chunk_of(choice_text(std::move(choice), piece));
}

std::string CompletionWriter::last_chunk(int index, FinishReason reason) const {
  ordered_json choice = {{"index", index}};
  if (is_chat()) {
    choice["delta"] = ordered_json::object();
  } else {
    choice["text"] = "";
  }
  choice["finish_reason"] = name_of(reason);
  return chunk_of(json_text(choice));
}

std::string CompletionWriter::usage_chunk(std::int64_t completion_tokens,
                                          std::int64_t cached) const {
  ordered_json json = frame(chunk_object());
  json["choices"] = ordered_json::array();
  json["usage"] = usage_json(prompt_tokens_, completion_tokens, cached);
  return json_text(json);
}

// The choice with log-probabilities, ids and what was drafted, if they are wanted.
std::string CompletionWriter::choice_text(ordered_json choice, const AnswerPiece& piece) const {
  if (request_.return_token_ids) choice["token_ids"] = ids_json(piece);
  if (request_.return_runs) choice["runs"] = runs_json(piece);
  std::string logprobs = "null";
  if (request_.logprobs) {
    logprobs =
        is_chat() ? chat_logprobs(tokenizer_, piece) : completion_logprobs(tokenizer_, piece);
  }
  return with_member(choice, "logprobs", logprobs);
}

ordered_json CompletionWriter::frame(const char* object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

const char* CompletionWriter::chunk_object() const {
  return is_chat() ? "chat.completion.chunk" : "text_completion";
}

std::string CompletionWriter::chunk_of(std::string_view choice) const {
  return with_member(frame(chunk_object()), "choices", fmt::format("[{}]", choice));
}

}  // namespace kakeya::server
