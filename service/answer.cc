#include "service/answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace kakeya::service {
namespace {

// Adds a run of the text that `piece` has got behind `before`; nothing if there is no text.
void add_run(AnswerPiece& piece, std::size_t before, bool drafted) {
  const std::size_t bytes = piece.text.size() - before;
  if (bytes == 0) return;
  if (!piece.runs.empty() && piece.runs.back().drafted == drafted) {
    piece.runs.back().bytes += bytes;
  } else {
    piece.runs.push_back({.bytes = bytes, .drafted = drafted});
  }
}

void add_calls(AnswerPiece& piece, std::vector<ToolCallPiece> calls) {
  for (ToolCallPiece& call : calls) add_call(piece.tool_calls, std::move(call));
}

}  // namespace

std::int64_t characters_of(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; });
}

void append(AnswerPiece& piece, AnswerPiece more) {
  for (ToolCallPiece& call : more.tool_calls) {
    call.at += piece.text.size();
    add_call(piece.tool_calls, std::move(call));
  }
  piece.text += more.text;
  piece.reasoning += more.reasoning;
  std::ranges::move(more.runs, std::back_inserter(piece.runs));
  std::ranges::move(more.tokens, std::back_inserter(piece.tokens));
}

Status Answer::add(Mail mail, AnswerPiece& piece) {
  for (GeneratedToken& token : mail.tokens) {
    if (finished()) return {};
    const std::size_t before = piece.text.size();
    const bool has_thought = splitter_.thinks();
    if (splitter_.push(token.id, piece.reasoning, piece.text)) reason_ = stop_reason();
    add_calls(piece, splitter_.take_calls());
    drafted_ = token.drafted;
    add_run(piece, before, drafted_);
    token.thought = has_thought || splitter_.thinks();
    thought_token_count_ += token.thought ? 1 : 0;
    ++token_count_;
    piece.tokens.push_back(std::move(token));
  }
  if (finished() || !mail.end) return {};
  KAKEYA_ASSIGN_OR_RETURN(const StopReason reason, std::move(*mail.end));
  if (reason == StopReason::kCallback) {
    return error(StatusCode::kCancelled, "the answer was not read in time");
  }
  const std::size_t before = piece.text.size();
  const bool stopped =
      splitter_.finish(piece.reasoning, piece.text) || reason == StopReason::kStopId;
  add_run(piece, before, drafted_);
  add_calls(piece, splitter_.take_calls());
  reason_ = stopped ? stop_reason() : FinishReason::kLength;
  return {};
}

FinishReason Answer::stop_reason() const {
  if (splitter_.is_cut()) return FinishReason::kLength;
  const bool by_itself = !splitter_.stopped_by();
  return by_itself && splitter_.has_calls() ? FinishReason::kToolCalls : FinishReason::kStop;
}

}  // namespace kakeya::service
