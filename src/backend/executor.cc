#include "backend/executor.h"

#include <algorithm>

#include "base/check.h"

namespace kakeya {

AttentionInput attention_input(const Batch& batch,
                               const Segment& segment,
                               ConstRows queries,
                               const AttentionSettings& settings,
                               std::int64_t layer) {
  const Position first = batch.first_position(segment);
  const KvLayer& kv = segment.layers[static_cast<std::size_t>(layer)];
  KAKEYA_CHECK(kv.rows.keys != nullptr || settings.derivation.k_norm);
  return {.queries = rows_from(queries, segment.first_row, segment.rows),
          .first_position = first,
          .layer = kv,
          .block_end = settings.bidirectional ? first + segment.rows : 0,
          .settings = settings};
}

void Executor::choose(std::span<SequenceChoice> choices, HostCopies& copies) {
  for (SequenceChoice& choice : choices) choose_on_host(choice, copies.download(choice.logits));
}

void Executor::choose_drafts(std::span<BlockChoice> choices, HostCopies& copies) {
  for (BlockChoice& choice : choices) choose_on_host(choice, copies.download(choice.logits));
}

std::uint64_t Executor::attention_bytes(const AttentionInput& input) {
  const Position last = input.first_position + input.queries.count - 1;
  const SeenKeys first = input.seen(input.first_position);
  const Position rows =
      std::max(last + 1, input.block_end) - first.begin + first.sink_end - first.sink_begin;
  const KvRows& kv = input.layer.rows;
  const std::int64_t vectors = kv.keys == nullptr ? 1 : 2;
  auto bytes = static_cast<std::uint64_t>(vectors * rows * kv.slot_bytes());
  if (input.layer.is_restored) {
    // Evicted ones that some query sees, from the first query's window to the last query's rows;
    // none if the window hides them all.
    const SeenKeys end = input.seen(last);
    const Position evicted = std::max(first.sink_begin, kv.sink);
    if (end.sink_begin < end.begin && evicted < end.begin) {
      bytes += static_cast<std::uint64_t>(2 * (end.begin - evicted) *
                                          input.layer.restored.codes.slot_bytes());
    }
  }
  return bytes;
}

}  // namespace kakeya
