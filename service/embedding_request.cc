#include "service/embedding_request.h"

#include <fmt/format.h>

#include <utility>

namespace kakeya::service {

Outcome<EmbeddingTexts> encode_texts(const Engine& engine, const EmbeddingRequest& request) {
  EmbeddingTexts texts;
  for (const RawPrompt& input : request.inputs) {
    auto ids = input.ids.empty()
                   ? encode_text(engine, input.text, true, engine.max_context(), "input")
                   : Outcome<std::vector<TokenId>>(input.ids);
    if (!ids) return tl::unexpected(std::move(ids).error());
    texts.tokens += std::ssize(*ids);
    texts.ids.push_back(std::move(*ids));
  }
  if (texts.tokens > kMostEmbeddingTokens) {
    return tl::unexpected(
        Refusal{.message = fmt::format("input: expected at most {} tokens, got {}",
                                       kMostEmbeddingTokens, texts.tokens),
                .parameter = "input",
                .code = "context_length_exceeded"});
  }
  return texts;
}

}  // namespace kakeya::service
