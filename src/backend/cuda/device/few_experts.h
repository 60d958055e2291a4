// Experts of a few rows, of the format that plain_experts.h is for: pairs in tiles
// (grouped_experts.h) of which all blocks together have room on a card at once. Each block takes an
// equal share of what all tiles have to do, one item behind the other; copies of weights go on from
// one to the next.
#pragma once

#include <cstddef>

#include "backend/cuda/device/grouped_experts.h"
#include "backend/cuda/device/plain_experts.h"

namespace kakeya::cuda::device {

inline constexpr int kFewWarps = 16;        // of a block
inline constexpr int kShareTiles = 3;       // that a block meets, at most
inline constexpr int kSharePairWords = 32;  // of its table
inline constexpr int kSlotSteps = 2;        // of a copy
inline constexpr int kSlotWords = kSlotSteps * kPlainStepWords;
inline constexpr int kHiddenCopies = 3;  // under way at a time
inline constexpr int kOutputCopies = 4;
// Beside sixteen rows fewer rings have room.
inline constexpr int kManyRowsWarps = 8;
inline constexpr int kManyRowsCopies = 4;
inline constexpr int kSumsWords = dev::kWarp * kUnitWords;  // of a warp, of eight rows

// The share of a block: items [first, end) of all, of which each tile has `of_tile`. Its table in
// shared memory has the pairs of its tiles, then how many those are.
struct TileShare {
  const ExpertGroups& groups;
  unsigned of_tile;
  int first;
  int end;
  int first_tile;

  KAKEYA_DEVICE TileShare(const ExpertGroups& all, std::int64_t items, int blocks)
      : groups(all), of_tile(static_cast<unsigned>(items)) {
    const unsigned total = static_cast<unsigned>(early_word(0, 3)) * of_tile;
    const auto block = static_cast<unsigned>(dev::block_x());
    first = static_cast<int>(block * total / static_cast<unsigned>(blocks));
    end = static_cast<int>((block + 1) * total / static_cast<unsigned>(blocks));
    first_tile = tile_of(first);
  }

  KAKEYA_DEVICE int tile_of(int item) const {
    return static_cast<int>(static_cast<unsigned>(item) / of_tile);
  }
  KAKEYA_DEVICE int in_tile(int item) const {
    return item - tile_of(item) * static_cast<int>(of_tile);
  }
  KAKEYA_DEVICE ExpertTile tile(int i) const {
    return dev::Global<const ExpertTile>(groups.tiles).load(i);
  }
  // The expert of an item. kEarly: before the launch has waited for the previous one, which made no
  // tiles.
  template <bool kEarly>
  KAKEYA_DEVICE int expert(int item) const {
    return kEarly ? early_word(tile_of(item), 0) : tile(tile_of(item)).expert;
  }
  // How many tiles it meets, if it has items.
  KAKEYA_DEVICE int tiles() const { return tile_of(end - 1) - first_tile + 1; }

  // By a warp: makes the table. Behind the last pair of a tile stands that one again.
  KAKEYA_DEVICE void bring_pairs() const {
    const int slot = dev::lane() / kGroupedRows;
    if (slot >= tiles()) return;
    const ExpertTile own = tile(first_tile + slot);
    const int i = dev::lane() % kGroupedRows;
    const dev::Shared<std::int32_t> table(0);
    table.store(dev::lane(),
                static_cast<std::int32_t>(pair_of(groups, own, i < own.count ? i : own.count - 1)));
    if (i == 0) table.store(kShareTiles * kGroupedRows + slot, own.count);
  }
  KAKEYA_DEVICE int slot_of(int item) const { return tile_of(item) - first_tile; }
  KAKEYA_DEVICE static int pair(int slot, int i) {
    return dev::Shared<std::int32_t>(0).load(slot * kGroupedRows + i);
  }
  KAKEYA_DEVICE static int count(int slot) {
    return dev::Shared<std::int32_t>(0).load(kShareTiles * kGroupedRows + slot);
  }

