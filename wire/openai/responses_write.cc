#include "wire/openai/responses_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/bounded_json.h"
#include "service/json_text.h"
#include "wire/openai/logprobs_write.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;
using service::AnswerPiece;
using service::FinishReason;
using service::json_text;

// The word that clients of responses know for an error of a stream.
const char* failure_code(StatusCode status) {
  switch (status) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kNotFound:
    case StatusCode::kUnimplemented:
      return "invalid_prompt";
    case StatusCode::kResourceExhausted:
      return "rate_limit_exceeded";
    case StatusCode::kCancelled:
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kInternal:
    case StatusCode::kDataLoss:
      break;
  }
  return "server_error";
}

ordered_json response_usage(const service::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

// The text in {"input": TEXT}, as far as it goes in arguments that were cut.
std::string input_of(std::string_view arguments) {
  constexpr std::size_t kLongestEscape = 12;  // of a character: two \uXXXX
  for (std::size_t cut = 0; cut <= std::min(kLongestEscape, arguments.size()); ++cut) {
    const std::string begun(arguments.substr(0, arguments.size() - cut));
    for (const char* const end : {"", "}", "\"}"}) {
      const auto read = read_json(begun + end);
      if (!read || !read->is_object()) continue;
      const auto input = read->find(kCustomArgument);
      return input != read->end() && input->is_string() ? input->get<std::string>() : "";
    }
  }
  return "";
}

}  // namespace

