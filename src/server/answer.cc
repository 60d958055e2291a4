#include "server/answer.h"

#include <utility>

#include "base/status.h"

namespace kakeya::server {

Result<Answer> Answer::create(const Tokenizer& tokenizer,
                              const std::vector<std::string>& stop_strings,
                              std::optional<ChannelMarkers> markers) {
  KAKEYA_ASSIGN_OR_RETURN(AnswerSplitter splitter,
                          AnswerSplitter::create(tokenizer, stop_strings, markers));
  return Answer(std::move(splitter));
}

Status Answer::add(Mail mail, AnswerPiece& piece) {
  for (GeneratedToken& token : mail.tokens) {
    if (finished()) return {};
    if (splitter_.push(token.id, piece.reasoning, piece.text)) reason_ = FinishReason::kStop;
    ++token_count_;
    piece.tokens.push_back(std::move(token));
  }
  if (finished() || !mail.end) return {};
  KAKEYA_ASSIGN_OR_RETURN(const StopReason reason, std::move(*mail.end));
  if (reason == StopReason::kCallback) {
    return error(StatusCode::kCancelled, "the answer was not read in time");
  }
  const bool stopped =
      splitter_.finish(piece.reasoning, piece.text) || reason == StopReason::kStopId;
  reason_ = stopped ? FinishReason::kStop : FinishReason::kLength;
  return {};
}

}  // namespace kakeya::server
