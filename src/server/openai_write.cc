#include "server/openai_write.h"

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

ordered_json logprob_json(const Tokenizer& tokenizer, const TokenLogprob& of) {
  constexpr float kLeast = -9999.0F;  // JSON has no infinity
  const std::string text = tokenizer.decode({&of.id, 1}, false);
  ordered_json bytes = ordered_json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text}, {"logprob", std::max(of.logprob, kLeast)}, {"bytes", std::move(bytes)}};
}

ordered_json logprobs_json(const Tokenizer& tokenizer, const AnswerPiece& piece) {
  ordered_json content = ordered_json::array();
  for (const GeneratedToken& token : piece.tokens) {
    if (!token.logprobs) continue;
    ordered_json entry = logprob_json(tokenizer, token.logprobs->token);
    entry["top_logprobs"] = ordered_json::array();
    for (const TokenLogprob& top : token.logprobs->top) {
      entry["top_logprobs"].push_back(logprob_json(tokenizer, top));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
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

// As /v1/completions has them: columns, and the texts of tokens instead of their bytes.
ordered_json completion_logprobs_json(const Tokenizer& tokenizer, const AnswerPiece& piece) {
  ordered_json tokens = ordered_json::array();
  ordered_json logprobs = ordered_json::array();
  ordered_json tops = ordered_json::array();
  for (const GeneratedToken& token : piece.tokens) {
    if (!token.logprobs) continue;
    const ordered_json of = logprob_json(tokenizer, token.logprobs->token);
    tokens.push_back(of["token"]);
    logprobs.push_back(of["logprob"]);
    ordered_json top = ordered_json::object();
    for (const TokenLogprob& other : token.logprobs->top) {
      const ordered_json entry = logprob_json(tokenizer, other);
      top[entry["token"].get<std::string>()] = entry["logprob"];
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)}};
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

std::string models_json(std::string_view model_name, std::int64_t created) {
  const ordered_json model = {
      {"id", model_name}, {"object", "model"}, {"created", created}, {"owned_by", "kakeya"}};
  return json_text({{"object", "list"}, {"data", ordered_json::array({model})}});
}

std::string server_event(std::string_view text) {
  return "data: " + std::string(text) + "\n\n";
}

CompletionWriter::CompletionWriter(const Tokenizer& tokenizer,
                                   const ServeRequest& request,
                                   std::string id,
                                   std::int64_t created,
                                   std::int64_t prompt_tokens)
    : tokenizer_(tokenizer),
      request_(request),
      id_(std::move(id)),
      created_(created),
      prompt_tokens_(prompt_tokens) {}

std::string CompletionWriter::completion(const std::vector<WholeAnswer>& answers,
                                         std::int64_t cached) const {
  ordered_json choices = ordered_json::array();
  std::int64_t tokens = 0;
  for (const WholeAnswer& answer : answers) {
    ordered_json choice = {{"index", choices.size()}};
    if (is_chat()) {
      choice["message"] = {{"role", "assistant"}, {"content", answer.piece.text}};
      if (!answer.piece.reasoning.empty()) {
        choice["message"]["reasoning_content"] = answer.piece.reasoning;
      }
    } else {
      choice["text"] = answer.piece.text;
    }
    add_details(choice, answer.piece);
    choice["finish_reason"] = name_of(answer.reason);
    choices.push_back(std::move(choice));
    tokens += std::ssize(answer.piece.tokens);
  }
  ordered_json json = frame(is_chat() ? "chat.completion" : "text_completion", std::move(choices));
  json["usage"] = usage_json(prompt_tokens_, tokens, cached);
  return json_text(json);
}

std::string CompletionWriter::first_chunk(int index) const {
  return chunk_of({{"index", index},
                   {"delta", {{"role", "assistant"}, {"content", ""}}},
                   {"finish_reason", nullptr}});
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
  add_details(choice, piece);
  choice["finish_reason"] = nullptr;
  return chunk_of(std::move(choice));
}

std::string CompletionWriter::last_chunk(int index, FinishReason reason) const {
  ordered_json choice = {{"index", index}};
  if (is_chat()) {
    choice["delta"] = ordered_json::object();
  } else {
    choice["text"] = "";
  }
  choice["finish_reason"] = name_of(reason);
  return chunk_of(std::move(choice));
}

std::string CompletionWriter::usage_chunk(std::int64_t completion_tokens,
                                          std::int64_t cached) const {
  ordered_json json = frame(chunk_object(), ordered_json::array());
  json["usage"] = usage_json(prompt_tokens_, completion_tokens, cached);
  return json_text(json);
}

// Log-probabilities, ids and what was drafted, if they are wanted.
void CompletionWriter::add_details(ordered_json& choice, const AnswerPiece& piece) const {
  if (request_.logprobs) {
    choice["logprobs"] =
        is_chat() ? logprobs_json(tokenizer_, piece) : completion_logprobs_json(tokenizer_, piece);
  } else {
    choice["logprobs"] = nullptr;
  }
  if (request_.return_token_ids) choice["token_ids"] = ids_json(piece);
  if (request_.return_runs) choice["runs"] = runs_json(piece);
}

ordered_json CompletionWriter::frame(const char* object, ordered_json choices) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", request_.model},
          {"choices", std::move(choices)}};
}

const char* CompletionWriter::chunk_object() const {
  return is_chat() ? "chat.completion.chunk" : "text_completion";
}

std::string CompletionWriter::chunk_of(ordered_json choice) const {
  return json_text(frame(chunk_object(), ordered_json::array({std::move(choice)})));
}

}  // namespace kakeya::server
