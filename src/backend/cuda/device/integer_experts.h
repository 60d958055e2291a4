// Experts whose weights are integers (integer_products.h), of pairs of a row and a rank.
#pragma once

#include "backend/cuda/device/grouped_experts.h"
#include "backend/cuda/device/integer_products.h"

namespace kakeya::cuda::device {

// Items are the strips of each pair, of one row.
struct HiddenWork {
  const ExpertHiddenParams& p;

  KAKEYA_DEVICE GatedStrips strips() const { return {p.gate, p.up, p.silu}; }
  KAKEYA_DEVICE Strip strip(int item, int part) const {
    const int pair = item / strips().items();
    const std::int64_t expert = dev::Global<const std::int32_t>(p.experts).load(pair);
    return strips().strip(expert, item % strips().items(), part);
  }
  KAKEYA_DEVICE void store_one(int item, int output, const float (&own)[2]) const {
    strips().store_one(item % strips().items(), output, own, item / strips().items(), p.hidden);
  }
};

// Items are ranks, of the strip of a block.
struct RankWork {
  const ExpertOutputParams& p;

  KAKEYA_DEVICE Strip strip(int rank, int /*part*/) const {
    const std::int64_t expert = dev::Global<const std::int32_t>(p.experts).load(rank);
    return Strip(p.down, expert, dev::block_x());
  }
};

// The words of shared memory of integer_expert_output(): what ranks come to, then each warp's ring
// and its row.
KAKEYA_DEVICE int rank_words(std::int64_t top_k) {
  return static_cast<int>(top_k) * kStripOutputs;
}
KAKEYA_DEVICE int output_words(const StripPlan& plan, std::int64_t top_k, int warps) {
  return rank_words(top_k) +
         warps * (ring_words(plan) + StripRows<1>(0, plan.chunk_steps, plan.has_halves).words());
}

// For one row: warps take ranks, which are then weighed and added up as expert_output() does. Grid:
// strips.
KAKEYA_DEVICE void integer_expert_output(const ExpertOutputParams& p) {
  const int top_k = static_cast<int>(p.top_k);
  const int steps = static_cast<int>(num_steps(p.rows.width));
  const int own_words = output_words(p.plan, 0, 1);
  const int ring = rank_words(top_k) + dev::warp() * own_words;
  const RankWork work = {p};
  StripFeed<1, RankWork> feed(work, p.plan, {dev::warp(), block_warps(), top_k}, steps, ring);
  const StripRows<1> rows(ring + ring_words(p.plan), p.plan.chunk_steps, p.plan.has_halves);
  const dev::Shared<float> shared(0);
  KAKEYA_NO_UNROLL
  for (int rank = dev::warp(); rank < top_k; rank += block_warps()) {
    StripSums<1> sums[1] = {};
    KAKEYA_NO_UNROLL
    for (int begin = 0; begin < steps; begin += p.plan.chunk_steps) {
      const int end = begin + p.plan.chunk_steps < steps ? begin + p.plan.chunk_steps : steps;
      rows.bring<true>(p.rows, TileRows(p.rows, rank), begin, end - begin, dev::lane(), dev::kWarp);
      dev::sync_warp();
      feed.add(work.strip(rank, 0), begin, end, rows, sums[0]);
    }
    store_sums(
        sums, 1, kStripOutputs, [](const float(&own)[1]) { return own[0]; },
        [&](int /*row*/, int output, float value) {
          shared.store(rank * kStripOutputs + output, value);
        });
  }
  dev::sync_block();
  const std::int64_t n = dev::block_x() * kStripOutputs + dev::thread();
  if (dev::thread() >= kStripOutputs || n >= p.down.rows) return;
  const auto load = [&](int rank) { return shared.load(rank * kStripOutputs + dev::thread()); };
  dev::Global<float>(p.out).store(n, weighed_ranks(p, 0, load));
}

// Items are the strips of the expert of a tile.
struct GroupedHiddenWork {
  const ExpertHiddenParams& p;
  const ExpertTile& tile;

  KAKEYA_DEVICE GatedStrips strips() const { return {p.gate, p.up, p.silu}; }
  KAKEYA_DEVICE int items() const { return strips().items(); }
  KAKEYA_DEVICE Strip strip(int item, int part) const {
    return strips().strip(tile.expert, item, part);
  }
  KAKEYA_DEVICE void store(int item, const StripSums<kGroupedRows> (&sums)[2]) const {
    strips().store(item, sums, tile.count, p.hidden,
                   [&](int row) { return pair_of(p.groups, tile, row); });
  }
};

// Grid: blocks of the plan, tiles.
KAKEYA_DEVICE void grouped_integer_hidden(const ExpertHiddenParams& p) {
  const ExpertTile tile = own_tile(p.groups);
  if (tile.count == 0) return;
  multiply_strips<kGroupedRows, 2>(p.rows, TileRows(tile, p.groups.order, p.top_k), p.plan,
                                   static_cast<int>(dev::block_x()), GroupedHiddenWork{p, tile});
}

struct GroupedOutputWork {
  const ExpertOutputParams& p;
  const ExpertTile& tile;

  KAKEYA_DEVICE int items() const { return static_cast<int>(num_strips(p.down.rows)); }
  KAKEYA_DEVICE Strip strip(int item, int /*part*/) const {
    return Strip(p.down, tile.expert, item);
  }
  KAKEYA_DEVICE void store(int item, const StripSums<kGroupedRows> (&sums)[1]) const {
    const dev::Global<float> out(p.ranks);
    store_sums(
        sums, tile.count, strip_outputs(p.down.rows, item),
        [](const float(&own)[1]) { return own[0]; },
        [&](int row, int output, float value) {
          out.store(pair_of(p.groups, tile, row) * p.down.rows + item * kStripOutputs + output,
                    value);
        });
  }
};

// Grid: blocks of the plan, tiles.
KAKEYA_DEVICE void grouped_integer_output(const ExpertOutputParams& p) {
  const ExpertTile tile = own_tile(p.groups);
  if (tile.count == 0) return;
  multiply_strips<kGroupedRows, 1>(p.rows, TileRows(tile, p.groups.order, 1), p.plan,
                                   static_cast<int>(dev::block_x()), GroupedOutputWork{p, tile});
}

}  // namespace kakeya::cuda::device
