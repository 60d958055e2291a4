// Products of rows with weights. The order of a sum: lane l of 32 takes columns 4 l + 128 i ... +
// 3, fma after fma; then pairs of lanes. How many rows share a reading of the weights, and how many
// outputs of a warp share one of the rows, changes no bit. Weights of integers: integer_products.h.
#pragma once

#include "backend/cuda/device/math.h"
#include "backend/cuda/device/params.h"

namespace kakeya::cuda::device {

inline constexpr int kProductWarps = 4;    // of a block
inline constexpr int kProductRowTile = 8;  // rows that share a reading of the weights
inline constexpr int kWarpOutputs = 2;     // that share a reading of the rows

// Four columns, loaded at once.
struct alignas(16) FourFloats {
  float at[4];

  KAKEYA_DEVICE float value(int i) const { return at[i]; }
};
struct alignas(8) FourBfloats {
  std::uint16_t at[4];

  KAKEYA_DEVICE float value(int i) const { return bf16_to_float(at[i]); }
};
struct alignas(8) FourHalves {
  std::uint16_t at[4];

  KAKEYA_DEVICE float value(int i) const { return half_to_float(at[i]); }
};
struct alignas(8) TwoFloats {
  float at[2];
};
struct alignas(16) FourWords {
  std::uint32_t at[4];
};

// A row of stacked matrices.
struct WeightRow {
  const Weight* of;
  std::int64_t row;
};

// Element of one of the stacked rows, which has no integers.
KAKEYA_DEVICE float float_weight(const Weight& w, std::int64_t index) {
  if (w.type == WeightType::kF32) {
    return dev::Global<const float>(static_cast<const float*>(w.data)).load(index);
  }
  const auto bits =
      dev::Global<const std::uint16_t>(static_cast<const std::uint16_t*>(w.data)).load(index);
  return w.type == WeightType::kBf16 ? bf16_to_float(bits) : half_to_float(bits);
}

template <typename Fours>
KAKEYA_DEVICE dev::Global<const Fours> fours_of(const WeightRow& w) {
  constexpr auto kElementBytes = static_cast<std::int64_t>(sizeof(Fours) / 4);
  return dev::Global<const Fours>(reinterpret_cast<const Fours*>(
      static_cast<const std::uint8_t*>(w.of->data) + w.row * w.of->cols * kElementBytes));
}

// Which rows of ProductRows a tile has: neighbours, or those of pairs of rows and ranks.
struct TileRows {
  std::int64_t first;
  std::int64_t count;         // of the tile, at least 1
  const std::int32_t* order;  // null: neighbours
  std::int64_t pairs_of_row;

  // Neighbours, as far as there are rows.
  KAKEYA_DEVICE TileRows(const ProductRows& in, std::int64_t first_row)
      : first(first_row), count(in.count - first_row), order(nullptr), pairs_of_row(1) {}
  // The rows of pairs.
  KAKEYA_DEVICE TileRows(const ExpertTile& tile, const std::int32_t* pairs, std::int64_t of_row)
      : first(tile.first), count(tile.count), order(pairs), pairs_of_row(of_row) {}

  // The number of row i; behind the last row stands that one again.
  KAKEYA_DEVICE std::int64_t row(int i) const {
    const std::int64_t at = first + (i < count ? i : count - 1);
    if (order == nullptr) return at;
    // Division of 64 bits is slow.
    return static_cast<std::uint32_t>(dev::Global<const std::int32_t>(order).load(at)) /
           static_cast<std::uint32_t>(pairs_of_row);
  }
};

template <int kRows>
struct RowNumbers {
  std::int64_t at[kRows];

  KAKEYA_DEVICE explicit RowNumbers(const TileRows& rows) {
    KAKEYA_UNROLL
    for (int r = 0; r < kRows; ++r) at[r] = rows.row(r);
  }
};

// Sums of kOutputs rows of weights with kRows rows, four columns at a time. kRounds: rows are
// rounded to bf16.
template <int kRows, int kOutputs, typename Fours, bool kRounds>
struct FourSums {
  const ProductRows& in;
  const Weight& w;
  const RowNumbers<kRows>& rows;
  const dev::Global<const Fours> (&weights)[kOutputs];
  float (&sums)[kOutputs][kRows];

