// Products of rows with weights. The order of a sum: lane l of 32 takes columns 4 l + 128 i ... +
// 3, fma after fma; then pairs of lanes. Of integers: as backend.h says. How many rows share a
// reading of the weights, and how many outputs of a warp share one of the rows, changes no bit.
#pragma once

#include "backend/cuda/device/math.h"
#include "backend/cuda/device/params.h"

namespace kakeya::cuda::device {

inline constexpr int kProductWarps = 4;    // of a block
inline constexpr int kProductRowTile = 8;  // rows that share a reading of the weights
// Of shared memory, for runs of integers: eight numbers for each run of a warp and each row. A
// word more than a warp has lanes keeps rows in different banks.
inline constexpr int kTermRow = dev::kWarp + 1;
KAKEYA_DEVICE int product_words(std::int64_t rows) {
  return kProductWarps * 8 * kTermRow * (rows == 1 ? 1 : kProductRowTile);
}
// Outputs of a warp.
KAKEYA_DEVICE int warp_outputs(std::int64_t rows) {
  return rows == 1 ? 1 : 2;
}

// What is loaded at once: four columns.
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

// Sums of kOutputs rows of weights with kRows rows from `first` on, four columns at a time. Behind
// the last row stands that row again. kRounds: rows are rounded to bf16.
template <int kRows, int kOutputs, typename Fours, bool kRounds>
struct FourSums {
  const ProductRows& in;
  const Weight& w;
  std::int64_t first;
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
        const std::int64_t row = first + r < in.count ? first + r : in.count - 1;
        FourFloats values = x.load(row * fours + begin + j * dev::kWarp + dev::lane());
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
                               std::int64_t first,
                               const WeightRow& w,
                               float (&sums)[kRows]) {
  const dev::Global<const float> x(in.x);
  const std::int64_t cols = w.of->cols;
  for (std::int64_t begin = 4 * dev::lane(); begin < cols; begin += 4 * dev::kWarp) {
    for (std::int64_t k = begin; k < begin + 4 && k < cols; ++k) {
      const float weight = float_weight(*w.of, w.row * cols + k);
      KAKEYA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t row = first + r < in.count ? first + r : in.count - 1;
        const float value = x.load(row * cols + k);
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

// Whether rows of weights are bf16 that meets rounded rows.
KAKEYA_DEVICE bool is_fast_bf16(const Weight& w) {
  return w.type == WeightType::kBf16 && w.rounds_rows && w.cols % 4 == 0;
}

template <typename Fours, bool kRounds, int kRows>
KAKEYA_DEVICE void add_fours(const ProductRows& in,
                             std::int64_t first,
                             const WeightRow& w,
                             float (&sums)[1][kRows]) {
  const dev::Global<const Fours> weights[1] = {fours_of<Fours>(w)};
  FourSums<kRows, 1, Fours, kRounds>{in, *w.of, first, weights, sums}.add_all();
}

template <int kRows>
KAKEYA_DEVICE float float_product(const ProductRows& in, std::int64_t first, const WeightRow& w) {
  float sums[1][kRows] = {};
  if (is_fast_bf16(*w.of)) {
    add_fours<FourBfloats, true>(in, first, w, sums);
  } else if (w.of->cols % 4 != 0 || w.of->rounds_rows) {
    add_columns(in, first, w, sums[0]);
  } else if (w.of->type == WeightType::kF32) {
    add_fours<FourFloats, false>(in, first, w, sums);
  } else if (w.of->type == WeightType::kBf16) {
    add_fours<FourBfloats, false>(in, first, w, sums);
  } else {
    add_fours<FourHalves, false>(in, first, w, sums);
  }
  return own_sum(sums[0]);
}

// What one half of a run (or all of it) comes to, but for the sum.
struct RunProduct {
  int products = 0;
  int codes = 0;

  KAKEYA_DEVICE void add(const FourWords& weights, const FourWords& row, int begin, int end) {
    KAKEYA_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (i < begin || i >= end) continue;
      products = dev::dot4(weights.at[i], row.at[i], products);
      codes = dev::dot4(0x01010101U, row.at[i], codes);
    }
  }
};

// The warp's own terms of sums: number `part` of four (products, scale, minimum, codes) of a run.
struct Terms {
  dev::Shared<float> words;
  int rows;

  KAKEYA_DEVICE int place(int part, int row, int run) const {
    return (part * rows + row) * kTermRow + run;
  }
  KAKEYA_DEVICE void store(int half,
                           int row,
                           const RunProduct& sum,
                           int zero,
                           float scale,
                           float step,
                           float minimum) const {
    const int run = dev::lane();
    words.store(place(4 * half, row, run), static_cast<float>(sum.products - zero * sum.codes));
    words.store(place(4 * half + 1, row, run), scale * step);
    words.store(place(4 * half + 2, row, run), minimum);
    words.store(place(4 * half + 3, row, run), step * static_cast<float>(sum.codes));
  }
  // Adds terms of runs 0 ... to the sum of a row, in their order.
  KAKEYA_DEVICE float add(float sum, int row, int runs, int halves, bool has_minimum) const {
    for (int run = 0; run < runs; ++run) {
      for (int half = 0; half < halves; ++half) {
        sum = dev::fma(words.load(place(4 * half, row, run)),
                       words.load(place(4 * half + 1, row, run)), sum);
        if (!has_minimum) continue;
        sum = dev::fma(words.load(place(4 * half + 2, row, run)),
                       words.load(place(4 * half + 3, row, run)), sum);
      }
    }
    return sum;
  }
};

// Lanes take runs of the weights. Lane r adds up what row r of them comes to, in their order.
template <int kRows>
KAKEYA_DEVICE float integer_product(const ProductRows& in, std::int64_t first, const WeightRow& w) {
  const dev::Global<const FourWords> codes(reinterpret_cast<const FourWords*>(in.codes));
  const dev::Global<const float> steps(in.steps);
  const dev::Global<const FourWords> weights(static_cast<const FourWords*>(w.of->data));
  const Terms terms = {dev::Shared<float>(dev::warp() * 8 * kTermRow * kRows), kRows};
  const std::int64_t num_runs = w.of->cols / 32;
  const int halves = w.of->halves ? 2 : 1;
  float sum = 0.0F;
  for (std::int64_t begin = 0; begin < num_runs; begin += dev::kWarp) {
    const std::int64_t own = begin + dev::lane();
    if (own < num_runs) {
      const std::int64_t at = (w.row * num_runs + own) * (kIntegerRunWords / 4);
      const FourWords low = weights.load(at);
      const FourWords high = weights.load(at + 1);
      const FourWords scales = weights.load(at + kIntegerScaleWord / 4);
      float scale[4];
      KAKEYA_UNROLL
      for (int i = 0; i < 4; ++i) scale[i] = dev::float_of(scales.at[i]);
      KAKEYA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t row = first + r < in.count ? first + r : in.count - 1;
        const std::int64_t run = row * num_runs + own;
        const float step = steps.load(run);
        RunProduct one;
        one.add(low, codes.load(2 * run), 0, 4);
        RunProduct other = w.of->halves ? RunProduct() : one;
        other.add(high, codes.load(2 * run + 1), 0, 4);
        if (w.of->halves) {
          terms.store(0, r, one, w.of->zero, scale[0], step, scale[2]);
          terms.store(1, r, other, w.of->zero, scale[1], step, scale[3]);
        } else {
          terms.store(0, r, other, w.of->zero, scale[0], step, scale[2]);
        }
      }
    }
    dev::sync_warp();
    const std::int64_t left = num_runs - begin;
    if (dev::lane() < kRows) {
      sum = terms.add(sum, dev::lane(), left < dev::kWarp ? static_cast<int>(left) : dev::kWarp,
                      halves, w.of->has_minimum);
    }
    dev::sync_warp();
  }
  return sum;
}

template <int kRows>
KAKEYA_DEVICE void add_bfloats(const ProductRows& in,
                               std::int64_t first,
                               const WeightRow (&w)[2],
                               float (&sums)[2][kRows]) {
  const dev::Global<const FourBfloats> weights[2] = {fours_of<FourBfloats>(w[0]),
                                                     fours_of<FourBfloats>(w[1])};
  FourSums<kRows, 2, FourBfloats, true>{in, *w[0].of, first, weights, sums}.add_all();
}
template <int kRows>
KAKEYA_DEVICE void add_bfloats(const ProductRows& in,
                               std::int64_t first,
                               const WeightRow (&w)[4],
                               float (&sums)[4][kRows]) {
  const dev::Global<const FourBfloats> weights[4] = {
      fours_of<FourBfloats>(w[0]), fours_of<FourBfloats>(w[1]), fours_of<FourBfloats>(w[2]),
      fours_of<FourBfloats>(w[3])};
  FourSums<kRows, 4, FourBfloats, true>{in, *w[0].of, first, weights, sums}.add_all();
}

// In lane r: products of row first + r of `in` with rows of weights.
template <int kRows, int kOutputs>
KAKEYA_DEVICE void products(const ProductRows& in,
                            std::int64_t first,
                            const WeightRow (&w)[kOutputs],
                            float (&own)[kOutputs]) {
  if constexpr (kOutputs > 1) {
    if (is_fast_bf16(*w[0].of) && is_fast_bf16(*w[kOutputs - 1].of)) {
      float sums[kOutputs][kRows] = {};
      add_bfloats(in, first, w, sums);
      KAKEYA_UNROLL
      for (int o = 0; o < kOutputs; ++o) own[o] = own_sum(sums[o]);
      return;
    }
  }
  KAKEYA_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    own[o] = w[o].of->type == WeightType::kIntegers ? integer_product<kRows>(in, first, w[o])
                                                    : float_product<kRows>(in, first, w[o]);
  }
}

// The warp of a grid.
KAKEYA_DEVICE std::int64_t product_warp() {
  return dev::block_x() * kProductWarps + dev::warp();
}

template <int kRows, int kOutputs>
KAKEYA_DEVICE void product_tile(const ProductParams& p) {
  const std::int64_t n = product_warp() * kOutputs;
  const std::int64_t first = dev::block_y() * kProductRowTile;
  if (n >= p.weight.rows) return;
  WeightRow rows[kOutputs];
  KAKEYA_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    rows[o] = {&p.weight, n + o < p.weight.rows ? n + o : p.weight.rows - 1};
  }
  float own[kOutputs];
  products<kRows>(p.rows, first, rows, own);
  if (dev::lane() >= kRows || first + dev::lane() >= p.rows.count) return;
  const dev::Global<float> out(p.out);
  KAKEYA_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    if (n + o < p.weight.rows) out.store((first + dev::lane()) * p.weight.rows + n + o, own[o]);
  }
}