 private:
  // Word `k` of tile i.
  KAKEYA_DEVICE int early_word(int i, int k) const {
    static_assert(offsetof(ExpertTile, expert) == 0 && offsetof(ExpertTile, num_tiles) == 12);
    return dev::Global<const std::int32_t>(reinterpret_cast<const std::int32_t*>(groups.tiles))
        .load_fresh(i * kUnitWords + k);
  }
};

// Brings the strips of a warp's items to a ring of kCopies slots, ahead of what it adds up. It may
// be made before the launch has waited for the previous one.
template <int kCopies, typename Work>
class PlainFeed {
 public:
  KAKEYA_DEVICE PlainFeed(const Work& work, const StripItems& items, int steps, int first_word)
      : work_(work),
        policy_(true),
        items_(items),
        steps_(steps),
        slots_end_(first_word + kCopies * kSlotWords),
        slot_(first_word) {
    KAKEYA_NO_UNROLL
    for (int i = 0; i < kCopies; ++i) fill_slot<true>();
  }

  // Adds the next strip.
  template <typename PlacedRows>
  KAKEYA_DEVICE void add(const PlacedRows& rows, float zero, StripSums<kGroupedRows>& sums) {
    int step = 0;
    KAKEYA_NO_UNROLL
    for (; step + kSlotSteps <= steps_; step += kSlotSteps) {
      add_slot<kSlotSteps>(rows, step, zero, sums);
    }
    if (step < steps_) add_slot<1>(rows, step, zero, sums);
  }

 private:
  static_assert(kSlotSteps == 2);  // as one more is behind all whole slots

  template <int kSteps, typename PlacedRows>
  KAKEYA_DEVICE void add_slot(const PlacedRows& rows,
                              int step,
                              float zero,
                              StripSums<kGroupedRows>& sums) {
    dev::await_copies<kCopies - 1>();
    dev::sync_warp();
    KAKEYA_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      add_plain_step<kGroupedRows, true>(slot_ + k * kPlainStepWords, rows, step + k, zero, sums);
    }
    dev::sync_warp();
    fill_slot<false>();
  }

  // Begins to copy what comes next to the slot that has been used, or to none, and goes on to the
  // next one.
  template <bool kEarly>
  KAKEYA_DEVICE void fill_slot() {
    constexpr int kMost = kSlotSteps * kPlainStepUnits;
    constexpr int kWarpWords = dev::kWarp * kUnitWords;
    if (left_ + dev::lane() <= 0 && items_.first < items_.end) {
      from_ = work_.template strip<kEarly>(items_.first) + dev::lane();
      left_ = steps_ * kPlainStepUnits - dev::lane();
      items_.first += items_.apart;
    }
    KAKEYA_UNROLL
    for (int i = 0; i * dev::kWarp < kMost; ++i) {
      // The last one of the copies of a slot is for some lanes only.
      const bool is_whole = (i + 1) * dev::kWarp <= kMost || dev::lane() < kMost - i * dev::kWarp;
      if (is_whole && i * dev::kWarp < left_) {
        dev::begin_copy(slot_ + dev::lane() * kUnitWords + i * kWarpWords, from_, i * dev::kWarp,
                        policy_);
      }
    }
    dev::end_copies();
    from_ += kMost;
    left_ -= kMost;
    slot_ += kSlotWords;
    if (slot_ == slots_end_) slot_ -= kCopies * kSlotWords;
  }

  const Work& work_;
  dev::CopyPolicy policy_;
  StripItems items_;  // from the next one on
  int steps_;
  int slots_end_;
  int slot_;  // the oldest one
  // Units that the lane copies next of a strip, and how many there are from there on.
  const FourWords* from_ = nullptr;
  int left_ = -dev::lane();
};

// Some of the rows in shared memory, as StripRows hands out its own: those of a tile's pairs.
template <int kRows>
struct PickedRows {
  int codes_at;
  int numbers_at[2];

  KAKEYA_DEVICE PickedRows(const StripRows<kRows>& rows, int slot, unsigned top_k) {
    const auto row = [&](int i) {
      return static_cast<int>(static_cast<unsigned>(TileShare::pair(slot, i)) / top_k);
    };
    codes_at =
        rows.first_word + row(dev::lane() / 4) * rows.row_words() + dev::lane() % 4 * kUnitWords;
    KAKEYA_UNROLL
    for (int c = 0; c < 2; ++c) {
      numbers_at[c] = rows.numbers_at() + row(dev::lane() % 4 * 2 + c) * kStepNumbers;
    }
  }
  KAKEYA_DEVICE FourWords codes(int /*tile*/, int step) const {
    return dev::Shared<std::uint32_t>(codes_at + step * StripRows<kRows>::kRowWords)
        .template load_as<FourWords>(0);
  }
  KAKEYA_DEVICE FourFloats numbers(int /*tile*/, int step, int column) const {
    return dev::Shared<float>(numbers_at[column] + step * kRows * kStepNumbers)
        .template load_as<FourFloats>(0);
  }
};

