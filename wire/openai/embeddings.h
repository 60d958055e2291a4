// Requests for embeddings, read and answered: the scheduler runs the texts in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/engine.h"
#include "service/refusal.h"
#include "service/text_runs.h"

namespace kakeya::openai {

// The limits of a request for embeddings.
inline constexpr std::size_t kMostEmbeddings = 2048;
inline constexpr std::int64_t kMostEmbeddingTokens = 300'000;
// POST /v1/embeddings: {"model", "input", "encoding_format", "dimensions", "pooling", "normalize"}.
// The vector of a text is the last token's or, with "pooling": "mean", that of all; of length 1
// both.
struct EmbeddingWish {
  std::vector<std::vector<TokenId>> texts;
  std::int64_t tokens = 0;  // of all
  EmbeddingOptions options = {};
  bool base64 = false;
  int priority = 0;  // lower ones start first
};
service::Outcome<EmbeddingWish> read_embeddings(const Engine& engine,
                                                std::string_view model_name,
                                                std::string_view body);
// `results`: one for each text, in their order.
std::string embeddings_json(const EmbeddingWish& wish,
                            std::string_view model_name,
                            const std::vector<service::TextResult>& results);

}  // namespace kakeya::openai
