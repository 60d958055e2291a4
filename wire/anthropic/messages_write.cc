#include "wire/anthropic/messages_write.h"

#include <utility>

#include "base/bounded_json.h"
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

// The block of a call, without its input.
ordered_json tool_use(const service::ToolCallPiece& call) {
  return {{"type", "tool_use"},
          {"id", "toolu_" + call.id},
          {"name", call.name},
          {"input", ordered_json::object()}};
}

void add_text(ordered_json& content, std::string_view text) {
  if (text.empty()) return;
  const bool goes_on = !content.empty() && content.back()["type"] == "text";
  if (!goes_on) {
    content.push_back({{"type", "text"}, {"text", text}});
  } else {
    content.back()["text"] = content.back()["text"].get<std::string>().append(text);
  }
}

// Appends the blocks of what was said and called, in order. The arguments of a call that has broken
// off are text. Returns whether there is a call.
bool add_blocks(ordered_json& content, const service::AnswerPiece& piece) {
  const std::string_view text = piece.text;
  bool has_call = false;
  std::size_t done = 0;
  for (const service::ToolCallPiece& call : piece.tool_calls) {
    add_text(content, text.substr(done, call.at - done));
    done = call.at;
    ordered_json input = read_json(call.arguments).value_or(ordered_json());
    if (!input.is_object()) {
      add_text(content, call.arguments);
      continue;
    }
    content.push_back(tool_use(call));
    content.back()["input"] = std::move(input);
    has_call = true;
  }
  add_text(content, text.substr(done));
  return has_call;
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
  const char* reason = "end_turn";
  if (end.reason == service::FinishReason::kLength) reason = "max_tokens";
  if (end.reason == service::FinishReason::kToolCalls) reason = "tool_use";
  return {{"stop_reason", reason}, {"stop_sequence", nullptr}};
}

std::string MessagesWriter::begin(int /*index*/) {
  ordered_json begun = message();
  begun.update({{"stop_reason", nullptr},
                {"stop_sequence", nullptr},
                {"usage", usage_json({.prompt_tokens = prompt_tokens_})}});
  return event_of({{"type", "message_start"}, {"message", std::move(begun)}});
}

std::string MessagesWriter::close() {
  if (std::exchange(open_, Block::kNone) == Block::kNone) return "";
  return event_of({{"type", "content_block_stop"}, {"index", blocks_ - 1}});
}

std::string MessagesWriter::start(Block block, const ordered_json& content) {
  std::string events = close();
  open_ = block;
  return events +
         event_of(
             {{"type", "content_block_start"}, {"index", blocks_++}, {"content_block", content}});
}

std::string MessagesWriter::open(Block block) {
  if (open_ == block) return "";
  return start(block, block == Block::kThinking
                          ? ordered_json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}
                          : ordered_json{{"type", "text"}, {"text", ""}});
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

// A call that begins, or goes on in the open block.
std::string MessagesWriter::call(const service::ToolCallPiece& call) {
  std::string events;
  if (!call.id.empty()) events = start(Block::kToolUse, tool_use(call));
  if (call.arguments.empty()) return events;
  const ordered_json more = {{"type", "input_json_delta"}, {"partial_json", call.arguments}};
  return events +
         event_of({{"type", "content_block_delta"}, {"index", blocks_ - 1}, {"delta", more}});
}

std::string MessagesWriter::piece(int /*index*/, const service::AnswerPiece& piece) {
  const std::string_view text = piece.text;
  auto next = piece.tool_calls.begin();
  std::string events;
  // The rest of the open block comes first: nothing goes on with a block that is closed.
  if (next != piece.tool_calls.end() && next->id.empty()) events += call(*next++);
  events += delta(Block::kThinking, piece.reasoning);
  std::size_t done = 0;
  for (; next != piece.tool_calls.end(); ++next) {
    events += delta(Block::kText, text.substr(done, next->at - done));
    events += call(*next);
    done = next->at;
  }
  return events + delta(Block::kText, text.substr(done));
}

std::string MessagesWriter::end(int /*index*/, const service::AnswerEnd& end) {
  end_ = end;
  return close();
}

std::string MessagesWriter::done(const service::Usage& usage) {
  ordered_json ended = {
      {"type", "message_delta"}, {"delta", stop_of(end_)}, {"usage", usage_json(usage)}};
  wire::add_not_kept(ended, "session", end_.session_not_kept);
  return event_of(ended) + event_of({{"type", "message_stop"}});
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
  service::AnswerEnd end = answer.end;
  const bool has_call = add_blocks(json["content"], answer.piece);
  if (!has_call && end.reason == service::FinishReason::kToolCalls) {
    end.reason = service::FinishReason::kStop;
  }
  json.update(stop_of(end));
  json["usage"] = usage_json(usage);
  wire::add_not_kept(json, "session", end.session_not_kept);
  return json_text(json);
}

}  // namespace kakeya::anthropic
