// Products of rows with weights whose codes are integers. Integers are exact (integer_terms.h). One
// thread for each output and row adds them up: the order of sums is that of backend.h.
#pragma once

#include "backend/cuda/device/integer_terms.h"

namespace kakeya::cuda::device {

// The sum of output `output` of a tile and row `tile_row`, added up from shared terms.
template <int kRows>
struct IntegerSum {
  int tile_row;
  int output;
  float zero;
  IntegerTerms<kRows> terms;

  // Adds what the first `count` shared runs come to.
  KAKEYA_DEVICE float add(float sum, std::int64_t count) const {
    const int runs = count < terms.runs ? static_cast<int>(count) : terms.runs;
    KAKEYA_NO_UNROLL
    for (int run = 0; run < runs; run += kGroupRuns) {
      sum = terms.layout.halves ? add_group<2>(sum, run, runs) : add_group<1>(sum, run, runs);
    }
    return sum;
  }

 private:
  template <int kHalves>
  KAKEYA_DEVICE float add_group(float sum, int run, int runs) const {
    // All is loaded first: only the sums wait for each other.
    float integers[kGroupRuns][kHalves];
    float scales[kGroupRuns][kHalves];
    float minimums[kGroupRuns][kHalves];
    float offsets[kGroupRuns][kHalves];
    KAKEYA_UNROLL
    for (int r = 0; r < kGroupRuns; ++r) {
      const float step = terms.steps().load((run + r) * kRows + tile_row);
      KAKEYA_UNROLL
      for (int h = 0; h < kHalves; ++h) {
        const int part = (run + r) * kHalves + h;
        const int product = terms.products().load(terms.product_at(part, tile_row, output));
        const float codes = terms.code_sums().load(part * kRows + tile_row);
        // Exact, both: integers below 2^24.
        integers[r][h] = static_cast<float>(product) - zero * codes;
        scales[r][h] = terms.scales().load(part * kIntegerOutputs + output) * step;
        if (!terms.layout.has_minimum) continue;
        minimums[r][h] = terms.minimums().load(part * kIntegerOutputs + output);
        offsets[r][h] = step * codes;
      }
    }
    KAKEYA_UNROLL
    for (int r = 0; r < kGroupRuns; ++r) {
      if (run + r >= runs) break;
      KAKEYA_UNROLL
      for (int h = 0; h < kHalves; ++h) {
        sum = dev::fma(integers[r][h], scales[r][h], sum);
        if (terms.layout.has_minimum) sum = dev::fma(minimums[r][h], offsets[r][h], sum);
      }
    }
    return sum;
  }
};

// Groups of rows of so many columns that are shared before they are added up.
KAKEYA_DEVICE int shared_groups(std::int64_t columns, int most) {
  return num_groups(columns) < most ? static_cast<int>(num_groups(columns)) : most;
}
KAKEYA_DEVICE int warp_groups(std::int64_t columns) {
  return shared_groups(columns, 6);
}
// The shared groups of each tile of a block. Scales of 16 columns have twice as many parts: of half
// as many groups. So a block shares at most 56 KiB.
template <int kRows, int kTiles>
KAKEYA_DEVICE int block_groups(std::int64_t columns,
                               const GroupLayout& first,
                               const GroupLayout& second) {
  constexpr int kMost = kIntegerWarps / kTiles * (kRows == 1 ? 6 : 2);
  return shared_groups(columns, first.halves || second.halves ? kMost / 2 : kMost);
}

// By a block: sums of kRows rows with one or two tiles, whose groups warps take in turn. Thread t
// has that of output t % 16 with row t / 16 % kRows of tile t / 16 / kRows. Behind it nobody reads
// what was shared.
template <int kRows, int kTiles>
KAKEYA_DEVICE float integer_sums(const ProductRows& in,
                                 const TileRows& rows,
                                 const IntegerTile& first,
                                 const IntegerTile& second) {
  const int block = block_groups<kRows, kTiles>(in.width, first.layout, second.layout);
  const IntegerTerms<kRows> first_terms(0, first.layout, block);
  const IntegerTerms<kRows> second_terms(first_terms.words(), second.layout, block);
  const bool shares_first = dev::warp() % kTiles == 0;
  const IntegerTile shared_tile(shares_first, first, second);
  const IntegerTerms<kRows> shared_terms(shares_first, first_terms, second_terms);
  const IntegerWarp<kRows> own(in, rows, shared_tile);
  const bool adds_first = dev::thread() < kIntegerOutputs * kRows;
  const IntegerSum<kRows> added = {dev::thread() / kIntegerOutputs % kRows,
                                   dev::thread() % kIntegerOutputs,
                                   adds_first ? first.zero : second.zero,
                                   IntegerTerms<kRows>(adds_first, first_terms, second_terms)};
  const bool adds = dev::thread() < kTiles * kIntegerOutputs * kRows && added.tile_row < rows.count;
  float sum = 0.0F;
  KAKEYA_NO_UNROLL
  for (int begin = 0; begin < own.groups; begin += block) {
    const int end = begin + block < own.groups ? begin + block : own.groups;
    share_groups(own, {begin, end, dev::warp() / kTiles, kIntegerWarps / kTiles}, shared_terms);
    dev::sync_block();
    if (adds) sum = added.add(sum, in.width / 32 - begin * kGroupRuns);
    dev::sync_block();
  }
  return sum;
}

template <int kRows>
KAKEYA_DEVICE void integer_product_tile(const ProductParams& p) {
  const BlockTile at(p.rows.count, kRows);
  const std::int64_t output = at.output_tile * kIntegerOutputs;
  const IntegerTile tile(p.weight, 0, output);
  const float sum =
      integer_sums<kRows, 1>(p.rows, TileRows(p.rows, at.row_tile * kRows), tile, tile);
  const std::int64_t n = output + dev::thread() % kIntegerOutputs;
  const int tile_row = dev::thread() / kIntegerOutputs;
  const std::int64_t row = at.row_tile * kRows + tile_row;
  if (tile_row >= kRows || row >= p.rows.count || n >= p.weight.rows) return;
  dev::Global<float>(p.out).store(row * p.weight.rows + n, sum);
}

// Grid: outputs / kIntegerOutputs times rows / kIntegerRows.
KAKEYA_DEVICE void integer_product(const ProductParams& p) {
  integer_product_tile<kIntegerRows>(p);
}

// The product with one row. Grid: outputs / kIntegerOutputs.
KAKEYA_DEVICE void integer_row_product(const ProductParams& p) {
  integer_product_tile<1>(p);
}

// The sums of gates and of the outputs that they gate, combined in `out`; true in the threads that
// have an output.
template <int kRows>
KAKEYA_DEVICE bool gated_sum(const ProductRows& in,
                             const TileRows& rows,
                             const IntegerTile& gate,
                             const IntegerTile& up,
                             bool silu,
                             float& out) {
  const float sum = integer_sums<kRows, 2>(in, rows, gate, up);
  constexpr int kSums = kRows * kIntegerOutputs;
  const dev::Shared<float> others(0);
  if (dev::thread() >= kSums && dev::thread() < 2 * kSums) {
    others.store(dev::thread() - kSums, sum);
  }
  dev::sync_block();
  if (dev::thread() >= kSums) return false;
  out = gated(silu, sum, others.load(dev::thread()));
  return true;
}

template <int kRows>
KAKEYA_DEVICE void gated_integer_tile(const GatedProductParams& p) {
  const BlockTile at(p.rows.count, kRows);
  const std::int64_t output = at.output_tile * kIntegerOutputs;
  float out = 0.0F;
  const bool has_output =
      gated_sum<kRows>(p.rows, TileRows(p.rows, at.row_tile * kRows),
                       IntegerTile(p.gate, 0, output), IntegerTile(p.up, 0, output), p.silu, out);
  const std::int64_t n = output + dev::thread() % kIntegerOutputs;
  const std::int64_t row = at.row_tile * kRows + dev::thread() / kIntegerOutputs;
  if (!has_output || row >= p.rows.count || n >= p.gate.rows) return;
  dev::Global<float>(p.out).store(row * p.gate.rows + n, out);
}

// Grid: outputs / kIntegerOutputs times rows / kIntegerRows.
KAKEYA_DEVICE void gated_integer_product(const GatedProductParams& p) {
  gated_integer_tile<kIntegerRows>(p);
}

// The gated product with one row. Grid: outputs / kIntegerOutputs.
KAKEYA_DEVICE void gated_integer_row_product(const GatedProductParams& p) {
  gated_integer_tile<1>(p);
}

// Grid: F / kIntegerOutputs, rows * top_k.
KAKEYA_DEVICE void integer_expert_hidden(const ExpertHiddenParams& p) {
  const std::int64_t output = dev::block_x() * kIntegerOutputs;
  const std::int64_t expert = dev::Global<const std::int32_t>(p.experts).load(dev::block_y());
  float out = 0.0F;
  const bool has_output = gated_sum<1>(p.rows, TileRows(p.rows, dev::block_y() / p.top_k),
                                       IntegerTile(p.gate, expert * p.gate.rows, output),
                                       IntegerTile(p.up, expert * p.up.rows, output), p.silu, out);
  const std::int64_t n = output + dev::thread();
  if (!has_output || n >= p.gate.rows) return;
  dev::Global<float>(p.hidden).store(dev::block_y() * p.gate.rows + n, out);
}

// Warps take ranks, which are then weighed and added up as expert_output() does. Grid:
// D / kIntegerOutputs, rows.
KAKEYA_DEVICE void integer_expert_output(const ExpertOutputParams& p) {
  const dev::Global<const std::int32_t> experts(p.experts);
  const dev::Shared<float> sums(0);
  const int top_k = static_cast<int>(p.top_k);
  const std::int64_t first = dev::block_x() * kIntegerOutputs;
  const int chunk = warp_groups(p.rows.width);
  const GroupLayout layout(p.down);
  const int words = IntegerTerms<1>(0, layout, chunk).words();
  const IntegerTerms<1> terms(top_k * kIntegerOutputs + dev::warp() * words, layout, chunk);
  for (int rank = dev::warp(); rank < top_k; rank += kIntegerWarps) {
    const std::int64_t row = dev::block_y() * p.top_k + rank;
    const IntegerTile tile(p.down, experts.load(row) * p.down.rows, first);
    const IntegerWarp<1> own(p.rows, TileRows(p.rows, row), tile);
    const IntegerSum<1> added = {0, dev::lane() % kIntegerOutputs, tile.zero, terms};
    float sum = 0.0F;
    for (int begin = 0; begin < own.groups; begin += chunk) {
      const int end = begin + chunk < own.groups ? begin + chunk : own.groups;
      share_groups(own, {begin, end, 0, 1}, terms);
      dev::sync_warp();
      if (dev::lane() < kIntegerOutputs) {
        sum = added.add(sum, p.rows.width / 32 - begin * kGroupRuns);
      }
      dev::sync_warp();
    }
    if (dev::lane() < kIntegerOutputs) sums.store(rank * kIntegerOutputs + dev::lane(), sum);
  }
  dev::sync_block();
  const std::int64_t n = first + dev::thread();
  if (dev::thread() >= kIntegerOutputs || n >= p.down.rows) return;
  const auto shared = [&](int rank) { return sums.load(rank * kIntegerOutputs + dev::thread()); };
  dev::Global<float>(p.out).store(dev::block_y() * p.down.rows + n,
                                  weighed_ranks(p, dev::block_y(), shared));
}

}  // namespace kakeya::cuda::device
