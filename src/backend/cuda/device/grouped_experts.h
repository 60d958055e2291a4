// Experts of many rows: pairs of a row and a rank are put in order of their experts, so that up to
// eight rows share a reading of an expert's weights. Each product has the bits that it has alone.
#pragma once

#include "backend/cuda/device/rows.h"

namespace kakeya::cuda::device {

inline constexpr int kGroupingThreads = 256;

// Counts the words in shared memory, from the first one to number `count`, which are below each of
// some limits. Those that fill up sixteen are counted too.
template <int kLimits>
KAKEYA_DEVICE void count_below(const dev::Shared<std::uint32_t>& words,
                               int count,
                               const std::uint32_t (&limits)[kLimits],
                               int (&below)[kLimits]) {
  constexpr int kUnits = 4;
  KAKEYA_NO_UNROLL
  for (int i = 0; i < count; i += kUnits * kUnitWords) {
    FourWords units[kUnits];
    KAKEYA_UNROLL
    for (int u = 0; u < kUnits; ++u) units[u] = words.load_as<FourWords>(i + u * kUnitWords);
    KAKEYA_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      KAKEYA_UNROLL
      for (int k = 0; k < kUnitWords; ++k) {
        KAKEYA_UNROLL
        for (int l = 0; l < kLimits; ++l) below[l] += units[u].at[k] < limits[l] ? 1 : 0;
      }
    }
  }
}

// For no more pairs than threads, of which each has one: few rows wait for nothing but this. One
// block.
KAKEYA_DEVICE void group_experts(const GroupExpertsParams& p) {
  constexpr std::uint32_t kNone = ~0U;
  const dev::Shared<std::uint32_t> keys(0);
  const dev::Shared<std::uint32_t> heads(kGroupingThreads);  // the experts of tiles' first pairs
  const dev::Global<ExpertTile> tiles(p.groups.tiles);
  const auto pairs = static_cast<int>(p.pairs);
  const int pair = dev::thread();
  const bool is_pair = pair < pairs;
  const std::int32_t expert = is_pair ? dev::Global<const std::int32_t>(p.experts).load(pair) : 0;
  const std::uint32_t base = static_cast<std::uint32_t>(expert) * kGroupingThreads;
  keys.store(pair, is_pair ? base + static_cast<std::uint32_t>(pair) : kNone);
  dev::sync_block();
  int places[3] = {};  // of the pair, and where its expert's begin and end
  count_below(keys, pairs, {base + static_cast<std::uint32_t>(pair), base, base + kGroupingThreads},
              places);
  const int in_expert = places[0] - places[1];
  const int of_tile = static_cast<int>(p.tile_pairs);
  const bool is_head = is_pair && in_expert % of_tile == 0;
  heads.store(pair, is_head ? static_cast<std::uint32_t>(expert) : kNone);
  dev::sync_block();
  int before[2] = {};  // tiles of experts before this one, and all
  count_below(heads, pairs, {static_cast<std::uint32_t>(expert), kNone}, before);
  if (is_pair) dev::Global<std::int32_t>(p.groups.order).store(places[0], pair);
  if (is_head) {
    const int left = places[2] - places[0];
    const int count = left < of_tile ? left : of_tile;
    tiles.store(before[0] + in_expert / of_tile, {expert, places[0], count, before[1]});
  }
  for (std::int64_t i = before[1] + pair; i < p.num_tiles; i += kGroupingThreads) {
    tiles.store(i, {0, 0, 0, 0});
  }
}

// Number `i` of a tile's pairs.
KAKEYA_DEVICE std::int64_t pair_of(const ExpertGroups& groups, const ExpertTile& tile, int i) {
  return dev::Global<const std::int32_t>(groups.order).load(tile.first + i);
}
KAKEYA_DEVICE ExpertTile own_tile(const ExpertGroups& groups) {
  return dev::Global<const ExpertTile>(groups.tiles).load(dev::block_y());
}

// Grid: F / kProductWarps, tiles.
KAKEYA_DEVICE void grouped_expert_hidden(const ExpertHiddenParams& p) {
  const ExpertTile tile = own_tile(p.groups);
  const std::int64_t n = product_warp();
  if (tile.count == 0 || n >= p.gate.rows) return;
  const WeightRow rows[2] = {{&p.gate, tile.expert * p.gate.rows + n},
                             {&p.up, tile.expert * p.up.rows + n}};
  float own[2];
  products<kGroupedRows>(p.rows, TileRows(tile, p.groups.order, p.top_k), rows, own);
  if (dev::lane() >= tile.count) return;
  const std::int64_t pair = pair_of(p.groups, tile, dev::lane());
  dev::Global<float>(p.hidden).store(pair * p.gate.rows + n, gated(p.silu, own[0], own[1]));
}

// Grid: D / kProductWarps / kWarpOutputs, tiles.
KAKEYA_DEVICE void grouped_expert_output(const ExpertOutputParams& p) {
  const ExpertTile tile = own_tile(p.groups);
  const std::int64_t n = product_warp() * kWarpOutputs;
  if (tile.count == 0 || n >= p.down.rows) return;
  WeightRow rows[kWarpOutputs];
  KAKEYA_UNROLL
  for (int o = 0; o < kWarpOutputs; ++o) {
    const std::int64_t bounded = n + o < p.down.rows ? n + o : p.down.rows - 1;
    rows[o] = {&p.down, tile.expert * p.down.rows + bounded};
  }
  float own[kWarpOutputs];
  products<kGroupedRows>(p.rows, TileRows(tile, p.groups.order, 1), rows, own);
  if (dev::lane() >= tile.count) return;
  const std::int64_t pair = pair_of(p.groups, tile, dev::lane());
  const dev::Global<float> out(p.ranks);
  KAKEYA_UNROLL
  for (int o = 0; o < kWarpOutputs; ++o) {
    if (n + o < p.down.rows) out.store(pair * p.down.rows + n + o, own[o]);
  }
}

// Adds the ranks of each row up, as expert_output() does. Grid: D / kElementThreads, rows.
KAKEYA_DEVICE void weigh_experts(const ExpertOutputParams& p) {
  const std::int64_t n = own_element();
  if (n >= p.down.rows) return;
  const dev::Global<const float> ranks(p.ranks);
  const auto load = [&](int rank) {
    return ranks.load((dev::block_y() * p.top_k + rank) * p.down.rows + n);
  };
  dev::Global<float>(p.out).store(dev::block_y() * p.down.rows + n,
                                  weighed_ranks(p, dev::block_y(), load));
}

}  // namespace kakeya::cuda::device
