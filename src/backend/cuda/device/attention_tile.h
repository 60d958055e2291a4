// The queries of a block of tensor_attention.h, and where what it shares lies.
#pragma once

#include "backend/cuda/device/attention_parts.h"

namespace kakeya::cuda::device {

inline constexpr int kTileQueries = 16;
inline constexpr int kScoreStride = kChunk + 4;      // words of a query's scores
inline constexpr int kPowerStride = kChunk / 2 + 4;  // words of a query's powers, as bf16
inline constexpr int kPadding = 4;                   // words of a vector: against bank conflicts

inline constexpr int kNarrowHead = 256;  // elements

KAKEYA_DEVICE bool fits_tensor_attention(const CachedRows& rows) {
  return rows.format == RowFormat::kBf16 && rows.head_dim % 32 == 0 && rows.head_dim <= kMaxHeadDim;
}

// Words of shared memory, in parts that begin at multiples of four.
struct TileWords {
  int head_dim;
  bool one_vector;

  KAKEYA_DEVICE int stride() const { return head_dim / 2 + kPadding; }
  // Keys and values have room at once. Else values come where the keys were, or are the keys.
  KAKEYA_DEVICE bool has_room_for_both() const { return !one_vector && head_dim <= kNarrowHead; }
  KAKEYA_DEVICE int rows() const { return kTileQueries * stride(); }
  KAKEYA_DEVICE int values() const {
    return rows() + (has_room_for_both() ? kChunk : 0) * stride();
  }
  KAKEYA_DEVICE int scores() const { return values() + kChunk * stride(); }
  KAKEYA_DEVICE int powers() const { return scores() + kTileQueries * kScoreStride; }
  // How a chunk joins its span, of each query; how that joins all; the sum of all powers.
  KAKEYA_DEVICE int factors() const { return powers() + kTileQueries * kPowerStride; }
  // Those of keys, then of values, two words each.
  KAKEYA_DEVICE int addresses() const { return factors() + 5 * kTileQueries; }
  // For one vector: weights, then frequencies, in the order of fragments.
  KAKEYA_DEVICE int norms() const { return addresses() + 4 * kChunk; }
  KAKEYA_DEVICE int frequencies() const { return norms() + (one_vector ? head_dim : 0); }
  KAKEYA_DEVICE int all() const { return frequencies() + (one_vector ? head_dim / 2 : 0); }
};

// Where number `i` of the order of fragments lies: lane l of four has 2 l, 2 l + 1 and those eight
// behind them of each sixteen.
KAKEYA_DEVICE int fragment_element(int i) {
  return i / 16 * 16 + i % 16 / 4 * 2 + i % 4 / 2 * 8 + i % 2;
}

// The 16 queries of a block.
struct QueryTile {
  const AttentionParams& p;
  RowPositions<int> at;
  int kv_head;
  int group;    // heads of the kv head
  int first;    // of the tile, of the queries of the kv head
  int queries;  // of the kv head

  KAKEYA_DEVICE bool has(int i) const { return first + i < queries; }
  KAKEYA_DEVICE int row(int i) const { return (first + i) / group; }
  KAKEYA_DEVICE int head(int i) const { return kv_head * group + (first + i) % group; }
  // The number of the query in all rows.
  KAKEYA_DEVICE std::int64_t vector(int i) const {
    return row(i) * static_cast<int>(p.num_heads) + head(i);
  }
  // Nothing, where there is no query.
  KAKEYA_DEVICE SeenBy<int> seen(int i) const {
    SeenBy<int> seen = seen_by(p, at, at.first + row(i));
    if (!has(i)) seen.end = seen.sink_end = 0;
    return seen;
  }
  KAKEYA_DEVICE SeenBy<int> seen_by_some() const {
    const int last = first + kTileQueries < queries ? kTileQueries - 1 : queries - 1 - first;
    return seen_by_all(p, at, row(0), row(last));
  }
};

// Block (kv head, tile * parts + part), in the second of these numbers.
KAKEYA_DEVICE QueryTile query_tile(const AttentionParams& p,
                                   const RowPositions<int>& at,
                                   int parts,
                                   int block) {
  const int group = static_cast<int>(p.num_heads) / static_cast<int>(p.cache.num_kv_heads);
  const int tile = block / parts;
  return {p,
          at,
          static_cast<int>(dev::block_x()),
          group,
          tile * kTileQueries,
          static_cast<int>(p.rows) * group};
}

}  // namespace kakeya::cuda::device
