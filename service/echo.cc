#include "service/echo.h"

#include <algorithm>
#include <cstddef>

namespace kakeya::service {
namespace {

AnswerPiece echo_of(const Tokenizer& tokenizer,
                    const RawPrompt& prompt,
                    const std::vector<TokenId>& ids) {
  AnswerPiece piece;
  piece.text = prompt.ids.empty() ? prompt.text : tokenizer.decode(ids, false);
  if (!piece.text.empty()) piece.runs.push_back({.bytes = piece.text.size(), .drafted = false});
  const bool begun = prompt.ids.empty() && !ids.empty() && tokenizer.is_special(ids.front()) &&
                     !prompt.text.starts_with(tokenizer.decode({ids.data(), 1}, false));
  for (std::size_t i = begun ? 1 : 0; i < ids.size(); ++i) piece.tokens.push_back({.id = ids[i]});
  return piece;
}

bool has_scores(const Request& request) {
  return request.prompt.size() >= 2;
}

}  // namespace

std::vector<AnswerPiece> echoes_of(const Tokenizer& tokenizer,
                                   const AnswerRequest& wish,
                                   const std::vector<Request>& prepared) {
  std::vector<AnswerPiece> pieces;
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    pieces.push_back(echo_of(tokenizer, wish.prompts[i], prepared[i].prompt));
  }
  return pieces;
}

std::vector<Request> score_requests(const AnswerRequest& wish,
                                    const std::vector<Request>& prepared) {
  std::vector<Request> texts;
  for (const Request& request : prepared) {
    if (!wish.logprobs || !has_scores(request)) continue;
    texts.push_back({.prompt = request.prompt,
                     .score = ScoreOptions{.first = 1, .top_logprobs = wish.top_logprobs},
                     .session = request.session,
                     .priority = request.priority,
                     .client = request.client,
                     .deadline = request.deadline});
  }
  return texts;
}

void add_scores(const std::vector<TextResult>& scored,
                const std::vector<Request>& prepared,
                std::vector<AnswerPiece>& pieces) {
  auto next = scored.begin();
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    if (!has_scores(prepared[i])) continue;
    const std::vector<TokenLogprobs>& scores = (next++)->scores;
    std::vector<GeneratedToken>& tokens = pieces[i].tokens;
    // All of the prompt's tokens but its first one have scores.
    const std::size_t count = std::min(scores.size(), tokens.size());
    for (std::size_t k = 1; k <= count; ++k) {
      tokens[tokens.size() - k].logprobs = scores[scores.size() - k];
    }
  }
}

}  // namespace kakeya::service
