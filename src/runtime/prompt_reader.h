// Readers of the rows of a text where nothing is generated: for an embedding, or for the
// log-probabilities of its tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "decode/row_reader.h"
#include "kakeya/scheduler.h"

namespace kakeya {

class PromptReader : public RowReader {
 public:
  // No row is wanted but as a hidden one.
  static constexpr Position kNever = std::numeric_limits<Position>::max();

  // The first position whose logits it reads; kNever: it reads the hidden rows of all.
  virtual Position logits_from() const = 0;
  // Gives what it has made of all rows. Errors: kDataLoss for numbers that are not finite.
  virtual Status finish(RequestResult& result) = 0;
};

// Errors: kInvalidArgument for a text of no tokens or more than `max_context`, or for options out
// of range.
Status check_embedding(std::int64_t tokens,
                       std::int64_t max_context,
                       const EmbeddingOptions& options);

// Sums are in double and in the order of positions: chunks make no difference.
class EmbeddingReader final : public PromptReader {
 public:
  // Creates a reader of rows [width].
  EmbeddingReader(const EmbeddingOptions& options, std::int64_t width)
      : options_(options), sums_(static_cast<std::size_t>(width)) {}

  Position logits_from() const override { return kNever; }
  Status read(Position position, std::span<const float> row) override;
  Status finish(RequestResult& result) override;
  // Errors: kDataLoss for a vector that is not finite.
  Result<std::vector<float>> vector() const;

 private:
  EmbeddingOptions options_;
  std::vector<double> sums_;
  std::int64_t rows_ = 0;
};

// Errors: kInvalidArgument, naming the option, for a text of so many tokens.
Status check_score(std::int64_t tokens, const ScoreOptions& options);

class ScoreReader final : public PromptReader {
 public:
  // `tokens` are the text's, and must outlive it.
  ScoreReader(std::span<const TokenId> tokens, const ScoreOptions& options);

  Position logits_from() const override { return options_.first - 1; }
  Status read(Position position, std::span<const float> row) override;
  Status finish(RequestResult& result) override;

 private:
  std::span<const TokenId> tokens_;
  ScoreOptions options_;
  std::vector<TokenLogprobs> scores_;
};

}  // namespace kakeya
