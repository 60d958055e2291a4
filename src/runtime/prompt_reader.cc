#include "runtime/prompt_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "sampling/logprobs.h"
#include "sampling/sampler.h"

namespace kakeya {

Status check_embedding(std::int64_t tokens,
                       std::int64_t max_context,
                       const EmbeddingOptions& options) {
  if (tokens < 1 || tokens > max_context) {
    return invalid_argument("a text to embed must have 1 to {} tokens for this model but has {}",
                            max_context, tokens);
  }
  if (options.pooling <= Pooling::kMean) return {};
  return invalid_argument("EmbeddingOptions::pooling is no way to pool: {}",
                          static_cast<int>(options.pooling));
}

Status EmbeddingReader::read(Position /*position*/, std::span<const float> row) {
  const bool last = options_.pooling == Pooling::kLast;
  if (last) std::fill(sums_.begin(), sums_.end(), 0.0);
  for (std::size_t i = 0; i < row.size(); ++i) sums_[i] += row[i];
  rows_ = last ? 1 : rows_ + 1;
  return {};
}

Result<std::vector<float>> EmbeddingReader::vector() const {
  double squares = 0.0;
  for (const double sum : sums_) squares += sum * sum;
  const double length = options_.normalize ? std::sqrt(squares) : static_cast<double>(rows_);
  std::vector<float> result(sums_.size());
  if (length == 0.0) return result;
  std::transform(sums_.begin(), sums_.end(), result.begin(),
                 [&](double sum) { return static_cast<float>(sum / length); });
  if (std::all_of(result.begin(), result.end(), [](float x) { return std::isfinite(x); })) {
    return result;
  }
  return data_loss("the embedding is not finite: weights or activations overflow in this model");
}

Status EmbeddingReader::finish(RequestResult& result) {
  KAKEYA_ASSIGN_OR_RETURN(result.embedding, vector());
  return {};
}

Status check_score(std::int64_t tokens, const ScoreOptions& options) {
  KAKEYA_TRY(check_top_logprobs("ScoreOptions::top_logprobs", options.top_logprobs));
  if (tokens < 2) {
    return invalid_argument("a text to score must have 2 tokens or more but has {}", tokens);
  }
  if (options.first >= 1 && options.first < tokens) return {};
  return invalid_argument("ScoreOptions::first must be 1 to {}, for a text of {} tokens, but is {}",
                          tokens - 1, tokens, options.first);
}

ScoreReader::ScoreReader(std::span<const TokenId> tokens, const ScoreOptions& options)
    : tokens_(tokens), options_(options) {
  scores_.reserve(tokens.size() - static_cast<std::size_t>(options.first));
}

Status ScoreReader::read(Position position, std::span<const float> row) {
  KAKEYA_TRY(check_logits(row, position + 1));
  const auto next = static_cast<std::size_t>(position + 1);
  if (next == tokens_.size()) return {};
  scores_.push_back(token_logprobs(row, tokens_[next], options_.top_logprobs));
  return {};
}

Status ScoreReader::finish(RequestResult& result) {
  result.scores = std::move(scores_);
  return {};
}

}  // namespace kakeya
