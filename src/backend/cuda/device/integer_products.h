// Products of rows with weights whose codes are integers (integer_strips.h). Integers are exact; a
// warp takes a strip of sixteen outputs and adds runs up in the order of backend.h.
#pragma once

#include "backend/cuda/device/strip_feed.h"

namespace kakeya::cuda::device {

inline constexpr int kStripWarps = 8;  // of a block, at most
inline constexpr int kIntegerRows = 8;
inline constexpr int kManyIntegerRows = 16;

KAKEYA_DEVICE int block_warps() {
  return dev::threads() / dev::kWarp;
}

// The words of shared memory of a block: its warps' rings, then rows.
template <int kRows>
KAKEYA_DEVICE int strip_words(const StripPlan& plan) {
  return plan.warps * ring_words(plan) +
         StripRows<kRows>(0, plan.chunk_steps, plan.has_halves).words();
}

// By a block, whose warps take items in turn: `work.items()` of them, with kRows rows from `tile`
// on. `first` is the number of the block among those that share the items. kMayRound: of
// StripRows::bring().
template <int kRows, int kParts, bool kMayRound = kParts == 1, typename Work>
KAKEYA_DEVICE void multiply_strips(const ProductRows& in,
                                   const TileRows& tile,
                                   const StripPlan& plan,
                                   int first,
                                   const Work& work) {
  const int warps = plan.warps;
  const int steps = static_cast<int>(num_steps(in.width));
  const int apart = plan.blocks * warps;
  const int items = work.items();
  const bool takes = dev::warp() < warps;
  StripFeed<kParts, Work> feed(work, plan,
                               {takes ? first * warps + dev::warp() : items, apart, items}, steps,
                               dev::warp() * ring_words(plan));
  dev::wait_for_previous();
  dev::let_next_start();
  const StripRows<kRows> rows(warps * ring_words(plan), plan.chunk_steps, plan.has_halves);
  bool wanted = true;
  KAKEYA_NO_UNROLL
  for (int group = first * warps; group < items; group += apart) {
    const int item = group + dev::warp();
    StripSums<kRows> sums[kParts] = {};
    KAKEYA_NO_UNROLL
    for (int begin = 0; begin < steps; begin += plan.chunk_steps) {
      const int end = begin + plan.chunk_steps < steps ? begin + plan.chunk_steps : steps;
      if (wanted) {
        dev::sync_block();
        rows.template bring<kMayRound>(in, tile, begin, end - begin, dev::thread(), dev::threads());
        dev::sync_block();
        wanted = plan.chunk_steps < steps;
        if (!wanted && !takes) return;
      }
      if (!takes || item >= items) continue;
      // Sums of the parts take turns, so that there is one code for all.
      KAKEYA_NO_UNROLL
      for (int part = 0; part < kParts; ++part) {
        feed.add(work.strip(item, part), begin, end, rows, sums[0]);
        const StripSums<kRows> own = sums[0];
        KAKEYA_UNROLL
        for (int other = 1; other < kParts; ++other) sums[other - 1] = sums[other];
        sums[kParts - 1] = own;
      }
    }
    if (takes && item < items) work.store(item, sums);
  }
}

// Calls `store(row of the tile, output of the strip, value)` for each of a lane's sums, which
// `value` makes of the sums of all parts.
template <int kParts, typename Value, typename Store>
KAKEYA_DEVICE void store_sums(const StripSums<1> (&sums)[kParts],
                              int /*rows*/,
                              int outputs,
                              const Value& value,
                              const Store& store) {
  // Two lanes of four have an output each.
  const bool is_first = dev::lane() % 4 == 0;
  const int output = dev::lane() / 4 + (is_first ? 0 : 8);
  if (dev::lane() % 4 > 1 || output >= outputs) return;
  float own[kParts];
  KAKEYA_UNROLL
  for (int part = 0; part < kParts; ++part) {
    const float first = sums[part].at[0][0][0];
    const float second = sums[part].at[0][1][0];
    own[part] = is_first ? first : second;
  }
  store(0, output, value(own));
}
template <int kRows, int kParts, typename Value, typename Store>
KAKEYA_DEVICE void store_sums(const StripSums<kRows> (&sums)[kParts],
                              int rows,
                              int outputs,
                              const Value& value,
                              const Store& store) {
  KAKEYA_UNROLL
  for (int tile = 0; tile < StripSums<kRows>::kTiles; ++tile) {
    KAKEYA_UNROLL
    for (int o = 0; o < 2; ++o) {
      KAKEYA_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int row = tile * 8 + dev::lane() % 4 * 2 + c;
        const int output = dev::lane() / 4 + 8 * o;
        if (row >= rows || output >= outputs) continue;
        float own[kParts];
        KAKEYA_UNROLL
        for (int part = 0; part < kParts; ++part) own[part] = sums[part].at[tile][o][c];
        store(row, output, value(own));
      }
    }
  }
}