// Grid: outputs / kProductWarps / warp_outputs(rows), rows / kProductRowTile.
KAKEYA_DEVICE void product(const ProductParams& p) {
  product_tile<kProductRowTile, 2>(p);
}

// Of one row, with fewer registers. Grid: outputs / kProductWarps.
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
  products<kRows>(p.rows, first, rows, own);
  if (dev::lane() >= kRows || first + dev::lane() >= p.rows.count) return;
  dev::Global<float>(p.out).store((first + dev::lane()) * p.gate.rows + n,
                                  gated(p.silu, own[0], own[1]));
}

// Grid: outputs / kProductWarps, rows / kProductRowTile.
KAKEYA_DEVICE void gated_product(const GatedProductParams& p) {
  gated_tile<kProductRowTile>(p);
}

// Of one row. Grid: outputs / kProductWarps.
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
  products<1>(p.rows, dev::block_y() / p.top_k, rows, own);
  if (dev::lane() != 0) return;
  dev::Global<float>(p.hidden).store(dev::block_y() * p.gate.rows + n,
                                     gated(p.silu, own[0], own[1]));
}

inline constexpr int kExpertOutputs = 4;  // of a block
// Shared words: those of products, then what each output comes to with each rank.
KAKEYA_DEVICE int expert_output_words(std::int64_t top_k) {
  return product_words(1) + kExpertOutputs * static_cast<int>(top_k);
}

