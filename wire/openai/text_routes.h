// Routes that generate nothing. Each reads a body and gives the answer's JSON, or says what is
// wrong with the body; that of embeddings in two steps, for the scheduler runs the texts in
// between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/engine.h"
#include "service/refusal.h"
#include "wire/http/serve_options.h"

namespace kakeya::server {

// The limits of a request for embeddings.
inline constexpr std::size_t kMostEmbeddings = 2048;
inline constexpr std::int64_t kMostEmbeddingTokens = 300'000;
// The limit of /tokenize in tokens, whatever the context.
inline constexpr std::int64_t kMostTokenized = 1 << 20;

// POST /tokenize: {"content" or "prompt": TEXT, "add_special": true} or {"messages": [...]} to
// {"tokens": [...], "count", "max_model_len"}; with "with_pieces" each token is {"id", "piece"}.
Outcome<std::string> tokenize(const Engine& engine, std::string_view body);

// POST /detokenize: {"tokens": [...]} to {"content": TEXT, "prompt": TEXT}, special tokens
// included.
Outcome<std::string> detokenize(const Engine& engine, std::string_view body);

// POST /apply-template: {"messages": [...], "tools": [...]} to {"prompt": TEXT}.
Outcome<std::string> apply_template_route(const Engine& engine, std::string_view body);

// POST /v1/embeddings: {"model", "input", "encoding_format", "dimensions", "pooling", "normalize"}.
// The last token's vector,
// or with "pooling": "mean" that of all; of length 1 both.
struct EmbeddingWish {
  std::vector<std::vector<TokenId>> texts;
  std::int64_t tokens = 0;  // of all
  EmbeddingOptions options = {};
  bool base64 = false;
  int priority = 0;  // lower ones start first
};
Outcome<EmbeddingWish> read_embeddings(const Engine& engine,
                                       std::string_view model_name,
                                       std::string_view body);
// `vectors`: one for each text, in their order.
std::string embeddings_json(const EmbeddingWish& wish,
                            std::string_view model_name,
                            const std::vector<std::vector<float>>& vectors);

// GET /props: what is served, and how.
std::string props_json(const Engine& engine, const ServeOptions& options);

// GET /tokenizer_info, as vLLM has it: the tokens that begin and end texts, and how many fit.
Outcome<std::string> tokenizer_json(const Engine& engine);

// Fails if a request means another model than the one that is served; an empty name means the
// served one.
Outcome<void> check_model(std::string_view served, std::string_view asked);

}  // namespace kakeya::server
