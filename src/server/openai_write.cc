#include "server/openai_write.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace kakeya::server {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

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

ordered_json usage_json(std::int64_t prompt_tokens, std::int64_t completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

// {"id", "object", "created", "model", "choices"}
ordered_json frame(const std::string& id,
                   const char* object,
                   std::int64_t created,
                   const std::string& model,
                   ordered_json choices) {
  return {{"id", id},
          {"object", object},
          {"created", created},
          {"model", model},
          {"choices", std::move(choices)}};
}

}  // namespace

std::string error_json(const Refusal& refusal) {
  return text_of({{"error",
                   {{"message", refusal.message},
                    {"type", http_error(refusal.status).type},
                    {"param", text_or_null(refusal.parameter)},
                    {"code", text_or_null(refusal.code)}}}});
}

std::string models_json(std::string_view model_name, std::int64_t created) {
  const ordered_json model = {
      {"id", model_name}, {"object", "model"}, {"created", created}, {"owned_by", "kakeya"}};
  return text_of({{"object", "list"}, {"data", ordered_json::array({model})}});
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

std::string CompletionWriter::completion(const AnswerPiece& whole, FinishReason reason) const {
  ordered_json choice = {{"index", 0},
                         {"message", {{"role", "assistant"}, {"content", whole.text}}},
                         {"logprobs", nullptr},
                         {"finish_reason", name_of(reason)}};
  if (request_.logprobs) choice["logprobs"] = logprobs_json(tokenizer_, whole);
  if (request_.return_token_ids) choice["token_ids"] = ids_json(whole);
  ordered_json json = frame(id_, "chat.completion", created_, request_.model,
                            ordered_json::array({std::move(choice)}));
  json["usage"] = usage_json(prompt_tokens_, std::ssize(whole.tokens));
  return text_of(json);
}

std::string CompletionWriter::first_chunk() const {
  const ordered_json choice = {{"index", 0},
                               {"delta", {{"role", "assistant"}, {"content", ""}}},
                               {"finish_reason", nullptr}};
  return text_of(
      frame(id_, "chat.completion.chunk", created_, request_.model, ordered_json::array({choice})));
}

bool CompletionWriter::says_anything(const AnswerPiece& piece) const {
  const bool of_tokens = request_.logprobs || request_.return_token_ids;
  return !piece.text.empty() || (of_tokens && !piece.tokens.empty());
}

std::string CompletionWriter::chunk(const AnswerPiece& piece) const {
  ordered_json choice = {
      {"index", 0}, {"delta", {{"content", piece.text}}}, {"finish_reason", nullptr}};
  if (request_.logprobs) choice["logprobs"] = logprobs_json(tokenizer_, piece);
  if (request_.return_token_ids) choice["token_ids"] = ids_json(piece);
  return text_of(frame(id_, "chat.completion.chunk", created_, request_.model,
                       ordered_json::array({std::move(choice)})));
}

std::string CompletionWriter::last_chunk(FinishReason reason) const {
  const ordered_json choice = {
      {"index", 0}, {"delta", ordered_json::object()}, {"finish_reason", name_of(reason)}};
  return text_of(
      frame(id_, "chat.completion.chunk", created_, request_.model, ordered_json::array({choice})));
}

std::string CompletionWriter::usage_chunk(std::int64_t completion_tokens) const {
  ordered_json json =
      frame(id_, "chat.completion.chunk", created_, request_.model, ordered_json::array());
  json["usage"] = usage_json(prompt_tokens_, completion_tokens);
  return text_of(json);
}

}  // namespace kakeya::server
