// Products of rows with weights of bf16 on tensor cores, where activations are rounded to bf16. A
// warp takes 32 columns at a time: lane l has eight that follow each other, 8 (l % 4), of rows l /
// 4 of what is multiplied, which it loads at once. What tensor cores add up together has no order,
// so it may be any sixteen columns, as long as both sides agree.
//
// The order of a sum: warp w of eight takes columns 32 w + 256 i ... + 31, sixteen after sixteen;
// then warps ascending. How many rows and outputs a block has changes no bit.
#pragma once

#include "backend/cuda/device/products.h"

namespace kakeya::cuda::device {

inline constexpr int kTensorWarps = 8;
inline constexpr int kTensorOutputs = 16;  // of a tile
inline constexpr int kTensorRows = 8;
inline constexpr int kTensorColumns = 32;  // that a warp takes at a time
inline constexpr int kTileSums = kTensorOutputs * kTensorRows;

KAKEYA_DEVICE bool is_for_tensor_cores(const Weight& w) {
  return w.type == WeightType::kBf16 && w.rounds_rows && w.cols % kTensorColumns == 0;
}

// How a block shares its work: tiles of outputs, tiles of rows, and how many times 32 columns are
// loaded before the first of them is used.
template <int kOutputTiles_, int kRowTiles_, int kAhead_>
struct Tiling {
  static constexpr int kOutputTiles = kOutputTiles_;
  static constexpr int kRowTiles = kRowTiles_;
  static constexpr int kAhead = kAhead_;
  static constexpr int kRows = kRowTiles * kTensorRows;
  static constexpr int kOutputs = kOutputTiles * kTensorOutputs;
  static constexpr int kSums = kOutputTiles * kRowTiles * kTileSums;
  static constexpr int kSharedWords = kTensorWarps * kSums;
};
using FewRows = Tiling<1, 1, 4>;  // for up to eight rows
using FewGatedRows = Tiling<2, 1, 2>;
using SomeRows = Tiling<1, 2, 4>;  // for blocks of drafts: smaller tiles keep a card busy
using SomeGatedRows = Tiling<2, 2, 2>;
using ManyRows = Tiling<4, 4, 1>;
inline constexpr std::int64_t kMostSomeRows = 64;

// Sums of a warp: of its columns.
template <typename Tiles>
struct TensorSums {
  const ProductRows& in;
  std::int64_t first;
  // Lane l's rows l / 4 and l / 4 + 8 of each tile of outputs.
  const dev::Global<const FourWords> (&weights)[Tiles::kOutputTiles];
  std::int64_t (&rows)[Tiles::kOutputTiles][2];
  float (&sums)[Tiles::kOutputTiles][Tiles::kRowTiles][4];

  // kAhead times 32 columns, a step of all warps apart.
  template <int kAhead>
  KAKEYA_DEVICE void add(std::int64_t chunk) const {
    FourWords ahead[kAhead][Tiles::kOutputTiles][2];
    KAKEYA_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      const std::int64_t column = (chunk + j * kTensorWarps) * kTensorColumns + own_column();
      KAKEYA_UNROLL
      for (int o = 0; o < Tiles::kOutputTiles; ++o) {
        ahead[j][o][0] = weights[o].load((rows[o][0] * in.width + column) / 8);
        ahead[j][o][1] = weights[o].load((rows[o][1] * in.width + column) / 8);
      }
    }
    KAKEYA_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      const std::int64_t column = (chunk + j * kTensorWarps) * kTensorColumns + own_column();
      KAKEYA_UNROLL
      for (int t = 0; t < Tiles::kRowTiles; ++t) {
        std::uint32_t pairs[4];
        load_row(first + t * kTensorRows + dev::lane() / 4, column, pairs);
        KAKEYA_UNROLL
        for (int o = 0; o < Tiles::kOutputTiles; ++o) multiply(ahead[j][o], pairs, sums[o][t]);
      }
    }
  }

  KAKEYA_DEVICE void add_all() const {
    const std::int64_t chunks = in.width / kTensorColumns;
    std::int64_t chunk = dev::warp();
    for (; chunk + (Tiles::kAhead - 1) * kTensorWarps < chunks;
         chunk += Tiles::kAhead * kTensorWarps) {
      add<Tiles::kAhead>(chunk);
    }
    if constexpr (Tiles::kAhead > 2) {
      if (chunk + kTensorWarps < chunks) {
        add<2>(chunk);
        chunk += 2 * kTensorWarps;
      }
    }
    for (; chunk < chunks; chunk += kTensorWarps) add<1>(chunk);
  }

 private:
  static KAKEYA_DEVICE int own_column() { return dev::lane() % 4 * 8; }

  // Eight columns of a row, as bf16; zeros behind the last row.
  KAKEYA_DEVICE void load_row(std::int64_t row,
                              std::int64_t column,
                              std::uint32_t (&pairs)[4]) const {
    float values[8] = {};
    if (row < in.count) {
      const dev::Global<const FourFloats> x(reinterpret_cast<const FourFloats*>(in.x));
      const FourFloats low = x.load((row * in.width + column) / 4);
      const FourFloats high = x.load((row * in.width + column) / 4 + 1);
      KAKEYA_UNROLL
      for (int i = 0; i < 4; ++i) {
        values[i] = low.at[i];
        values[i + 4] = high.at[i];
      }
    }
    dev::bf16_pairs(values, pairs);
  }

  static KAKEYA_DEVICE void multiply(const FourWords (&weights)[2],
                                     const std::uint32_t (&pairs)[4],
                                     float (&sums)[4]) {
    KAKEYA_UNROLL
    for (int half = 0; half < 4; half += 2) {
      const std::uint32_t a[4] = {weights[0].at[half], weights[1].at[half], weights[0].at[half + 1],
                                  weights[1].at[half + 1]};
      const std::uint32_t b[2] = {pairs[half], pairs[half + 1]};
      dev::mma(sums, a, b);
    }
  }
};

