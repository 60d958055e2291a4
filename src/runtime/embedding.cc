// Engine::embed().
#include "kakeya/embedding.h"

#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/engine_impl.h"
#include "runtime/prompt_reader.h"

namespace kakeya {

SessionOptions EngineImpl::embedding_session(std::int64_t tokens) const {
  return {.context = tokens,
          .max_rows = options_.session.max_rows,
          .kv_full = options_.session.kv_full,
          .kv_sliding = options_.session.kv_sliding,
          .drafting = false};
}

Result<std::vector<float>> EngineImpl::embed(std::span<const TokenId> ids,
                                             const EmbeddingOptions& options) {
  KAKEYA_TRY(check_embedding(std::ssize(ids), max_context(), options));
  KAKEYA_ASSIGN_OR_RETURN(const auto timeline, create_timeline(embedding_session(std::ssize(ids)),
                                                               /*logit_rows=*/1));
  KAKEYA_TRY(timeline->push(ids));
  EmbeddingReader reader(options, config_.hidden_size);
  KAKEYA_TRY(timeline->run_with_rows(
      RowKind::kHidden,
      [&](Position position, std::span<const float> row) { return reader.read(position, row); }));
  return reader.vector();
}

}  // namespace kakeya
