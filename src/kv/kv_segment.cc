#include "kv/kv_segment.h"

#include <algorithm>

#include "base/check.h"

namespace kakeya {
namespace {

std::uint64_t count(const KvRun& run) {
  return static_cast<std::uint64_t>(std::max<Position>(0, run.last - run.first));
}

std::array<KvRun, 2> stored_runs(const KvCacheSpec& spec,
                                 const LayerCacheSpec& layer,
                                 const KvSegment& segment) {
  std::array<KvRun, 2> runs = spec.held_runs(layer, segment.extent);
  for (KvRun& run : runs) run.first = std::clamp(segment.begin, run.first, run.last);
  return runs;
}

// Calls visit(layer, keys, run, offset of the run's rows in memory, bytes of a row) for all that a
// segment stores, in the order in which it lies in memory.
template <typename Visit>
void for_each_run(const KvCacheSpec& spec, const KvSegment& segment, const Visit& visit) {
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerCacheSpec& layer = spec.layers[i];
    const auto row_bytes =
        static_cast<std::uint64_t>(layer.position_bytes()) / (layer.one_vector ? 1 : 2);
    for (const bool keys : {true, false}) {
      if (keys && layer.one_vector) continue;
      for (const KvRun& run : stored_runs(spec, layer, segment)) {
        visit(static_cast<std::int64_t>(i), keys, run, offset, row_bytes);
        offset += count(run) * row_bytes;
      }
    }
  }
}

}  // namespace

std::uint64_t segment_bytes(const KvCacheSpec& spec, const KvSegment& segment) {
  std::uint64_t bytes = 0;
  for (const LayerCacheSpec& layer : spec.layers) {
    for (const KvRun& run : stored_runs(spec, layer, segment)) {
      bytes += count(run) * static_cast<std::uint64_t>(layer.position_bytes());
    }
  }
  return bytes;
}

void save_rows(const KvCache& cache, const KvSegment& segment, std::span<std::byte> memory) {
  KAKEYA_CHECK(memory.size() == segment_bytes(cache.spec(), segment));
  std::byte* next = memory.data();
  for_each_run(cache.spec(), segment,
               [&](std::int64_t layer, bool keys, const KvRun& run, std::uint64_t, std::uint64_t) {
                 for (const auto& piece : cache.row_pieces(layer, keys, run)) {
                   cache.space().download(piece.data, {next, piece.size});
                   next += piece.size;
                 }
               });
}

std::uint64_t load_rows(std::span<const std::byte> memory,
                        const KvSegment& segment,
                        Position end,
                        const KvExtent& wanted,
                        KvCache& cache) {
  KAKEYA_CHECK(memory.size() == segment_bytes(cache.spec(), segment));
  std::uint64_t copied = 0;
  for_each_run(cache.spec(), segment,
               [&](std::int64_t layer, bool keys, const KvRun& run, std::uint64_t offset,
                   std::uint64_t row_bytes) {
                 for (const KvRun& held : cache.spec().held_runs(cache.layer(layer), wanted)) {
                   const KvRun both = {std::max(run.first, held.first),
                                       std::min({run.last, held.last, end})};
                   if (count(both) == 0) continue;
                   const std::byte* next =
                       memory.data() + offset + count({run.first, both.first}) * row_bytes;
                   for (const auto& piece : cache.row_pieces(layer, keys, both)) {
                     cache.space().upload({next, piece.size}, piece.data);
                     next += piece.size;
                   }
                   copied += count(both) * row_bytes;
                 }
               });
  return copied;
}

}  // namespace kakeya
