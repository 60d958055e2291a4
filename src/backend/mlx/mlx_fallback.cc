// Operations that the reference's loops do for this backend, in the pages of its memory: rows that
// are restored with a share of their own, which only comparisons ask for.
#include <algorithm>

#include "backend/mlx/mlx_executor.h"

namespace kakeya::mlx {
namespace {

std::uint64_t bytes_in(const ConstRows& x) {
  return static_cast<std::uint64_t>(x.count * x.width) * sizeof(float);
}

// Calls `use` with each block of keys and of values of `kv` that there is.
template <typename Use>
void for_each_block(const KvRows& kv, const Use& use) {
  const std::int64_t blocks =
      kv.block_slots == 0 ? 0 : (kv.capacity + kv.block_slots - 1) / kv.block_slots;
  const auto bytes = static_cast<std::uint64_t>(kv.block_slots * kv.slot_bytes());
  for (std::int64_t block = 0; block < blocks; ++block) {
    if (kv.keys != nullptr && kv.keys[block]) use(kv.keys[block].address(), bytes);
    if (kv.values[block]) use(kv.values[block].address(), bytes);
  }
}

}  // namespace

template <typename Operation>
void MlxExecutor::fall_back(std::string_view name,
                            std::span<const Segment> segments,
                            const Operation& operation) {
  ++space_.counters().fallbacks[std::string(name)];
  const std::uint64_t before = reference_.bytes_read();
  Batch some = batch();
  some.segments = segments;
  reference_.begin(some);
  operation();
  reference_.begin(batch());
  count_bytes(reference_.bytes_read() - before);
}

void MlxExecutor::kv_to_pages(std::int64_t layer, std::span<const Segment> segments) {
  const auto use = [&](std::byte* block, std::uint64_t bytes) { space_.to_pages(block, bytes); };
  for (const Segment& segment : segments) {
    const KvLayer& kv = segment.layers[static_cast<std::size_t>(layer)];
    for_each_block(kv.rows, use);
    if (!kv.is_restored && kv.restored.blend == 0.0F) continue;
    for_each_block(kv.restored.codes, use);
    if (kv.restored.blend != 0.0F) for_each_block(kv.restored.own, use);
    const auto decoder = static_cast<std::uint64_t>(kv.restored.codes.head_dim *
                                                    kv.rows.num_kv_heads * kv.rows.head_dim) *
                         4;
    if (kv.restored.key_decoder) space_.to_pages(kv.restored.key_decoder.address(), decoder);
    if (kv.restored.value_decoder) space_.to_pages(kv.restored.value_decoder.address(), decoder);
  }
}

void MlxExecutor::kv_from_pages(std::int64_t layer, std::span<const Segment> segments) {
  const auto use = [&](std::byte* block, std::uint64_t bytes) { space_.from_pages(block, bytes); };
  for (const Segment& segment : segments) {
    const KvLayer& kv = segment.layers[static_cast<std::size_t>(layer)];
    for_each_block(kv.rows, use);
    if (kv.restored.blend != 0.0F) for_each_block(kv.restored.own, use);
  }
}

std::vector<Segment> MlxExecutor::referred(std::int64_t layer) const {
  std::vector<Segment> segments;
  for (const Segment& segment : batch().segments) {
    const KvLayer& kv = segment.layers[static_cast<std::size_t>(layer)];
    if (kv.is_restored && kv.restored.blend != 0.0F) segments.push_back(segment);
  }
  return segments;
}

void MlxExecutor::store_own_kv(ConstRows keys, ConstRows values, std::int64_t layer) {
  const auto guard = start();
  const bool any = std::ranges::any_of(batch().segments, [&](const Segment& segment) {
    return segment.layers[static_cast<std::size_t>(layer)].restored.blend != 0.0F;
  });
  if (!any) return;
  fall_back("store_own_kv", batch().segments, [&] {
    space_.to_pages(values.data.address(), bytes_in(values));
    space_.to_pages(keys.data.address(), bytes_in(keys));
    kv_to_pages(layer, batch().segments);
    kv_from_pages(layer, batch().segments);
    reference_.store_own_kv(keys, values, layer);
  });
}

void MlxExecutor::refer_attention(std::span<const Segment> segments,
                                  ConstRows queries,
                                  const AttentionSettings& settings,
                                  std::int64_t layer,
                                  Rows out) {
  fall_back("attention", segments, [&] {
    space_.to_pages(queries.data.address(), bytes_in(queries));
    space_.from_pages(out.data.address(), bytes_in(out));
    const KeyDerivation& derivation = settings.derivation;
    const std::int64_t head_dim =
        segments.front().layers[static_cast<std::size_t>(layer)].rows.head_dim;
    if (derivation.k_norm) {
      space_.to_pages(derivation.k_norm.address(),
                      static_cast<std::uint64_t>(head_dim) * sizeof(float));
    }
    if (derivation.inverse_frequencies.size > 0) {
      space_.to_pages(
          derivation.inverse_frequencies.data.address(),
          static_cast<std::uint64_t>(derivation.inverse_frequencies.size) * sizeof(float));
    }
    kv_to_pages(layer, segments);
    reference_.attention(queries, settings, layer, out);
  });
}

}  // namespace kakeya::mlx
