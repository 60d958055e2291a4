// Requests for embeddings, read and answered: the scheduler runs the texts in between.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "service/embedding_request.h"
#include "service/refusal.h"
#include "service/text_runs.h"

namespace kakeya::openai {

// POST /v1/embeddings: {"model", "input", "encoding_format", "dimensions", "pooling", "normalize"}.
// The vector of a text is the last token's or, with "pooling": "mean", that of all; of length 1
// both.
struct EmbeddingWish {
  service::EmbeddingRequest request;
  bool base64 = false;
};
// `hidden_size`: of the model's vectors, the one number of dimensions that there is.
service::Outcome<EmbeddingWish> read_embeddings(std::int64_t hidden_size, std::string_view body);
// `results`: one for each text, in their order; `tokens`: of all texts.
std::string embeddings_json(const EmbeddingWish& wish,
                            std::string_view model_name,
                            std::int64_t tokens,
                            const std::vector<service::TextResult>& results);

}  // namespace kakeya::openai