// Items are runs of hidden columns. Of each four warps take two strips of gates, then two of what
// they gate.
struct FewHiddenWork {
  static constexpr int kWarps = 2 * kRunStrips;  // of an item

  const ExpertHiddenParams& p;
  const TileShare& share;

  KAKEYA_DEVICE static bool is_gate() { return dev::warp() % kWarps < kRunStrips; }
  KAKEYA_DEVICE float zero() const {
    return static_cast<float>(is_gate() ? p.gate.zero : p.up.zero);
  }
  template <bool kEarly>
  KAKEYA_DEVICE const FourWords* strip(int item) const {
    return plain_strip(is_gate() ? p.gate.data : p.up.data, p.gate,
                       share.template expert<kEarly>(item),
                       share.in_tile(item) * kRunStrips + dev::warp() % kRunStrips);
  }

  // Warps exchange their sums in shared memory.
  KAKEYA_DEVICE static void store(const StripSums<kGroupedRows>& sums) {
    const auto& own = sums.at[0];
    dev::Shared<float>(kSharePairWords + dev::warp() * kSumsWords)
        .store_as(dev::lane() * kUnitWords,
                  FourFloats{{own[0][0], own[0][1], own[1][0], own[1][1]}});
  }
  // The sum of row `row` of the tile and the lane's column of the run.
  KAKEYA_DEVICE static float sum(bool is_gate, int row) {
    const int warp =
        dev::warp() / kWarps * kWarps + (is_gate ? 0 : kRunStrips) + dev::lane() / kStripOutputs;
    const int output = dev::lane() % kStripOutputs;
    return dev::Shared<float>(kSharePairWords + warp * kSumsWords)
        .load((output % 8 * 4 + row / 2) * kUnitWords + output / 8 * 2 + row % 2);
  }
  // Makes hidden columns of sums, of every fourth row, and rounds them.
  KAKEYA_DEVICE void finish(int item) const {
    const int slot = share.slot_of(item);
    const int run = share.in_tile(item);
    KAKEYA_NO_UNROLL
    for (int row = dev::warp() % kWarps; row < TileShare::count(slot); row += kWarps) {
      const float x = gated(p.silu, sum(true, row), sum(false, row));
      const std::int64_t pair = TileShare::pair(slot, row);
      dev::Global<float>(p.hidden).store(pair * p.gate.rows + run * dev::kWarp + dev::lane(), x);
      if (p.rounded.codes != nullptr) round_run(p.rounded, pair, run, x);
    }
  }
};

// The words of shared memory of few_hidden(): the table, sums, all rows of the pass, rings.
template <int kRows, int kWarps, int kCopies>
KAKEYA_DEVICE int hidden_words(int steps) {
  return kSharePairWords + kWarps * (kSumsWords + kCopies * kSlotWords) +
         StripRows<kRows>(0, steps, false).words();
}
KAKEYA_DEVICE int few_hidden_words(int steps, bool is_of_many_rows) {
  return is_of_many_rows ? hidden_words<kManyIntegerRows, kManyRowsWarps, kManyRowsCopies>(steps)
                         : hidden_words<kIntegerRows, kFewWarps, kHiddenCopies>(steps);
}

// By a block of kWarps, for passes of kRows rows at most.
template <int kRows, int kWarps, int kCopies>
KAKEYA_DEVICE void few_hidden(const ExpertHiddenParams& p) {
  constexpr int kGroups = kWarps / FewHiddenWork::kWarps;
  const int steps = plain_steps(p.rows);
  const TileShare share(p.groups, p.gate.rows / (kRunStrips * kStripOutputs), p.plan.blocks);
  if (share.first == share.end) return;
  const StripRows<kRows> rows(kSharePairWords + kWarps * kSumsWords, steps, false);
  const FewHiddenWork work = {p, share};
  const int group = dev::warp() / FewHiddenWork::kWarps;
  PlainFeed<kCopies, FewHiddenWork> feed(
      work, {share.first + group, kGroups, share.end}, steps,
      rows.first_word + rows.words() + dev::warp() * kCopies * kSlotWords);
  // Behind the copies: those of the next launch come when these have.
  dev::let_next_start();
  if (dev::warp() == 0) share.bring_pairs();
  rows.template bring<false>(p.rows, TileRows(p.rows, 0), 0, steps, dev::thread(), dev::threads());
  dev::sync_block();
  KAKEYA_NO_UNROLL
  for (int first = share.first; first < share.end; first += kGroups) {
    const int item = first + group;
    const bool is_there = item < share.end;
    StripSums<kGroupedRows> sums = {};
    if (is_there) {
      feed.add(PickedRows<kRows>(rows, share.slot_of(item), static_cast<unsigned>(p.top_k)),
               work.zero(), sums);
    }
    dev::sync_block();  // sums of the items before have been read
    if (is_there) work.store(sums);
    dev::sync_block();
    if (is_there) work.finish(item);
  }
}