  // `kAhead` times 128 columns, whose weights are all loaded before the first of them is used.
  // kBounded: some lanes may be behind the end.
  template <int kAhead, bool kBounded>
  KAKEYA_DEVICE void add(std::int64_t begin) const {
    const dev::Global<const FourFloats> x(reinterpret_cast<const FourFloats*>(in.x));
    const std::int64_t fours = w.cols / 4;
    if (kBounded && begin + dev::lane() >= fours) return;
    Fours ahead[kAhead][kOutputs];
    KAKEYA_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      KAKEYA_UNROLL
      for (int o = 0; o < kOutputs; ++o) {
        ahead[j][o] = weights[o].load(begin + j * dev::kWarp + dev::lane());
      }
    }
    KAKEYA_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      KAKEYA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        FourFloats values = x.load(rows.at[r] * fours + begin + j * dev::kWarp + dev::lane());
        if constexpr (kRounds) dev::round_to_bf16(values.at);
        KAKEYA_UNROLL
        for (int i = 0; i < 4; ++i) {
          KAKEYA_UNROLL
          for (int o = 0; o < kOutputs; ++o) {
            sums[o][r] = dev::fma(values.at[i], ahead[j][o].value(i), sums[o][r]);
          }
        }
      }
    }
  }

  KAKEYA_DEVICE void add_all() const {
    constexpr int kAhead = kRows * kOutputs <= 2 ? 8 : 4;
    const std::int64_t fours = w.cols / 4;
    std::int64_t begin = 0;
    for (; begin + kAhead * dev::kWarp <= fours; begin += kAhead * dev::kWarp) {
      add<kAhead, false>(begin);
    }
    if (begin + 4 * dev::kWarp <= fours) {
      add<4, false>(begin);
      begin += 4 * dev::kWarp;
    }
    if (begin + 2 * dev::kWarp <= fours) {
      add<2, false>(begin);
      begin += 2 * dev::kWarp;
    }
    for (; begin < fours; begin += dev::kWarp) add<1, true>(begin);
  }
};

// Column by column, where rows of weights are not aligned.
template <int kRows>
KAKEYA_DEVICE void add_columns(const ProductRows& in,
                               const RowNumbers<kRows>& rows,
                               const WeightRow& w,
                               float (&sums)[kRows]) {
  const dev::Global<const float> x(in.x);
  const std::int64_t cols = w.of->cols;
  for (std::int64_t begin = 4 * dev::lane(); begin < cols; begin += 4 * dev::kWarp) {
    for (std::int64_t k = begin; k < begin + 4 && k < cols; ++k) {
      const float weight = float_weight(*w.of, w.row * cols + k);
      KAKEYA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float value = x.load(rows.at[r] * cols + k);
        sums[r] = dev::fma(w.of->rounds_rows ? bf16_to_float(float_to_bf16(value)) : value, weight,
                           sums[r]);
      }
    }
  }
}

// Lane r's of `sums`, once lanes are added up.
template <int kRows>
KAKEYA_DEVICE float own_sum(float (&sums)[kRows]) {
  dev::warp_sums(sums);
  float own = 0.0F;
  KAKEYA_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (dev::lane() == r) own = sums[r];
  }
  return own;
}

// True if the weights are bf16 and meet rounded rows.
KAKEYA_DEVICE bool is_fast_bf16(const Weight& w) {
  return w.type == WeightType::kBf16 && w.rounds_rows && w.cols % 4 == 0;
}

template <typename Fours, bool kRounds, int kRows>
KAKEYA_DEVICE void add_fours(const ProductRows& in,
                             const RowNumbers<kRows>& rows,
                             const WeightRow& w,
                             float (&sums)[1][kRows]) {
  const dev::Global<const Fours> weights[1] = {fours_of<Fours>(w)};
  FourSums<kRows, 1, Fours, kRounds>{in, *w.of, rows, weights, sums}.add_all();
}

template <int kRows>
KAKEYA_DEVICE float float_product(const ProductRows& in,
                                  const RowNumbers<kRows>& rows,
                                  const WeightRow& w) {
  float sums[1][kRows] = {};
  if (is_fast_bf16(*w.of)) {
    add_fours<FourBfloats, true>(in, rows, w, sums);
  } else if (w.of->cols % 4 != 0 || w.of->rounds_rows) {
    add_columns(in, rows, w, sums[0]);
  } else if (w.of->type == WeightType::kF32) {
    add_fours<FourFloats, false>(in, rows, w, sums);
  } else if (w.of->type == WeightType::kBf16) {
    add_fours<FourBfloats, false>(in, rows, w, sums);
  } else {
    add_fours<FourHalves, false>(in, rows, w, sums);
  }
  return own_sum(sums[0]);
}