// Number `i` of what each warp has shared, added up.
template <typename Tiles>
KAKEYA_DEVICE float sum_of_warps(const dev::Shared<float>& shared, int i) {
  float sum = shared.load(i);
  KAKEYA_UNROLL
  for (int w = 1; w < kTensorWarps; ++w) sum = sum + shared.load(w * Tiles::kSums + i);
  return sum;
}

// By a block: sums of its tiles, which it shares. Tile o of outputs begins at outputs[o] of w[o].
template <typename Tiles>
KAKEYA_DEVICE void share_sums(const ProductRows& in,
                              std::int64_t first,
                              const Weight* const (&w)[Tiles::kOutputTiles],
                              const std::int64_t (&outputs)[Tiles::kOutputTiles],
                              const dev::Shared<float>& shared) {
  const auto address = [&](int o) {
    return dev::Global<const FourWords>(static_cast<const FourWords*>(w[o]->data));
  };
  std::int64_t rows[Tiles::kOutputTiles][2];
  KAKEYA_UNROLL
  for (int o = 0; o < Tiles::kOutputTiles; ++o) {
    KAKEYA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int64_t row = outputs[o] + dev::lane() / 4 + 8 * i;
      rows[o][i] = row < w[o]->rows ? row : w[o]->rows - 1;
    }
  }
  float sums[Tiles::kOutputTiles][Tiles::kRowTiles][4] = {};
  if constexpr (Tiles::kOutputTiles == 1) {
    const dev::Global<const FourWords> weights[1] = {address(0)};
    TensorSums<Tiles>{in, first, weights, rows, sums}.add_all();
  } else if constexpr (Tiles::kOutputTiles == 2) {
    const dev::Global<const FourWords> weights[2] = {address(0), address(1)};
    TensorSums<Tiles>{in, first, weights, rows, sums}.add_all();
  } else {
    const dev::Global<const FourWords> weights[4] = {address(0), address(1), address(2),
                                                     address(3)};
    TensorSums<Tiles>{in, first, weights, rows, sums}.add_all();
  }
  KAKEYA_UNROLL
  for (int o = 0; o < Tiles::kOutputTiles; ++o) {
    KAKEYA_UNROLL
    for (int t = 0; t < Tiles::kRowTiles; ++t) {
      KAKEYA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int tile = o * Tiles::kRowTiles + t;
        shared.store(dev::warp() * Tiles::kSums + tile * kTileSums + i * dev::kWarp + dev::lane(),
                     sums[o][t][i]);
      }
    }
  }
  dev::sync_block();
}

// Which sum number i of a tile is: lanes have two rows of each of two outputs.
struct SumPlace {
  int output;
  int row;

  KAKEYA_DEVICE explicit SumPlace(int i)
      : output(i % dev::kWarp / 4 + i / (2 * dev::kWarp) * 8),
        row(i % 4 * 2 + i / dev::kWarp % 2) {}
};

