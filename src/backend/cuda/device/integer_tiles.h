// Products of many rounded rows with weights whose codes are integers and whose scales are f16, one
// a run (integer_strips.h): a block has a tile of eight strips and up to 64 rows, steps of which
// are on their way to a ring in shared memory while others are added up. A warp has two strips, and
// every second eight of the rows, so that few rows are work for all warps too: what it unpacks of
// the strips meets all of its rows. Sums have the order of backend.h.
#pragma once

#include "backend/cuda/device/grouped_experts.h"
#include "backend/cuda/device/integer_products.h"

namespace kakeya::cuda::device {

inline constexpr int kTileStrips = 8;
inline constexpr int kTileRows = 64;
inline constexpr int kTileWarps = 8;
inline constexpr int kTileStages = 3;                  // of the ring
inline constexpr int kStageSteps = 2;                  // that a barrier is for
inline constexpr int kTileEights = kTileRows / 8 / 2;  // of a warp

// A step of a tile in shared memory, in words: strips, codes of rows, numbers of rows. A stage of
// the ring has some of them.
template <bool kFourBits>
struct TileStep {
  static constexpr int kStripWords = kFourBits ? 144 : 272;
  static constexpr int kRowWords = kStepCodeUnits * kUnitWords;
  static constexpr int kCodesAt = kTileStrips * kStripWords;
  static constexpr int kNumbersAt = kCodesAt + kTileRows * kRowWords;
  static constexpr int kWords = kNumbersAt + kTileRows * kStepNumbers;
};
KAKEYA_DEVICE int tile_words(bool four_bits) {
  return kTileStages * kStageSteps * (four_bits ? TileStep<true>::kWords : TileStep<false>::kWords);
}

KAKEYA_DEVICE int least(std::int64_t a, int b) {
  return a < b ? static_cast<int>(a) : b;
}

// The first strip of a warp, and whether it has the first eight rows or the second ones.
KAKEYA_DEVICE int warp_strip() {
  return dev::warp() % 4 * 2;
}
KAKEYA_DEVICE int warp_eight() {
  return dev::warp() / 4;
}

// Copies steps of a tile: each warp those of a strip and of eight rows.
template <bool kFourBits>
class TileFeed {
 public:
  KAKEYA_DEVICE TileFeed(const ProductRows& in, const TileRows& tile, int rows, const Strip& strip)
      : policy_(false), left_(static_cast<int>(num_steps(in.width))) {
    const int first = dev::warp() * 8;
    has_rows_ = first < rows;
    strip_ = strip.data + dev::lane();
    const bool has_scale = dev::lane() < kScaleUnits;
    has_rest_ = has_scale || (has_rows_ && dev::lane() / 8 == 1);
    rest_units_ = has_scale ? kStripUnits : 1;
    rest_ = strip_ + kCodeUnits;
    rest_word_ = dev::warp() * Step::kStripWords + (kCodeUnits + dev::lane()) * kUnitWords;
    if (!has_rows_) return;
    const std::int64_t steps = left_;
    codes_ = reinterpret_cast<const FourWords*>(in.codes) +
             tile.row(first + dev::lane() / 4) * steps * kStepCodeUnits + dev::lane() % 4;
    if (has_scale) return;
    rest_ =
        reinterpret_cast<const FourWords*>(in.numbers) + tile.row(first + dev::lane() % 8) * steps;
    rest_word_ = Step::kNumbersAt + (first + dev::lane() % 8) * kStepNumbers;
  }

  // Begins to copy the next steps, as far as there are any, to a stage of the ring.
  KAKEYA_DEVICE void begin(int word) {
    KAKEYA_UNROLL
    for (int k = 0; k < kStageSteps; ++k) {
      if (k < left_) begin_step(word + k * Step::kWords, k);
    }
    dev::end_copies();
    strip_ += kStageSteps * kStripUnits;
    codes_ += kStageSteps * kStepCodeUnits;
    rest_ += kStageSteps * rest_units_;
    left_ -= kStageSteps;
  }

 private:
  using Step = TileStep<kFourBits>;
  static constexpr int kStripUnits = Step::kStripWords / kUnitWords;
  static constexpr int kScaleUnits = 4;
  static constexpr int kCodeUnits = kStripUnits - kScaleUnits;