template <int kRows>
KAKEYA_DEVICE void add_bfloats(const ProductRows& in,
                               const RowNumbers<kRows>& rows,
                               const WeightRow (&w)[2],
                               float (&sums)[2][kRows]) {
  const dev::Global<const FourBfloats> weights[2] = {fours_of<FourBfloats>(w[0]),
                                                     fours_of<FourBfloats>(w[1])};
  FourSums<kRows, 2, FourBfloats, true>{in, *w[0].of, rows, weights, sums}.add_all();
}
template <int kRows>
KAKEYA_DEVICE void add_bfloats(const ProductRows& in,
                               const RowNumbers<kRows>& rows,
                               const WeightRow (&w)[4],
                               float (&sums)[4][kRows]) {
  const dev::Global<const FourBfloats> weights[4] = {
      fours_of<FourBfloats>(w[0]), fours_of<FourBfloats>(w[1]), fours_of<FourBfloats>(w[2]),
      fours_of<FourBfloats>(w[3])};
  FourSums<kRows, 4, FourBfloats, true>{in, *w[0].of, rows, weights, sums}.add_all();
}

// Computes in lane r the products of row r of a tile with rows of weights.
template <int kRows, int kOutputs>
KAKEYA_DEVICE void products(const ProductRows& in,
                            const TileRows& tile,
                            const WeightRow (&w)[kOutputs],
                            float (&own)[kOutputs]) {
  const RowNumbers<kRows> rows(tile);
  if constexpr (kOutputs > 1) {
    if (is_fast_bf16(*w[0].of) && is_fast_bf16(*w[kOutputs - 1].of)) {
      float sums[kOutputs][kRows] = {};
      add_bfloats(in, rows, w, sums);
      KAKEYA_UNROLL
      for (int o = 0; o < kOutputs; ++o) own[o] = own_sum(sums[o]);
      return;
    }
  }
  KAKEYA_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    own[o] = float_product<kRows>(in, rows, w[o]);
  }
}

// The tile of outputs and rows of a block. Tiles of rows lie side by side, so that they share what
// the cache has of weights.
struct BlockTile {
  std::int64_t output_tile;
  std::int64_t row_tile;

  KAKEYA_DEVICE BlockTile(std::int64_t rows, int rows_of_tile) {
    // Grids have less than 2^31 blocks; division of 64 bits is slow.
    const auto tiles = (static_cast<std::uint32_t>(rows) + rows_of_tile - 1) / rows_of_tile;
    const auto block = static_cast<std::uint32_t>(dev::block_x());
    output_tile = block / tiles;
    row_tile = block % tiles;
  }
};

// The warp of a grid.
KAKEYA_DEVICE std::int64_t product_warp() {
  return dev::block_x() * kProductWarps + dev::warp();
}

template <int kRows, int kOutputs>
KAKEYA_DEVICE void product_tile(const ProductParams& p) {
  const std::int64_t n = product_warp() * kOutputs;
  const std::int64_t first = dev::block_y() * kRows;
  if (n >= p.weight.rows) return;
  WeightRow rows[kOutputs];
  KAKEYA_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    rows[o] = {&p.weight, n + o < p.weight.rows ? n + o : p.weight.rows - 1};
  }
  float own[kOutputs];
  products<kRows>(p.rows, TileRows(p.rows, first), rows, own);
  if (dev::lane() >= kRows || first + dev::lane() >= p.rows.count) return;
  const dev::Global<float> out(p.out);
  KAKEYA_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    if (n + o < p.weight.rows) out.store((first + dev::lane()) * p.weight.rows + n + o, own[o]);
  }
}

// Grid: outputs / kProductWarps / kWarpOutputs, rows / kProductRowTile.
KAKEYA_DEVICE void product(const ProductParams& p) {
  product_tile<kProductRowTile, kWarpOutputs>(p);
}

// Takes each row by itself, with fewer registers. Grid: outputs / kProductWarps, rows.
KAKEYA_DEVICE void row_product(const ProductParams& p) {
  product_tile<1, 1>(p);
}

KAKEYA_DEVICE float gated(bool silu, float gate, float other) {
  return static_cast<float>(activate(silu, gate) * other);
}