// Warps take ranks. Then ranks are added up ascending: each is multiplied,
// then added. Grid: D / kExpertOutputs, rows.
KAKEYA_DEVICE void expert_output(const ExpertOutputParams& p) {
  const dev::Global<const std::int32_t> experts(p.experts);
  const dev::Shared<float> sums(product_words(1));
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
    products<1>(p.rows, rank_row + rank, rows, own);
    if (dev::lane() != 0) continue;
    KAKEYA_UNROLL
    for (int o = 0; o < kExpertOutputs; ++o) sums.store(o * top_k + rank, own[o]);
  }
  dev::sync_block();
  const std::int64_t n = first + dev::thread();
  if (dev::thread() >= kExpertOutputs || n >= p.down.rows) return;
  const dev::Global<const float> weights(p.weights);
  float total = 0.0F;
  for (int rank = 0; rank < top_k; ++rank) {
    const float weighted = weights.load(rank_row + rank) * sums.load(dev::thread() * top_k + rank);
    total = total + weighted;
  }
  dev::Global<float>(p.out).store(dev::block_y() * p.down.rows + n, total);
}

// Rows as products with integers see them. Grid: runs of 32 columns / kProductWarps, rows.
KAKEYA_DEVICE void round_rows(const RoundParams& p) {
  const std::int64_t run = product_warp();
  const std::int64_t num_runs = p.width / 32;
  if (run >= num_runs) return;
  const std::int64_t at = dev::block_y() * p.width + run * 32 + dev::lane();
  const float x = dev::Global<const float>(p.x).load(at);
  const float size = magnitude(x);
  const float largest = dev::warp_max(size > 0.0F ? size : 0.0F);  // NaN counts as 0 here
  const bool tiny = !(largest > 1e-36F);
  const float code = dev::round_even(x * (tiny ? 0.0F : 127.0F / largest));
  // NaN becomes 127.
  const float bounded = code < 127.0F ? (code > -127.0F ? code : -127.0F) : 127.0F;
  dev::Global<std::int8_t>(p.codes).store(at, static_cast<std::int8_t>(bounded));
  if (dev::lane() == 0) {
    dev::Global<float>(p.steps).store(dev::block_y() * num_runs + run,
                                      tiny ? 0.0F : largest / 127.0F);
  }
}

}  // namespace kakeya::cuda::device