  KAKEYA_DEVICE void begin_step(int word, int step) const {
    const int strip = word + dev::warp() * Step::kStripWords + dev::lane() * kUnitWords;
    KAKEYA_UNROLL
    for (int unit = 0; unit < kCodeUnits; unit += dev::kWarp) {
      dev::begin_copy(strip + unit * kUnitWords, strip_, step * kStripUnits + unit, policy_);
    }
    if (has_rows_) {
      const int codes = word + Step::kCodesAt + dev::thread() * kUnitWords;
      dev::begin_copy(codes, codes_, step * kStepCodeUnits, policy_);
    }
    if (has_rest_) dev::begin_copy(word + rest_word_, rest_, step * rest_units_, policy_);
  }

  dev::CopyPolicy policy_;
  int left_;  // steps
  bool has_rows_;
  bool has_rest_;
  int rest_units_;
  int rest_word_;
  const FourWords* strip_;
  const FourWords* codes_ = nullptr;
  const FourWords* rest_;  // scales of the strip, or numbers of rows
};

// Sums of a warp's two strips with its rows: of each eight as StripSums has them.
struct TileSums {
  float at[2][kTileEights][2][2];

  // Adds a step, of the warp's first `eights`.
  template <bool kFourBits>
  KAKEYA_DEVICE void add(int word, int eights, float zero) {
    using Step = TileStep<kFourBits>;
    std::uint32_t a[4][4];
    float scales[2][2][2];  // strip, output, run
    KAKEYA_UNROLL
    for (int s = 0; s < 2; ++s) {
      const int strip = word + (warp_strip() + s) * Step::kStripWords;
      const StepCodes<kFourBits> codes(strip);
      codes.of_run(0, a[2 * s]);
      codes.of_run(1, a[2 * s + 1]);
      KAKEYA_UNROLL
      for (int i = 0; i < 8; ++i) dev::hold(a[2 * s + i / 4][i % 4]);
      const auto pairs = dev::Shared<std::uint32_t>(strip + (kFourBits ? 128 : 256))
                             .load_as<TwoWords>(dev::lane() / 4 * 2);
      KAKEYA_UNROLL
      for (int o = 0; o < 2; ++o) dev::floats_of_halves(pairs.at[o], scales[s][o]);
    }
    const int row = 8 * warp_eight();
    const dev::Shared<std::uint32_t> codes(word + Step::kCodesAt + row * Step::kRowWords);
    const dev::Shared<float> numbers(word + Step::kNumbersAt + row * kStepNumbers);
    KAKEYA_UNROLL
    for (int e = 0; e < kTileEights; ++e) {
      if (e >= eights) continue;
      const auto own =
          codes.load_as<FourWords>(16 * e * Step::kRowWords + dev::lane() * kUnitWords);
      FourFloats of_rows[2];
      KAKEYA_UNROLL
      for (int c = 0; c < 2; ++c) {
        of_rows[c] = numbers.load_as<FourFloats>((16 * e + dev::lane() % 4 * 2 + c) * kStepNumbers);
      }
      add_eight<kFourBits>(a, scales, own, of_rows, e, zero);
    }
  }

 private:
  template <bool kFourBits>
  KAKEYA_DEVICE void add_eight(const std::uint32_t (&a)[4][4],
                               const float (&scales)[2][2][2],
                               const FourWords& own,
                               const FourFloats (&numbers)[2],
                               int e,
                               float zero) {
    std::uint32_t b[4][2];
    KAKEYA_UNROLL
    for (int i = 0; i < 4; ++i) {
      KAKEYA_UNROLL
      for (int k = 0; k < 2; ++k) b[i][k] = own.at[2 * (i % 2) + k];
    }
    int products[4][4];
    dev::integer_mma(products, a, b, kSumBaseBits);
    KAKEYA_UNROLL
    for (int run = 0; run < 2; ++run) {
      KAKEYA_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int s = i / 4;
        const int o = i / 2 % 2;
        const int c = i % 2;
        const FourFloats& n = numbers[c];
        const float integer = StepCodes<kFourBits>::integer(products[2 * s + run][2 * o + c], run,
                                                            zero, n.at[2 * run]);
        float& sum = at[s][e][o][c];
        sum = dev::fma(integer, scales[s][o][run] * n.at[2 * run + 1], sum);
      }
    }
  }
};

