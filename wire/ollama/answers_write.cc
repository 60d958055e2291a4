#include "wire/ollama/answers_write.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/bounded_json.h"
#include "service/json_text.h"

namespace kakeya::ollama {
namespace {

using nlohmann::ordered_json;
using service::json_text;

// {"function": {"name", "arguments": {...}}}; null for one that has broken off.
ordered_json call_json(const service::ToolCallPiece& call) {
  ordered_json arguments = read_json(call.arguments).value_or(ordered_json());
  if (!arguments.is_object()) return {};
  return {{"function", {{"name", call.name}, {"arguments", std::move(arguments)}}}};
}

std::string line_of(const ordered_json& object) {
  return json_text(object) + "\n";
}

}  // namespace

std::string error_json(const service::Refusal& refusal) {
  return json_text({{"error", refusal.message}});
}

std::string time_text(std::time_t time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time));
}

std::string time_text() {
  return time_text(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
}

ordered_json AnswersWriter::said(std::string_view text,
                                 std::string_view thought,
                                 ordered_json calls) const {
  ordered_json object = {{"model", model_}, {"created_at", time_text()}};
  if (!is_chat_) {
    object["response"] = text;
    if (!thought.empty()) object["thinking"] = thought;
    return object;
  }
  ordered_json message = {{"role", "assistant"}, {"content", text}};
  if (!thought.empty()) message["thinking"] = thought;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  object["message"] = std::move(message);
  return object;
}

std::string AnswersWriter::begin(int /*index*/) {
  return "";
}

std::string AnswersWriter::flush_call() {
  if (call_.name.empty()) return "";
  const service::ToolCallPiece call = std::exchange(call_, {});
  const ordered_json json = call_json(call);
  ordered_json line =
      json.is_null() ? said(call.arguments, "") : said("", "", ordered_json::array({json}));
  line["done"] = false;
  return line_of(line);
}

std::string AnswersWriter::piece(int /*index*/, const service::AnswerPiece& piece) {
  std::string lines;
  const std::string_view text = piece.text;
  const auto say = [&](std::string_view words, std::string_view thought) {
    if (words.empty() && thought.empty()) return;
    lines += flush_call();
    ordered_json line = said(words, thought);
    line["done"] = false;
    lines += line_of(line);
  };
  auto next = piece.tool_calls.begin();
  if (next != piece.tool_calls.end() && next->id.empty()) call_.arguments += next++->arguments;
  say("", piece.reasoning);
  std::size_t done = 0;
  for (; next != piece.tool_calls.end(); ++next) {
    say(text.substr(done, next->at - done), "");
    done = next->at;
    lines += flush_call();
    call_ = *next;
  }
  say(text.substr(done), "");
  return lines;
}

std::string AnswersWriter::end(int /*index*/, const service::AnswerEnd& end) {
  end_ = end;
  return flush_call();
}

ordered_json AnswersWriter::ended(ordered_json said, const service::Usage& usage) const {
  said["done"] = true;
  said["done_reason"] = end_.reason == service::FinishReason::kLength ? "length" : "stop";
  // Clients divide by these: none is 0 but the time that the model took to load, which is there.
  const double total = watch_.seconds();
  const double first = record_ == nullptr ? 0.0 : record_->first_token_seconds();
  const double prompt = first < 0.0 ? total : std::min(first, total);
  const auto nanoseconds = [](double seconds) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1e9));
  };
  said["total_duration"] = nanoseconds(total);
  said["load_duration"] = 0;
  said["prompt_eval_count"] = usage.prompt_tokens;
  said["prompt_eval_duration"] = nanoseconds(prompt);
  said["eval_count"] = usage.completion_tokens;
  said["eval_duration"] = nanoseconds(total - prompt);
  wire::add_not_kept(said, "session", end_.session_not_kept);
  return said;
}

std::string AnswersWriter::done(const service::Usage& usage) {
  return line_of(ended(said("", ""), usage));
}

std::string AnswersWriter::error(const service::Refusal& refusal) {
  return error_json(refusal) + "\n";
}

std::string AnswersWriter::whole(const std::vector<service::WholeAnswer>& answers,
                                 const service::Usage& usage) {
  const service::AnswerPiece& piece = answers.front().piece;
  end_ = answers.front().end;
  std::string text;
  std::size_t done = 0;
  ordered_json calls = ordered_json::array();
  for (const service::ToolCallPiece& call : piece.tool_calls) {
    text.append(piece.text, done, call.at - done);
    done = call.at;
    ordered_json json = call_json(call);
    if (json.is_null()) {
      text += call.arguments;
    } else {
      calls.push_back(std::move(json));
    }
  }
  text.append(piece.text, done);
  return json_text(ended(said(text, piece.reasoning, std::move(calls)), usage));
}

}  // namespace kakeya::ollama