ordered_json ResponsesWriter::empty_part_of(const Item& item) {
  if (item.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", ""}};
  return {{"type", "output_text"},
          {"text", ""},
          {"annotations", ordered_json::array()},
          {"logprobs", ordered_json::array()}};
}

ordered_json ResponsesWriter::part_of(const Item& item) {
  ordered_json part = empty_part_of(item);
  part["text"] = item.text;
  if (item.kind == Kind::kMessage) part["logprobs"] = item.logprobs;
  return part;
}

ordered_json ResponsesWriter::json_of(const Item& item) {
  if (is_call(item.kind)) {
    const bool is_custom = item.kind == Kind::kCustomCall;
    ordered_json call = {{"id", item.id},
                         {"type", is_custom ? "custom_tool_call" : "function_call"},
                         {"status", item.status},
                         {"call_id", item.call_id},
                         {"name", item.tool.name}};
    if (!item.tool.space.empty()) call["namespace"] = item.tool.space;
    call[is_custom ? "input" : "arguments"] = is_custom ? input_of(item.text) : item.text;
    return call;
  }
  ordered_json content = ordered_json::array();
  const bool is_begun = item.status != std::string_view("in_progress");
  if (is_begun) content.push_back(part_of(item));
  if (item.kind == Kind::kReasoning) {
    return {{"id", item.id},
            {"type", "reasoning"},
            {"status", item.status},
            {"summary", ordered_json::array()},
            {"content", std::move(content)}};
  }
  return {{"id", item.id},
          {"type", "message"},
          {"status", item.status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

ordered_json ResponsesWriter::response(const char* status) const {
  ordered_json json = {{"id", id_},        {"object", "response"}, {"created_at", created_},
                       {"status", status}, {"error", nullptr},     {"incomplete_details", nullptr},
                       {"model", model_}};
  json.update(repeated_);
  ordered_json& output = json["output"] = ordered_json::array();
  for (const Item& item : items_) output.push_back(json_of(item));
  json["usage"] = nullptr;
  return json;
}

void ResponsesWriter::add_event(const std::string& type, const ordered_json& members) {
  ordered_json data = {{"type", type}, {"sequence_number", event_count_++}};
  data.update(members);
  events_ += wire::server_event(json_text(data), type);
}

void ResponsesWriter::add_part_event(const char* type, const ordered_json& members) {
  const Item& item = items_.back();
  ordered_json place = {{"item_id", item.id}, {"output_index", items_.size() - 1}};
  if (!is_call(item.kind)) place["content_index"] = 0;
  place.update(members);
  add_event(type, place);
}

void ResponsesWriter::open(Item opened) {
  close("completed");
  constexpr const char* kPrefixes[] = {"rs", "msg", "fc", "ctc"};
  Item& item = items_.emplace_back(std::move(opened));
  item.id = fmt::format("{}{}_{}", kPrefixes[static_cast<int>(item.kind)],
                        id_.substr(id_.find('_')), items_.size() - 1);
  is_open_ = true;
  add_event("response.output_item.added",
            {{"output_index", items_.size() - 1}, {"item", json_of(item)}});
  if (!is_call(item.kind)) {
    add_part_event("response.content_part.added", {{"part", empty_part_of(item)}});
  }
}

void ResponsesWriter::close(const char* status) {
  if (!std::exchange(is_open_, false)) return;
  Item& item = items_.back();
  item.status = status;
  switch (item.kind) {
    case Kind::kReasoning:
      add_part_event("response.reasoning_text.done", {{"text", item.text}});
      break;
    case Kind::kMessage:
      take_logprobs(item);
      add_part_event("response.output_text.done",
                     {{"text", item.text}, {"logprobs", item.logprobs}});
      break;
    case Kind::kCall:
      add_part_event("response.function_call_arguments.done",
                     {{"name", item.tool.name}, {"arguments", item.text}});
      break;
    case Kind::kCustomCall: {
      const std::string input = input_of(item.text);
      add_part_event("response.custom_tool_call_input.delta", {{"delta", input}});
      add_part_event("response.custom_tool_call_input.done", {{"input", input}});
      break;
    }
  }
  if (!is_call(item.kind)) {
    add_part_event("response.content_part.done", {{"part", part_of(item)}});
  }
  add_event("response.output_item.done",
            {{"output_index", items_.size() - 1}, {"item", json_of(item)}});
}

ordered_json ResponsesWriter::take_logprobs(Item& item) {
  for (const ordered_json& entry : logprobs_) item.logprobs.push_back(entry);
  return std::exchange(logprobs_, ordered_json::array());
}

void ResponsesWriter::add_text(Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!is_open_ || items_.back().kind != kind) open({.kind = kind});
  items_.back().text += text;
  if (kind == Kind::kReasoning) {
    add_part_event("response.reasoning_text.delta", {{"delta", text}});
  } else {
    add_part_event("response.output_text.delta",
                   {{"delta", text}, {"logprobs", take_logprobs(items_.back())}});
  }
}

// Begins a call, or goes on with the open one.
void ResponsesWriter::add_call(const service::ToolCallPiece& call) {
  if (!call.id.empty()) {
    // A call of a tool that the request has not is one of a function.
    const auto known = tools_.find(call.name);
    const ClientTool tool = known == tools_.end() ? ClientTool{.name = call.name} : known->second;
    open({.kind = tool.is_custom ? Kind::kCustomCall : Kind::kCall,
          .call_id = "call_" + call.id,
          .name = call.name,
          .tool = tool});
  }
  if (call.arguments.empty()) return;
  items_.back().text += call.arguments;
  // The text of a custom call is known once its JSON is whole.
  if (items_.back().kind == Kind::kCustomCall) return;
  add_part_event("response.function_call_arguments.delta", {{"delta", call.arguments}});
}

std::string ResponsesWriter::begin(int /*index*/) {
  add_event("response.created", {{"response", response("in_progress")}});
  add_event("response.in_progress", {{"response", response("in_progress")}});
  return take_events();
}

std::string ResponsesWriter::piece(int /*index*/, const AnswerPiece& piece) {
  const std::string_view text = piece.text;
  auto next = piece.tool_calls.begin();
  // The rest of the open call comes first: nothing goes on with an item that is closed.
  if (next != piece.tool_calls.end() && next->id.empty()) add_call(*next++);
  add_text(Kind::kReasoning, piece.reasoning);
  for (const service::GeneratedToken& token : piece.tokens) {
    if (token.logprobs && !token.thought) {
      logprobs_.push_back(logprobs_json(tokenizer_, *token.logprobs));
    }
  }
  std::size_t done = 0;
  for (; next != piece.tool_calls.end(); ++next) {
    add_text(Kind::kMessage, text.substr(done, next->at - done));
    add_call(*next);
    done = next->at;
  }
  add_text(Kind::kMessage, text.substr(done));
  return take_events();
}

std::string ResponsesWriter::end(int /*index*/, const service::AnswerEnd& end) {
  end_ = end;
  if (items_.empty()) open({.kind = Kind::kMessage});  // of no text: clients expect one
  close(end.reason == FinishReason::kLength ? "incomplete" : "completed");
  return take_events();
}

std::string ResponsesWriter::done(const service::Usage& usage) {
  const ordered_json ended = finish(usage);
  add_event("response." + ended["status"].get<std::string>(), {{"response", ended}});
  return take_events();
}

std::string ResponsesWriter::error(const service::Refusal& refusal) {
  close("incomplete");
  ordered_json failed = response("failed");
  failed["error"] = {{"code", failure_code(refusal.status)}, {"message", refusal.message}};
  add_event("response.failed", {{"response", std::move(failed)}});
  return take_events();
}

std::string ResponsesWriter::whole(const std::vector<service::WholeAnswer>& answers,
                                   const service::Usage& usage) {
  // The events of a single piece are made for their items.
  piece(0, answers.front().piece);
  end(0, answers.front().end);
  return json_text(finish(usage));
}

ordered_json ResponsesWriter::finish(const service::Usage& usage) {
  const bool is_cut = end_.reason == FinishReason::kLength;
  ordered_json ended = response(is_cut ? "incomplete" : "completed");
  if (is_cut) ended["incomplete_details"] = {{"reason", "max_output_tokens"}};
  ended["usage"] = response_usage(usage);
  if (keep_) {
    StoredResponse stored = {.json = json_text(ended), .messages = {answer()}};
    for (const Item& item : items_) stored.items.emplace_back(item.id, json_text(json_of(item)));
    const std::string why = keep_(std::move(stored));
    if (!why.empty()) ended["store"] = false;
    wire::add_not_kept(ended, "response", why);
  }
  wire::add_not_kept(ended, "session", end_.session_not_kept);
  return ended;
}

ChatMessage ResponsesWriter::answer() const {
  ChatMessage message = {.role = "assistant", .content = ""};
  for (const Item& item : items_) {
    if (item.kind == Kind::kReasoning) {
      message.reasoning += item.text;
    } else if (item.kind == Kind::kMessage) {
      message.content += item.text;
    } else if (is_json(item.text)) {  // templates take no call that was cut
      message.tool_calls.push_back({.name = item.name, .arguments = item.text, .id = item.call_id});
    }
  }
  return message;
}

std::string deleted_json(std::string_view id) {
  return json_text({{"id", id}, {"object", "response"}, {"deleted", true}});
}

}  // namespace kakeya::openai