// By a block of kTileWarps: adds all steps of `rows` rows from `tile` on, of which each warp brings
// those of a strip. They are no longer in shared memory when it returns.
template <bool kFourBits>
KAKEYA_DEVICE void add_tile(
    const ProductRows& in, const TileRows& tile, int rows, const Strip& strip, TileSums& sums) {
  constexpr int kWords = kStageSteps * TileStep<kFourBits>::kWords;
  constexpr int kEnd = kTileStages * kWords;
  TileFeed<kFourBits> feed(in, tile, rows, strip);
  const int eights = (rows + 15 - 8 * warp_eight()) / 16;
  int fills = 0;
  KAKEYA_NO_UNROLL
  for (; fills < kEnd - kWords; fills += kWords) feed.begin(fills);
  int uses = 0;
  KAKEYA_NO_UNROLL
  for (int left = static_cast<int>(num_steps(in.width)); left > 0; left -= kStageSteps) {
    dev::await_copies<kTileStages - 2>();
    dev::sync_block();
    feed.begin(fills);
    fills = fills + kWords < kEnd ? fills + kWords : 0;
    KAKEYA_NO_UNROLL
    for (int k = 0; k < least(left, kStageSteps); ++k) {
      sums.template add<kFourBits>(uses + k * TileStep<kFourBits>::kWords, eights, strip.zero);
    }
    uses = uses + kWords < kEnd ? uses + kWords : 0;
  }
  dev::sync_block();
}

// By a block of kTileWarps: products of `rows` rows from `tile` on with strips that
// `work.strip(number of eight)` names. What is behind the last one is that one again.
template <typename Work>
KAKEYA_DEVICE void multiply_tile(const ProductRows& in,
                                 const TileRows& tile,
                                 int rows,
                                 const Work& work) {
  const Strip strip = work.strip(dev::warp());
  TileSums sums = {};
  if (strip.layout.four_bits) {
    add_tile<true>(in, tile, rows, strip, sums);
  } else {
    add_tile<false>(in, tile, rows, strip, sums);
  }
  work.store(rows, sums);
}

// Calls `store(row of the tile, output of a strip, value of the first strip, of the second)` for
// each of a lane's sums. They pass through shared memory, where the ring was, so that this is no
// long code.
template <typename Store>
KAKEYA_DEVICE void store_tile(int rows, const TileSums& sums, const Store& store) {
  constexpr int kPairs = kTileEights * 4;
  const dev::Shared<float> held(dev::warp() * kPairs * 2 * dev::kWarp + dev::lane() * 2);
  KAKEYA_UNROLL
  for (int i = 0; i < kPairs; ++i) {
    held.store_as(i * 2 * dev::kWarp, TwoFloats{{sums.at[0][i / 4][i / 2 % 2][i % 2],
                                                 sums.at[1][i / 4][i / 2 % 2][i % 2]}});
  }
  KAKEYA_NO_UNROLL
  for (int i = 0; i < kPairs; ++i) {
    const int row = i / 4 * 16 + warp_eight() * 8 + dev::lane() % 4 * 2 + i % 2;
    if (row >= rows) continue;
    const auto both = held.load_as<TwoFloats>(i * 2 * dev::kWarp);
    store(row, dev::lane() / 4 + i / 2 % 2 * 8, both.at[0], both.at[1]);
  }
}

// Strips of all parts, one after the other.
struct TileProductWork {
  const ProductWork<1> strips;
  int first;

  KAKEYA_DEVICE int item(int number) const { return least(first + number, strips.items() - 1); }
  KAKEYA_DEVICE Strip strip(int number) const { return strips.strip(item(number), 0); }
  KAKEYA_DEVICE void store(int rows, const TileSums& sums) const {
    int items[2];
    const ProductPart* parts[2];
    int outputs[2];
    KAKEYA_UNROLL
    for (int s = 0; s < 2; ++s) {
      const int own = first + warp_strip() + s;
      items[s] = item(warp_strip() + s);
      parts[s] = &strips.p.parts[strips.part_of(items[s])];
      outputs[s] = own < strips.items() ? strip_outputs(parts[s]->weight.rows, items[s]) : 0;
    }
    store_tile(rows, sums, [&](int row, int output, float one, float other) {
      KAKEYA_UNROLL
      for (int s = 0; s < 2; ++s) {
        if (output >= outputs[s]) continue;
        dev::Global<float>(parts[s]->out)
            .store((strips.first_row + row) * parts[s]->weight.rows + items[s] * kStripOutputs +
                       output,
                   s == 0 ? one : other);
      }
    });
  }
};