// The outputs of a strip, from `strip` on.
KAKEYA_DEVICE int strip_outputs(std::int64_t rows, std::int64_t strip) {
  const std::int64_t left = rows - strip * kStripOutputs;
  return left < kStripOutputs ? static_cast<int>(left) : kStripOutputs;
}

// Strips of all parts, one after the other.
template <int kRows>
struct ProductWork {
  const IntegerProductParams& p;
  std::int64_t first_row;

  KAKEYA_DEVICE int items() const {
    int strips = 0;
    for (int i = 0; i < p.num_parts; ++i) strips += part_strips(i);
    return strips;
  }
  KAKEYA_DEVICE Strip strip(int item, int /*part*/) const {
    const int part = part_of(item);
    return Strip(p.parts[part].weight, 0, item);
  }
  KAKEYA_DEVICE void store(int item, const StripSums<kRows> (&sums)[1]) const {
    const ProductPart& part = p.parts[part_of(item)];
    const std::int64_t outputs = part.weight.rows;
    const dev::Global<float> out(part.out);
    const std::int64_t left = p.rows.count - first_row;
    store_sums(
        sums, left < kRows ? static_cast<int>(left) : kRows, strip_outputs(outputs, item),
        [](const float(&own)[1]) { return own[0]; },
        [&](int row, int output, float value) {
          out.store((first_row + row) * outputs + item * kStripOutputs + output, value);
        });
  }
  // Stores one output of one row.
  KAKEYA_DEVICE void store_one(int item, int output, const float (&own)[1]) const {
    const ProductPart& part = p.parts[part_of(item)];
    if (output >= strip_outputs(part.weight.rows, item)) return;
    dev::Global<float>(part.out).store(item * kStripOutputs + output, own[0]);
  }
  // Makes of an item the strip of its part.
  KAKEYA_DEVICE int part_of(int& item) const {
    int part = 0;
    for (; item >= part_strips(part); ++part) item -= part_strips(part);
    return part;
  }

 private:
  KAKEYA_DEVICE int part_strips(int i) const {
    return static_cast<int>(num_strips(p.parts[i].weight.rows));
  }
};

template <int kRows>
KAKEYA_DEVICE void integer_product_tile(const IntegerProductParams& p) {
  const BlockTile at(p.rows.count, kRows);
  const std::int64_t first_row = at.row_tile * kRows;
  multiply_strips<kRows, 1>(p.rows, TileRows(p.rows, first_row), p.plan,
                            static_cast<int>(at.output_tile), ProductWork<kRows>{p, first_row});
}

// Grid: blocks of the plan times rows / kRows, of these and of gated ones.
KAKEYA_DEVICE void integer_row_product(const IntegerProductParams& p) {
  integer_product_tile<1>(p);
}
KAKEYA_DEVICE void integer_product(const IntegerProductParams& p) {
  integer_product_tile<kIntegerRows>(p);
}
KAKEYA_DEVICE void integer_product_rows(const IntegerProductParams& p) {
  integer_product_tile<kManyIntegerRows>(p);
}

// Gates, and the outputs that they gate, of one of the stacked matrices.
struct GatedStrips {
  const Weight& gate;
  const Weight& up;
  bool silu;

  KAKEYA_DEVICE int items() const { return static_cast<int>(num_strips(gate.rows)); }
  KAKEYA_DEVICE Strip strip(std::int64_t matrix, int item, int part) const {
    return Strip(part == 0 ? gate : up, matrix, item);
  }
  // Stores what `row_of` says of each row of the tile: its number in `to`.
  template <int kRows, typename RowOf>
  KAKEYA_DEVICE void store(
      int item, const StripSums<kRows> (&sums)[2], int rows, float* to, const RowOf& row_of) const {
    const dev::Global<float> out(to);
    store_sums(
        sums, rows, strip_outputs(gate.rows, item),
        [&](const float(&own)[2]) { return gated(silu, own[0], own[1]); },
        [&](int row, int output, float value) {
          out.store(row_of(row) * gate.rows + item * kStripOutputs + output, value);
        });
  }
  // Stores one output of row `row` of `to`.
  KAKEYA_DEVICE void store_one(
      int item, int output, const float (&own)[2], std::int64_t row, float* to) const {
    if (output >= strip_outputs(gate.rows, item)) return;
    dev::Global<float>(to).store(row * gate.rows + item * kStripOutputs + output,
                                 gated(silu, own[0], own[1]));
  }
};

