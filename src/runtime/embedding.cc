// Engine::embed().
#include "kakeya/embedding.h"

#include <algorithm>
#include <cstddef>
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
  KAKEYA_TRY(timeline->check(ids));
  const std::int64_t chunk = timeline->chunk();
  const std::int64_t width = config_.hidden_size;
  KAKEYA_ASSIGN_OR_RETURN(
      const Buffer rows,
      budget_.allocate(MemoryClass::kActivations,
                       static_cast<std::uint64_t>(chunk * width) * sizeof(float)));
  const std::int64_t final_norm = config_.num_hidden_layers;
  EmbeddingReader reader(options, width);
  std::int64_t count = 0;
  for (std::int64_t begin = 0; begin < std::ssize(ids); begin += count) {
    count = std::min(workspace_->limited_rows(chunk), std::ssize(ids) - begin);
    KAKEYA_TRY(timeline->forward(
        ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        {.logits = {}, .tap_points = {&final_norm, 1}, .taps = {rows.as<float>(), count, width}}));
    for (std::int64_t i = 0; i < count; ++i) {
      KAKEYA_TRY(
          reader.read(begin + i, {rows.as<float>() + i * width, static_cast<std::size_t>(width)}));
    }
  }
  return reader.vector();
}

}  // namespace kakeya
