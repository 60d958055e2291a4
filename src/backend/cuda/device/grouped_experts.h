// Experts of many rows: pairs of a row and a rank are put in order of their experts, so that up to
// eight rows share a reading of an expert's weights. Each product has the bits that it has alone.
#pragma once

#include "backend/cuda/device/products.h"
#include "backend/cuda/device/rows.h"

namespace kakeya::cuda::device {

inline constexpr int kGroupingThreads = 256;

// One block, with a shared word an expert.
KAKEYA_DEVICE void group_experts(const GroupExpertsParams& p) {
  const dev::Global<const std::int32_t> experts(p.experts);
  const dev::Global<std::int32_t> order(p.groups.order);
  const dev::Global<ExpertTile> tiles(p.groups.tiles);
  const dev::Shared<int> counts(0);
  const auto num_experts = static_cast<int>(p.num_experts);
  const auto pairs = static_cast<int>(p.pairs);
  for (int e = dev::thread(); e < num_experts; e += kGroupingThreads) {
    int count = 0;
    for (int i = 0; i < pairs; ++i) count += experts.load(i) == e ? 1 : 0;
    counts.store(e, count);
  }
  dev::sync_block();
  for (int e = dev::thread(); e < num_experts; e += kGroupingThreads) {
    int begin = 0;
    int tile = 0;
    for (int other = 0; other < e; ++other) {
      const int count = counts.load(other);
      begin += count;
      tile += (count + kGroupedRows - 1) / kGroupedRows;
    }
    const int end = begin + counts.load(e);
    for (int first = begin; first < end; first += kGroupedRows, ++tile) {
      const int left = end - first;
      const ExpertTile own = {e, first, left < kGroupedRows ? left : kGroupedRows, 0};
      tiles.store(tile, own);
    }
    int at = begin;
    for (int i = 0; i < pairs; ++i) {
      if (experts.load(i) == e) order.store(at++, i);
    }
    if (e < num_experts - 1) continue;
    const ExpertTile none = {0, 0, 0, 0};
    for (; tile < p.num_tiles; ++tile) tiles.store(tile, none);
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