template <int kRows>
struct GatedWork {
  const GatedProductParams& p;
  std::int64_t first_row;

  KAKEYA_DEVICE GatedStrips strips() const { return {p.gate, p.up, p.silu}; }
  KAKEYA_DEVICE int items() const { return strips().items(); }
  KAKEYA_DEVICE Strip strip(int item, int part) const { return strips().strip(0, item, part); }
  KAKEYA_DEVICE void store(int item, const StripSums<kRows> (&sums)[2]) const {
    const std::int64_t left = p.rows.count - first_row;
    strips().store(item, sums, left < kRows ? static_cast<int>(left) : kRows, p.out,
                   [&](int row) { return first_row + row; });
  }
  KAKEYA_DEVICE void store_one(int item, int output, const float (&own)[2]) const {
    strips().store_one(item, output, own, 0, p.out);
  }
};

template <int kRows>
KAKEYA_DEVICE void gated_integer_tile(const GatedProductParams& p) {
  const BlockTile at(p.rows.count, kRows);
  const std::int64_t first_row = at.row_tile * kRows;
  multiply_strips<kRows, 2>(p.rows, TileRows(p.rows, first_row), p.plan,
                            static_cast<int>(at.output_tile), GatedWork<kRows>{p, first_row});
}

// Items are strips of gates and of what they gate, in turn: a warp has one of both, and its sums
// meet those of the other one in shared memory, where the warp's ring was.
struct GatedHalfWork {
  const GatedProductParams& p;

  KAKEYA_DEVICE GatedStrips strips() const { return {p.gate, p.up, p.silu}; }
  KAKEYA_DEVICE int items() const { return 2 * strips().items(); }
  KAKEYA_DEVICE Strip strip(int item, int /*part*/) const {
    return strips().strip(0, item / 2, item % 2);
  }
  KAKEYA_DEVICE dev::Shared<float> sums_of(int warp) const {
    return dev::Shared<float>(warp * ring_words(p.plan) + dev::lane() * kUnitWords);
  }
  KAKEYA_DEVICE void store(int /*item*/, const StripSums<kIntegerRows> (&sums)[1]) const {
    const auto& own = sums[0].at[0];
    sums_of(dev::warp()).store_as(0, FourFloats{{own[0][0], own[0][1], own[1][0], own[1][1]}});
  }
  // By a warp of gates, when the other one has stored its own.
  KAKEYA_DEVICE void store_both(int item) const {
    StripSums<kIntegerRows> sums[2];
    KAKEYA_UNROLL
    for (int part = 0; part < 2; ++part) {
      const auto four = sums_of(dev::warp() + part).load_as<FourFloats>(0);
      KAKEYA_UNROLL
      for (int i = 0; i < 4; ++i) sums[part].at[0][i / 2][i % 2] = four.at[i];
    }
    strips().store(item / 2, sums, static_cast<int>(p.rows.count), p.out,
                   [](int row) { return row; });
  }
};

// For no more than a tile of rows. Grid: blocks of the plan, each with one item a warp.
KAKEYA_DEVICE void gated_integer_product(const GatedProductParams& p) {
  const GatedHalfWork work = {p};
  const auto first = static_cast<int>(dev::block_x());
  multiply_strips<kIntegerRows, 1, false>(p.rows, TileRows(p.rows, 0), p.plan, first, work);
  dev::sync_block();
  const int item = first * p.plan.warps + dev::warp();
  if (dev::warp() % 2 == 0 && dev::warp() < p.plan.warps && item < work.items()) {
    work.store_both(item);
  }
}
KAKEYA_DEVICE void gated_integer_product_rows(const GatedProductParams& p) {
  gated_integer_tile<kManyIntegerRows>(p);
}

}  // namespace kakeya::cuda::device