template <int kRows>
KAKEYA_DEVICE void gated_tile(const GatedProductParams& p) {
  const std::int64_t n = product_warp();
  const std::int64_t first = dev::block_y() * kProductRowTile;
  if (n >= p.gate.rows) return;
  const WeightRow rows[2] = {{&p.gate, n}, {&p.up, n}};
  float own[2];
  products<kRows>(p.rows, TileRows(p.rows, first), rows, own);
  if (dev::lane() >= kRows || first + dev::lane() >= p.rows.count) return;
  dev::Global<float>(p.out).store((first + dev::lane()) * p.gate.rows + n,
                                  gated(p.silu, own[0], own[1]));
}

// Grid: outputs / kProductWarps, rows / kProductRowTile.
KAKEYA_DEVICE void gated_product(const GatedProductParams& p) {
  gated_tile<kProductRowTile>(p);
}

// The gated product with one row. Grid: outputs / kProductWarps.
KAKEYA_DEVICE void gated_row_product(const GatedProductParams& p) {
  gated_tile<1>(p);
}

// Grid: F / kProductWarps, rows * top_k.
KAKEYA_DEVICE void expert_hidden(const ExpertHiddenParams& p) {
  const std::int64_t n = product_warp();
  if (n >= p.gate.rows) return;
  const std::int64_t expert = dev::Global<const std::int32_t>(p.experts).load(dev::block_y());
  const WeightRow rows[2] = {{&p.gate, expert * p.gate.rows + n}, {&p.up, expert * p.up.rows + n}};
  float own[2];
  products<1>(p.rows, TileRows(p.rows, dev::block_y() / p.top_k), rows, own);
  if (dev::lane() != 0) return;
  dev::Global<float>(p.hidden).store(dev::block_y() * p.gate.rows + n,
                                     gated(p.silu, own[0], own[1]));
}

inline constexpr int kExpertOutputs = 4;  // of a block
// Shared words: what each output comes to with each rank.
KAKEYA_DEVICE int expert_output_words(std::int64_t top_k) {
  return kExpertOutputs * static_cast<int>(top_k);
}

// An output of row `row`: for ranks ascending, the value that `load` gives for each is multiplied
// by its weight, then added.
template <typename Load>
KAKEYA_DEVICE float weighed_ranks(const ExpertOutputParams& p, std::int64_t row, const Load& load) {
  const dev::Global<const float> weights(p.weights);
  float total = 0.0F;
  for (int rank = 0; rank < static_cast<int>(p.top_k); ++rank) {
    const float weighted = weights.load(row * p.top_k + rank) * load(rank);
    total = total + weighted;
  }
  return total;
}

// Warps take ranks. Then ranks are added up ascending: each is multiplied,
// then added. Grid: D / kExpertOutputs, rows.
KAKEYA_DEVICE void expert_output(const ExpertOutputParams& p) {
  const dev::Global<const std::int32_t> experts(p.experts);
  const dev::Shared<float> sums(0);
  const int top_k = static_cast<int>(p.top_k);
  const std::int64_t first = dev::block_x() * kExpertOutputs;
  const std::int64_t rank_row = dev::block_y() * p.top_k;
  const auto bounded = [&](std::int64_t n) { return n < p.down.rows ? n : p.down.rows - 1; };
  for (int rank = dev::warp(); rank < top_k; rank += kProductWarps) {
    const std::int64_t expert = experts.load(rank_row + rank) * p.down.rows;
    WeightRow rows[kExpertOutputs];
    KAKEYA_UNROLL
    for (int o = 0; o < kExpertOutputs; ++o) rows[o] = {&p.down, expert + bounded(first + o)};
    float own[kExpertOutputs];
    products<1>(p.rows, TileRows(p.rows, rank_row + rank), rows, own);
    if (dev::lane() != 0) continue;
    KAKEYA_UNROLL
    for (int o = 0; o < kExpertOutputs; ++o) sums.store(o * top_k + rank, own[o]);
  }
  dev::sync_block();
  const std::int64_t n = first + dev::thread();
  if (dev::thread() >= kExpertOutputs || n >= p.down.rows) return;
  const auto shared = [&](int rank) { return sums.load(dev::thread() * top_k + rank); };
  dev::Global<float>(p.out).store(dev::block_y() * p.down.rows + n,
                                  weighed_ranks(p, dev::block_y(), shared));
}

}  // namespace kakeya::cuda::device