// Grid: blocks of the plan, of these.
KAKEYA_DEVICE void few_expert_hidden(const ExpertHiddenParams& p) {
  dev::wait_for_previous();
  few_hidden<kIntegerRows, kFewWarps, kHiddenCopies>(p);
}
KAKEYA_DEVICE void few_expert_hidden_rows(const ExpertHiddenParams& p) {
  few_hidden<kManyIntegerRows, kManyRowsWarps, kManyRowsCopies>(p);
}

// Items are strips of outputs, each for a warp.
struct FewOutputWork {
  const ExpertOutputParams& p;
  const TileShare& share;

  template <bool kEarly>
  KAKEYA_DEVICE const FourWords* strip(int item) const {
    return plain_strip(p.down.data, p.down, share.template expert<kEarly>(item),
                       share.in_tile(item));
  }
  KAKEYA_DEVICE void store(int item, const StripSums<kGroupedRows> (&sums)[1]) const {
    const int slot = share.slot_of(item);
    const int strip = share.in_tile(item);
    const dev::Global<float> out(p.ranks);
    store_sums(
        sums, TileShare::count(slot), strip_outputs(p.down.rows, strip),
        [](const float(&own)[1]) { return own[0]; },
        [&](int row, int output, float value) {
          out.store(TileShare::pair(slot, row) * p.down.rows + strip * kStripOutputs + output,
                    value);
        });
  }
};

// The words of shared memory of few_expert_output(): the table, rows of tiles, rings.
KAKEYA_DEVICE int few_output_words(int steps) {
  return kSharePairWords + kShareTiles * StripRows<kGroupedRows>(0, steps, false).words() +
         kFewWarps * kOutputCopies * kSlotWords;
}

// Weights are under way before hidden columns are there. The launch before this one is not the one
// that made the tiles. Grid: blocks of the plan.
KAKEYA_DEVICE void few_expert_output(const ExpertOutputParams& p) {
  constexpr int kTileWarps = kFewWarps / kShareTiles;  // that bring the rows of a tile
  const int steps = plain_steps(p.rows);
  const TileShare share(p.groups, num_strips(p.down.rows), p.plan.blocks);
  if (share.first == share.end) {
    dev::wait_for_previous();
    return;
  }
  const auto rows_of = [&](int slot) {
    const StripRows<kGroupedRows> rows(kSharePairWords, steps, false);
    return StripRows<kGroupedRows>(rows.first_word + slot * rows.words(), steps, false);
  };
  const FewOutputWork work = {p, share};
  PlainFeed<kOutputCopies, FewOutputWork> feed(
      work, {share.first + dev::warp(), kFewWarps, share.end}, steps,
      rows_of(kShareTiles).first_word + dev::warp() * kOutputCopies * kSlotWords);
  dev::wait_for_previous();
  dev::let_next_start();
  const int own_slot = dev::warp() / kTileWarps;
  if (own_slot < share.tiles()) {
    const ExpertTile tile = share.tile(share.first_tile + own_slot);
    rows_of(own_slot).bring<false>(p.rows, TileRows(tile, p.groups.order, 1), 0, steps,
                                   dev::thread() - own_slot * kTileWarps * dev::kWarp,
                                   kTileWarps * dev::kWarp);
  }
  if (dev::warp() == kFewWarps - 1) share.bring_pairs();
  dev::sync_block();
  KAKEYA_NO_UNROLL
  for (int item = share.first + dev::warp(); item < share.end; item += kFewWarps) {
    StripSums<kGroupedRows> sums[1] = {};
    feed.add(rows_of(share.slot_of(item)), static_cast<float>(p.down.zero), sums[0]);
    work.store(item, sums);
  }
}

}  // namespace kakeya::cuda::device
