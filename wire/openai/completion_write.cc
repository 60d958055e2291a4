#include "wire/openai/completion_write.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "service/json_text.h"
#include "wire/openai/logprobs_write.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;

// The word that OpenAI's clients know for an error.
const char* error_type(StatusCode status) {
  switch (status) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kNotFound:
    case StatusCode::kUnimplemented:
      return "invalid_request_error";
    case StatusCode::kResourceExhausted:
      return "rate_limit_error";
    case StatusCode::kCancelled:
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kInternal:
    case StatusCode::kDataLoss:
      break;
  }
  return "server_error";
}

ordered_json text_or_null(std::string_view text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

const char* name_of(service::FinishReason reason) {
  if (reason == service::FinishReason::kToolCalls) return "tool_calls";
  return reason == service::FinishReason::kLength ? "length" : "stop";
}

// {"content": [...]}, as text: entries are many and each is small.
std::string chat_logprobs(const Tokenizer& tokenizer, const service::AnswerPiece& piece) {
  std::string text = "{\"content\":[";
  bool first = true;
  for (const service::GeneratedToken& token : piece.tokens) {
    if (!token.logprobs) continue;
    if (!std::exchange(first, false)) text += ',';
    text += service::json_text(logprobs_json(tokenizer, *token.logprobs));
  }
  return text + "]}";
}

ordered_json ids_json(const service::AnswerPiece& piece) {
  ordered_json ids = ordered_json::array();
  for (const service::GeneratedToken& token : piece.tokens) ids.push_back(token.id);
  return ids;
}

ordered_json runs_json(const service::AnswerPiece& piece) {
  ordered_json runs = ordered_json::array();
  std::size_t begin = 0;
  for (const service::TextRun& run : piece.runs) {
    runs.push_back({{"text", piece.text.substr(begin, run.bytes)}, {"drafted", run.drafted}});
    begin += run.bytes;
  }
  return runs;
}

// [{"id", "type", "function": {"name", "arguments"}}, ...]; in a stream with the call's "index",
// and of a call that goes on with its arguments alone.
ordered_json calls_json(const std::vector<service::ToolCallPiece>& calls, bool in_stream) {
  ordered_json list = ordered_json::array();
  for (const service::ToolCallPiece& call : calls) {
    ordered_json entry = ordered_json::object();
    if (in_stream) entry["index"] = call.index;
    ordered_json function = ordered_json::object();
    if (!call.id.empty()) {
      entry.update({{"id", "call_" + call.id}, {"type", "function"}});
      function["name"] = call.name;
    }
    function["arguments"] = call.arguments;
    entry["function"] = std::move(function);
    list.push_back(std::move(entry));
  }
  return list;
}

ordered_json message_json(const service::AnswerPiece& piece) {
  const bool is_null = piece.text.empty() && !piece.tool_calls.empty();
  ordered_json message = {{"role", "assistant"},
                          {"content", is_null ? ordered_json() : ordered_json(piece.text)}};
  if (!piece.reasoning.empty()) message["reasoning_content"] = piece.reasoning;
  if (!piece.tool_calls.empty()) message["tool_calls"] = calls_json(piece.tool_calls, false);
  return message;
}

ordered_json delta_json(const service::AnswerPiece& piece) {
  ordered_json delta = ordered_json::object();
  if (!piece.reasoning.empty()) delta["reasoning_content"] = piece.reasoning;
  const bool says_else = !piece.reasoning.empty() || !piece.tool_calls.empty();
  if (!says_else || !piece.text.empty()) delta["content"] = piece.text;
  if (!piece.tool_calls.empty()) delta["tool_calls"] = calls_json(piece.tool_calls, true);
  return delta;
}

ordered_json usage_json(const service::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

// As /v1/completions has them: columns. Of a prompt's first token nothing is known.
std::string completion_logprobs(const Tokenizer& tokenizer, const service::AnswerPiece& piece) {
  ordered_json tokens = ordered_json::array();
  ordered_json logprobs = ordered_json::array();
  ordered_json offsets = ordered_json::array();
  std::string tops = "[";
  std::int64_t offset = piece.begin;
  for (const service::GeneratedToken& token : piece.tokens) {
    tokens.push_back(shown_token(tokenizer, token.id, "bytes:"));
    offsets.push_back(offset);
    offset += service::characters_of(tokenizer.decode({&token.id, 1}, true, false));
    if (tops.size() > 1) tops += ',';
    if (!token.logprobs) {
      logprobs.push_back(nullptr);
      tops += "null";
      continue;
    }
    logprobs.push_back(shown_logprob(token.logprobs->token));
    ordered_json top = ordered_json::object();
    for (const TokenLogprob& other : token.logprobs->top) {
      top[shown_token(tokenizer, other.id, "bytes:")] = shown_logprob(other);
    }
    tops += service::json_text(top);
  }
  return fmt::format(R"({{"tokens":{},"token_logprobs":{},"top_logprobs":{}],"text_offset":{}}})",
                     service::json_text(tokens), service::json_text(logprobs), tops,
                     service::json_text(offsets));
}

// `object` with one more member, whose value is a text of JSON.
std::string with_member(const ordered_json& object, std::string_view name, std::string_view value) {
  std::string text = service::json_text(object);
  text.pop_back();
  return fmt::format(R"({}{}"{}":{}}})", text, object.empty() ? "" : ",", name, value);
}

}  // namespace

std::string error_json(const service::Refusal& refusal) {
  return service::json_text({{"error",
                              {{"message", refusal.message},
                               {"type", error_type(refusal.status)},
                               {"param", text_or_null(refusal.parameter)},
                               {"code", text_or_null(refusal.code)}}}});
}

std::string model_json(const service::ModelStatus& model, std::int64_t created) {
  // The length of its context by the names that vLLM and OpenRouter have given it, the state by
  // llama-server's, and what Anthropic's clients read, whose route has the same name.
  const std::int64_t context = model.facts.context;
  return service::json_text(
      {{"id", model.name},
       {"object", "model"},
       {"created", created},
       {"owned_by", "kakeya"},
       {"max_model_len", context > 0 ? ordered_json(context) : ordered_json()},
       {"context_length", context > 0 ? ordered_json(context) : ordered_json()},
       {"aliases", model.aliases},
       {"capabilities", service::capabilities_of(model.facts)},
       {"status", {{"value", service::model_state_name(model.state)}}},
       {"type", "model"},
       {"display_name", model.name},
       {"created_at",
        fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(created)))}});
}