template <typename Tiles>
KAKEYA_DEVICE void tensor_product_tile(const ProductParams& p) {
  const dev::Shared<float> shared(0);
  const BlockTile at(p.rows.count, Tiles::kRows);
  const std::int64_t begin = at.output_tile * Tiles::kOutputs;
  const std::int64_t first = at.row_tile * Tiles::kRows;
  const Weight* w[Tiles::kOutputTiles];
  std::int64_t outputs[Tiles::kOutputTiles];
  KAKEYA_UNROLL
  for (int o = 0; o < Tiles::kOutputTiles; ++o) {
    w[o] = &p.weight;
    outputs[o] = begin + o * kTensorOutputs;
  }
  share_sums<Tiles>(p.rows, first, w, outputs, shared);
  const dev::Global<float> out(p.out);
  for (int i = dev::thread(); i < Tiles::kSums; i += kTensorWarps * dev::kWarp) {
    const int tile = i / kTileSums;
    const SumPlace place(i % kTileSums);
    const std::int64_t n = begin + tile / Tiles::kRowTiles * kTensorOutputs + place.output;
    const std::int64_t row = first + tile % Tiles::kRowTiles * kTensorRows + place.row;
    if (n < p.weight.rows && row < p.rows.count) {
      out.store(row * p.weight.rows + n, sum_of_warps<Tiles>(shared, i));
    }
  }
}

// Grid: outputs / kOutputs times rows / kRows of FewRows.
KAKEYA_DEVICE void tensor_product(const ProductParams& p) {
  tensor_product_tile<FewRows>(p);
}

// Grid: outputs / kOutputs times rows / kRows of SomeRows.
KAKEYA_DEVICE void tensor_product_some(const ProductParams& p) {
  tensor_product_tile<SomeRows>(p);
}

// Grid: outputs / kOutputs times rows / kRows of ManyRows.
KAKEYA_DEVICE void tensor_product_rows(const ProductParams& p) {
  tensor_product_tile<ManyRows>(p);
}

// The first half of the tiles of outputs are gates, the other half what they are for.
template <typename Tiles>
KAKEYA_DEVICE void gated_tensor_tile(const GatedProductParams& p) {
  constexpr int kHalf = Tiles::kOutputTiles / 2;
  const dev::Shared<float> shared(0);
  const BlockTile at(p.rows.count, Tiles::kRows);
  const std::int64_t begin = at.output_tile * kHalf * kTensorOutputs;
  const std::int64_t first = at.row_tile * Tiles::kRows;
  const Weight* w[Tiles::kOutputTiles];
  std::int64_t outputs[Tiles::kOutputTiles];
  KAKEYA_UNROLL
  for (int o = 0; o < Tiles::kOutputTiles; ++o) {
    w[o] = o < kHalf ? &p.gate : &p.up;
    outputs[o] = begin + o % kHalf * kTensorOutputs;
  }
  share_sums<Tiles>(p.rows, first, w, outputs, shared);
  const dev::Global<float> out(p.out);
  for (int i = dev::thread(); i < Tiles::kSums / 2; i += kTensorWarps * dev::kWarp) {
    const int tile = i / kTileSums;
    const SumPlace place(i % kTileSums);
    const std::int64_t n = begin + tile / Tiles::kRowTiles * kTensorOutputs + place.output;
    const std::int64_t row = first + tile % Tiles::kRowTiles * kTensorRows + place.row;
    if (n >= p.gate.rows || row >= p.rows.count) continue;
    const float gate = sum_of_warps<Tiles>(shared, i);
    const float other = sum_of_warps<Tiles>(shared, i + Tiles::kSums / 2);
    out.store(row * p.gate.rows + n, gated(p.silu, gate, other));
  }
}

// Grid: outputs / kTensorOutputs times rows / kRows of FewGatedRows.
KAKEYA_DEVICE void gated_tensor_product(const GatedProductParams& p) {
  gated_tensor_tile<FewGatedRows>(p);
}

// Grid: outputs / kTensorOutputs times rows / kRows of SomeGatedRows.
KAKEYA_DEVICE void gated_tensor_product_some(const GatedProductParams& p) {
  gated_tensor_tile<SomeGatedRows>(p);
}

// Grid: outputs / kTensorOutputs / 2 times rows / kRows of ManyRows.
KAKEYA_DEVICE void gated_tensor_product_rows(const GatedProductParams& p) {
  gated_tensor_tile<ManyRows>(p);
}

}  // namespace kakeya::cuda::device
