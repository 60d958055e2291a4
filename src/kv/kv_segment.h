// Copies of rows, outside of any cache. Copies of texts with a common beginning form chains: each
// holds the rows behind those of another one, so that rows of a beginning are stored once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kv/kv_cache.h"

namespace kakeya {

// The rows of a cache with this extent, of the positions from `begin` on; those before it are in
// another segment.
struct KvSegment {
  Position begin = 0;
  KvExtent extent;
};

// The bytes that the rows of a segment take.
std::uint64_t segment_bytes(const KvCacheSpec& spec, const KvSegment& segment);

// Copies the rows from the cache, which must have this extent or could be truncated to it, to
// `memory` of segment_bytes().
void save_rows(const KvCache& cache, const KvSegment& segment, std::span<std::byte> memory);

// Copies to the cache, which was prepared for `wanted` (KvCache::prepare_restore), those of the
// rows that `wanted` holds at positions segment.begin to `end`. Returns the bytes copied: over a
// chain, segment_bytes() of {0, wanted} in all.
std::uint64_t load_rows(std::span<const std::byte> memory,
                        const KvSegment& segment,
                        Position end,
                        const KvExtent& wanted,
                        KvCache& cache);

}  // namespace kakeya
