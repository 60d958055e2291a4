#include "wire/anthropic/messages_write.h"

#include <utility>

#include "service/json_text.h"

namespace kakeya::anthropic {
namespace {

using nlohmann::ordered_json;
using service::json_text;

// The word that Anthropic's clients know for an error.
const char* error_type(const service::Refusal& refusal) {
  if (refusal.code == "invalid_api_key") return "authentication_error";
  switch (refusal.status) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kUnimplemented:
      return "invalid_request_error";
    case StatusCode::kNotFound:
      return "not_found_error";
    case StatusCode::kResourceExhausted:
      return "rate_limit_error";
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      return "overloaded_error";
    case StatusCode::kDeadlineExceeded:
      return "timeout_error";
    case StatusCode::kInternal:
    case StatusCode::kDataLoss:
      break;
  }
  return "api_error";
}

// Tokens that were taken from the prefix cache count apart from those that were run.
ordered_json usage_json(const service::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

// An event of a stream whose data says its name, too.
std::string event_of(const ordered_json& data) {
  return wire::server_event(json_text(data), data["type"].get_ref<const std::string&>());
}

}  // namespace

std::string error_json(const service::Refusal& refusal) {
  return json_text({{"type", "error"},
                    {"error", {{"type", error_type(refusal)}, {"message", refusal.message}}}});
}

ordered_json MessagesWriter::message() const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", ordered_json::array()}};
}

ordered_json MessagesWriter::stop_of(const service::AnswerEnd& end) const {
  if (end.stop_string) {
    return {{"stop_reason", "stop_sequence"}, {"stop_sequence", stop_strings_[*end.stop_string]}};
  }
  const bool is_cut = end.reason == service::FinishReason::kLength;
  return {{"stop_reason", is_cut ? "max_tokens" : "end_turn"}, {"stop_sequence", nullptr}};
}

std::string MessagesWriter::begin(int /*index*/) {
  ordered_json begun = message();
  begun.update({{"stop_reason", nullptr},
                {"stop_sequence", nullptr},
                {"usage", usage_json({.prompt_tokens = prompt_tokens_})}});
  return event_of({{"type", "message_start"}, {"message", std::move(begun)}});
}

std::string MessagesWriter::open(Block block) {
  if (open_ == block) return "";
  std::string events;
  if (open_ != Block::kNone) {
    events = event_of({{"type", "content_block_stop"}, {"index", blocks_ - 1}});
  }
  open_ = block;
  if (block == Block::kNone) return events;
  const ordered_json empty =
      block == Block::kThinking
          ? ordered_json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}
          : ordered_json{{"type", "text"}, {"text", ""}};
  return events +
         event_of(
             {{"type", "content_block_start"}, {"index", blocks_++}, {"content_block", empty}});
}

std::string MessagesWriter::delta(Block block, std::string_view text) {
  if (text.empty()) return "";
  const ordered_json said = block == Block::kThinking
                                ? ordered_json{{"type", "thinking_delta"}, {"thinking", text}}
                                : ordered_json{{"type", "text_delta"}, {"text", text}};
  std::string events = open(block);
  return events +
         event_of({{"type", "content_block_delta"}, {"index", blocks_ - 1}, {"delta", said}});
}

std::string MessagesWriter::piece(int /*index*/, const service::AnswerPiece& piece) {
  std::string events = delta(Block::kThinking, piece.reasoning);
  return events + delta(Block::kText, piece.text);
}

std::string MessagesWriter::end(int /*index*/, const service::AnswerEnd& end) {
  end_ = end;
  return open(Block::kNone);
}

std::string MessagesWriter::done(const service::Usage& usage) {
  return event_of(
             {{"type", "message_delta"}, {"delta", stop_of(end_)}, {"usage", usage_json(usage)}}) +
         event_of({{"type", "message_stop"}});
}

std::string MessagesWriter::error(const service::Refusal& refusal) {
  return wire::server_event(error_json(refusal), "error");
}

std::string MessagesWriter::whole(const std::vector<service::WholeAnswer>& answers,
                                  const service::Usage& usage) {
  const service::WholeAnswer& answer = answers.front();
  ordered_json json = message();
  if (!answer.piece.reasoning.empty()) {
    json["content"].push_back(
        {{"type", "thinking"}, {"thinking", answer.piece.reasoning}, {"signature", ""}});
  }
  if (!answer.piece.text.empty()) {
    json["content"].push_back({{"type", "text"}, {"text", answer.piece.text}});
  }
  json.update(stop_of(answer.end));
  json["usage"] = usage_json(usage);
  return json_text(json);
}

}  // namespace kakeya::anthropic