std::string models_json(const std::vector<service::ModelStatus>& models, std::int64_t created) {
  const ordered_json page = {{"object", "list"},
                             {"has_more", false},
                             {"first_id", models.front().name},
                             {"last_id", models.back().name}};
  std::string list;
  for (const service::ModelStatus& model : models) {
    list += (list.empty() ? "" : ",") + model_json(model, created);
  }
  return with_member(page, "data", "[" + list + "]");
}

CompletionWriter::CompletionWriter(const Tokenizer& tokenizer,
                                   const service::AnswerRequest& request,
                                   std::string id,
                                   std::string model,
                                   std::int64_t created)
    : tokenizer_(tokenizer),
      request_(request),
      id_(std::move(id)),
      model_(std::move(model)),
      created_(created) {}

std::string CompletionWriter::whole(const std::vector<service::WholeAnswer>& answers,
                                    const service::Usage& usage) {
  std::string choices;
  for (std::size_t index = 0; index < answers.size(); ++index) {
    const service::WholeAnswer& answer = answers[index];
    ordered_json choice = {{"index", index}};
    if (is_chat()) {
      choice["message"] = message_json(answer.piece);
    } else {
      choice["text"] = answer.piece.text;
    }
    choice["finish_reason"] = name_of(answer.end.reason);
    if (index > 0) choices += ',';
    choices += choice_text(std::move(choice), answer.piece);
  }
  ordered_json json = frame(is_chat() ? "chat.completion" : "text_completion");
  json["usage"] = usage_json(usage);
  wire::add_not_kept(json, "session", answers.front().end.session_not_kept);
  return with_member(json, "choices", '[' + choices + ']');
}

std::string CompletionWriter::begin(int index) {
  if (!is_chat()) return "";
  return event_of(service::json_text({{"index", index},
                                      {"delta", {{"role", "assistant"}, {"content", ""}}},
                                      {"finish_reason", nullptr}}));
}

bool CompletionWriter::says_anything(const service::AnswerPiece& piece) const {
  const bool of_tokens = request_.logprobs || request_.return_token_ids;
  return !piece.text.empty() || !piece.reasoning.empty() || !piece.tool_calls.empty() ||
         (of_tokens && !piece.tokens.empty());
}

std::string CompletionWriter::piece(int index, const service::AnswerPiece& piece) {
  if (!says_anything(piece)) return "";
  ordered_json choice = {{"index", index}};
  if (is_chat()) {
    choice["delta"] = delta_json(piece);
  } else {
    choice["text"] = piece.text;
  }
  choice["finish_reason"] = nullptr;
  return event_of(choice_text(std::move(choice), piece));
}

std::string CompletionWriter::end(int index, const service::AnswerEnd& end) {
  ordered_json choice = {{"index", index}};
  if (is_chat()) {
    choice["delta"] = ordered_json::object();
  } else {
    choice["text"] = "";
  }
  choice["finish_reason"] = name_of(end.reason);
  ordered_json json = frame(chunk_object());
  json["choices"] = ordered_json::array({std::move(choice)});
  wire::add_not_kept(json, "session", end.session_not_kept);
  return wire::server_event(service::json_text(json));
}

std::string CompletionWriter::done(const service::Usage& usage) {
  constexpr std::string_view kLast = "[DONE]";
  if (!request_.include_usage) return wire::server_event(kLast);
  ordered_json json = frame(chunk_object());
  json["choices"] = ordered_json::array();
  json["usage"] = usage_json(usage);
  return wire::server_event(service::json_text(json)) + wire::server_event(kLast);
}

std::string CompletionWriter::error(const service::Refusal& refusal) {
  return wire::server_event(error_json(refusal));
}

// The choice with log-probabilities, ids and what was drafted, if they are wanted.
std::string CompletionWriter::choice_text(ordered_json choice,
                                          const service::AnswerPiece& piece) const {
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

// The event of a chunk with one choice.
std::string CompletionWriter::event_of(std::string_view choice) const {
  return wire::server_event(
      with_member(frame(chunk_object()), "choices", fmt::format("[{}]", choice)));
}

}  // namespace kakeya::openai
