#include "backend/executor.h"

#include <algorithm>

#include "base/check.h"

namespace kakeya {

namespace {

// Codes a vector of each KV head [K * E].
void store_code(const float* from,
                const KvRows& rows,
                const CalibratedCode* codes,
                Position position) {
  std::byte* to = rows.row(rows.values, rows.slot(position)).address();
  for (std::int64_t head = 0; head < rows.num_kv_heads; ++head) {
    codes[head].encode(from + head * rows.head_dim, to + head * rows.code_bytes);
  }
}

// Bytes of a position that is restored or coded.
std::uint64_t evicted_bytes(const KvLayer& layer) {
  const CodedRows& coded = layer.coded;
  if (!layer.is_coded) return static_cast<std::uint64_t>(2 * layer.restored.codes.slot_bytes());
  const std::int64_t values = coded.value_codes == nullptr ? 0 : coded.values.slot_bytes();
  return static_cast<std::uint64_t>(coded.keys.slot_bytes() + values);
}

}  // namespace

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

void Executor::store_codes(ConstRows /*keys*/, ConstRows /*values*/, std::int64_t /*layer*/) {
  KAKEYA_CHECK(false && "the backend does not read codes");
}

void Executor::choose(std::span<SequenceChoice> choices, HostCopies& copies) {
  for (SequenceChoice& choice : choices) choose_on_host(choice, copies.download(choice.logits));
}

void Executor::choose_drafts(std::span<BlockChoice> choices, HostCopies& copies) {
  for (BlockChoice& choice : choices) choose_on_host(choice, copies.download(choice.logits));
}

void Executor::list_largest(Rows logits,
                            TokenId never,
                            HostCopies& copies,
                            std::span<TokenLogit> out) {
  const HostRows rows = copies.download(logits);
  const std::size_t count = out.size() / static_cast<std::size_t>(logits.count);
  for (std::int64_t t = 0; t < logits.count; ++t) {
    list_largest_of(rows.row(t), never, out.subspan(static_cast<std::size_t>(t) * count, count));
  }
}

void store_coded_row(const CodedRows& coded,
                     Position position,
                     const float* keys,
                     const float* values) {
  store_code(keys, coded.keys, coded.key_codes, position);
  if (coded.value_codes == nullptr) return;
  store_code(values, coded.values, coded.value_codes, position);
}

std::uint64_t Executor::attention_bytes(const AttentionInput& input) {
  const Position last = input.first_position + input.queries.count - 1;
  const SeenKeys first = input.seen(input.first_position);
  const Position rows =
      std::max(last + 1, input.block_end) - first.begin + first.sink_end - first.sink_begin;
  const KvRows& kv = input.layer.rows;
  const std::int64_t vectors = kv.keys == nullptr ? 1 : 2;
  auto bytes = static_cast<std::uint64_t>(vectors * rows * kv.slot_bytes());
  if (input.layer.is_restored || input.layer.is_coded) {
    // Evicted ones that some query sees, from the first query's window to the last query's rows;
    // none if the window hides them all.
    const SeenKeys end = input.seen(last);
    const Position evicted = std::max(first.sink_begin, kv.sink);
    if (end.sink_begin < end.begin && evicted < end.begin) {
      bytes += static_cast<std::uint64_t>(end.begin - evicted) * evicted_bytes(input.layer);
    }
  }
  return bytes;
}

}  // namespace kakeya
