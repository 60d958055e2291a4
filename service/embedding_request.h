// Requests for embeddings, as every wire reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/engine.h"
#include "service/answer_request.h"
#include "service/refusal.h"

namespace kakeya::service {

// The limits of a request.
inline constexpr std::size_t kMostEmbeddings = 2048;
inline constexpr std::int64_t kMostEmbeddingTokens = 300'000;

struct EmbeddingRequest {
  std::string model;
  std::vector<RawPrompt> inputs;  // at most kMostEmbeddings
  EmbeddingOptions options = {};
  int priority = 0;  // lower ones start first
};

// The texts of a request as tokens.
struct EmbeddingTexts {
  std::vector<std::vector<TokenId>> ids;
  std::int64_t tokens = 0;  // of all
};

// Encodes all texts before the first one is run. Errors: as encode_text(); kInvalidArgument for
// more than kMostEmbeddingTokens.
Outcome<EmbeddingTexts> encode_texts(const Engine& engine, const EmbeddingRequest& request);

}  // namespace kakeya::service