// Grid: tiles of eight strips times tiles of rows.
KAKEYA_DEVICE void integer_product_tiles(const IntegerProductParams& p) {
  const BlockTile at(p.rows.count, p.plan.tile_rows);
  const std::int64_t first_row = at.row_tile * p.plan.tile_rows;
  const TileRows tile(p.rows, first_row);
  multiply_tile(p.rows, tile, least(tile.count, p.plan.tile_rows),
                TileProductWork{{p, first_row}, static_cast<int>(at.output_tile) * kTileStrips});
}

// Gates and what they gate: four strips of each, next to each other.
template <typename RowOf>
struct TileGatedWork {
  const GatedStrips strips;
  std::int64_t matrix;
  int first;
  float* out;
  const RowOf& row_of;  // the number in `out` of a row of the tile

  KAKEYA_DEVICE Strip strip(int number) const {
    return strips.strip(matrix, least(first + number / 2, strips.items() - 1), number % 2);
  }
  KAKEYA_DEVICE void store(int rows, const TileSums& sums) const {
    const int item = first + warp_strip() / 2;
    if (item >= strips.items()) return;
    store_tile(rows, sums, [&](int row, int output, float gate, float up) {
      const float both[2] = {gate, up};
      strips.store_one(item, output, both, row_of(row), out);
    });
  }
};

// Grid: tiles of four strips of each matrix times tiles of rows.
KAKEYA_DEVICE void gated_integer_product_tiles(const GatedProductParams& p) {
  const BlockTile at(p.rows.count, p.plan.tile_rows);
  const std::int64_t first_row = at.row_tile * p.plan.tile_rows;
  const TileRows tile(p.rows, first_row);
  const auto row_of = [&](int row) { return first_row + row; };
  const TileGatedWork<decltype(row_of)> work = {
      {p.gate, p.up, p.silu}, 0, static_cast<int>(at.output_tile) * kTileStrips / 2, p.out, row_of};
  multiply_tile(p.rows, tile, least(tile.count, p.plan.tile_rows), work);
}

// Grid: tiles of four strips of each matrix, tiles of pairs.
KAKEYA_DEVICE void tiled_expert_hidden(const ExpertHiddenParams& p) {
  const ExpertTile tile = own_tile(p.groups);
  if (tile.count == 0) return;
  const auto row_of = [&](int row) { return pair_of(p.groups, tile, row); };
  const TileGatedWork<decltype(row_of)> work = {{p.gate, p.up, p.silu},
                                                tile.expert,
                                                static_cast<int>(dev::block_x()) * kTileStrips / 2,
                                                p.hidden,
                                                row_of};
  multiply_tile(p.rows, TileRows(tile, p.groups.order, p.top_k), tile.count, work);
}

struct TileOutputWork {
  const ExpertOutputParams& p;
  const ExpertTile& tile;
  int first;

  KAKEYA_DEVICE Strip strip(int number) const {
    return Strip(p.down, tile.expert, least(first + number, strips() - 1));
  }
  KAKEYA_DEVICE void store(int rows, const TileSums& sums) const {
    const std::int64_t from = (first + warp_strip()) * std::int64_t{kStripOutputs};
    store_tile(rows, sums, [&](int row, int output, float one, float other) {
      const std::int64_t pair = pair_of(p.groups, tile, row);
      const dev::Global<float> out(p.ranks);
      const std::int64_t n = from + output;
      if (n < p.down.rows) out.store(pair * p.down.rows + n, one);
      if (n + kStripOutputs < p.down.rows) {
        out.store(pair * p.down.rows + n + kStripOutputs, other);
      }
    });
  }

 private:
  KAKEYA_DEVICE int strips() const { return static_cast<int>(num_strips(p.down.rows)); }
};

// Grid: tiles of eight strips, tiles of pairs.
KAKEYA_DEVICE void tiled_expert_output(const ExpertOutputParams& p) {
  const ExpertTile tile = own_tile(p.groups);
  if (tile.count == 0) return;
  multiply_tile(p.rows, TileRows(tile, p.groups.order, 1), tile.count,
                TileOutputWork{p, tile, static_cast<int>(dev::block_x()) * kTileStrips});
}

}  // namespace kakeya::cuda::device
