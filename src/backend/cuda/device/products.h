// Products of rows with weights. The order of a sum: lane l of 32 takes columns 4 l + 128 i ... +
// 3, fma after fma; then pairs of lanes 16, 8, 4, 2, 1 apart. Of integers: as backend.h says.
#pragma once

#include "backend/cuda/device/math.h"
#include "backend/cuda/device/params.h"

namespace kakeya::cuda::device {

inline constexpr int kProductWarps = 4;    // of a block, an output each
inline constexpr int kProductRowTile = 8;  // rows that share a reading of the weights
inline constexpr int kRunWords = 4 * 2;    // of shared memory, for a run of integers
inline constexpr int kProductWords = kProductWarps * dev::kWarp * kRunWords;

// Element of one of the stacked rows, which has no integers.
KAKEYA_DEVICE float float_weight(const Weight& w, std::int64_t index) {
  if (w.type == WeightType::kF32) {
    return dev::Global<const float>(static_cast<const float*>(w.data)).load(index);
  }
  const auto bits =
      dev::Global<const std::uint16_t>(static_cast<const std::uint16_t*>(w.data)).load(index);
  return w.type == WeightType::kBf16 ? bf16_to_float(bits) : half_to_float(bits);
}

template <int kRows>
KAKEYA_DEVICE void float_products(const ProductRows& in,
                                  const Weight& w,
                                  std::int64_t weight_row,
                                  std::int64_t first,
                                  float (&sums)[kRows]) {
  const dev::Global<const float> x(in.x);
  for (std::int64_t begin = 4 * dev::lane(); begin < w.cols; begin += 4 * dev::kWarp) {
    for (std::int64_t k = begin; k < begin + 4 && k < w.cols; ++k) {
      const float weight = float_weight(w, weight_row * w.cols + k);
      KAKEYA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (first + r >= in.count) continue;
        const float value = x.load((first + r) * w.cols + k);
        sums[r] =
            dev::fma(w.rounds_rows ? bf16_to_float(float_to_bf16(value)) : value, weight, sums[r]);
      }
    }
  }
  dev::warp_sums(sums);
}

// What one half of a run (or all of it) comes to, but for the sum.
struct RunProduct {
  int products = 0;
  int codes = 0;
};

// `word` of the weights has their first four codes, `column` of the row's is the first code.
KAKEYA_DEVICE RunProduct run_product(const dev::Global<const std::uint32_t>& weights,
                                     std::int64_t word,
                                     const dev::Global<const std::int8_t>& row,
                                     std::int64_t column,
                                     int words,
                                     int zero) {
  RunProduct sum;
  for (int i = 0; i < words; ++i) {
    const std::uint32_t four = weights.load(word + i);
    for (int k = 0; k < 4; ++k) {
      const int code = row.load(column + 4 * i + k);
      sum.products += (static_cast<int>(four >> (8 * k) & 255U) - zero) * code;
      sum.codes += code;
    }
  }
  return sum;
}

// The product of row t, in lane 0. Lanes take runs, and lane 0 adds them up in their order.
KAKEYA_DEVICE float integer_product(const ProductRows& in,
                                    const Weight& w,
                                    std::int64_t weight_row,
                                    std::int64_t t) {
  const dev::Global<const std::int8_t> codes(in.codes);
  const dev::Global<const float> steps(in.steps);
  const dev::Global<const std::uint32_t> words(static_cast<const std::uint32_t*>(w.data));
  const dev::Shared<float> terms(dev::warp() * dev::kWarp * kRunWords);
  const std::int64_t num_runs = w.cols / 32;
  const int parts = w.halves ? 2 : 1;
  float sum = 0.0F;
  for (std::int64_t begin = 0; begin < num_runs; begin += dev::kWarp) {
    const std::int64_t own = begin + dev::lane();
    if (own < num_runs) {
      const std::int64_t run = (weight_row * num_runs + own) * kIntegerRunWords;
      const float step = steps.load(t * num_runs + own);
      for (int part = 0; part < parts; ++part) {
        const RunProduct result =
            run_product(words, run + part * 4, codes, t * w.cols + own * 32 + part * 16,
                        w.halves ? 4 : 8, w.zero);
        const std::int64_t scales = run + kIntegerScaleWord + part;
        const int at = dev::lane() * kRunWords + part * 4;
        terms.store(at, static_cast<float>(result.products));
        terms.store(at + 1, dev::float_of(words.load(scales)) * step);
        terms.store(at + 2, dev::float_of(words.load(scales + 2)));
        terms.store(at + 3, step * static_cast<float>(result.codes));
      }
    }
    dev::sync_warp();
    if (dev::lane() == 0) {
      for (int i = 0; i < dev::kWarp && begin + i < num_runs; ++i) {
        for (int at = i * kRunWords; at < i * kRunWords + 4 * parts; at += 4) {
          sum = dev::fma(terms.load(at), terms.load(at + 1), sum);
          if (w.has_minimum) sum = dev::fma(terms.load(at + 2), terms.load(at + 3), sum);
        }
      }
    }
    dev::sync_warp();
  }
  return sum;
}

// Products of rows first ... of `in` with a row of the weights, in lane 0.
template <int kRows>
KAKEYA_DEVICE void products(const ProductRows& in,
                            const Weight& w,
                            std::int64_t weight_row,
                            std::int64_t first,
                            float (&sums)[kRows]) {
  KAKEYA_UNROLL
  for (int r = 0; r < kRows; ++r) sums[r] = 0.0F;
  if (w.type != WeightType::kIntegers) {
    float_products(in, w, weight_row, first, sums);
    return;
  }
  KAKEYA_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (first + r < in.count) sums[r] = integer_product(in, w, weight_row, first + r);
  }
}

// The output of a warp.
KAKEYA_DEVICE std::int64_t product_output() {
  return dev::block_x() * kProductWarps + dev::warp();
}

// Grid: outputs / kProductWarps, rows / kProductRowTile.
KAKEYA_DEVICE void product(const ProductParams& p) {
  const std::int64_t n = product_output();
  if (n >= p.weight.rows) return;
  const std::int64_t first = dev::block_y() * kProductRowTile;
  float sums[kProductRowTile];
  products(p.rows, p.weight, n, first, sums);
  if (dev::lane() != 0) return;
  const dev::Global<float> out(p.out);
  KAKEYA_UNROLL
  for (int r = 0; r < kProductRowTile; ++r) {
    if (first + r < p.rows.count) out.store((first + r) * p.weight.rows + n, sums[r]);
  }
}

KAKEYA_DEVICE float gated(bool silu, float gate, float other) {
  return static_cast<float>(activate(silu, gate) * other);
}

// Grid as that of product().
KAKEYA_DEVICE void gated_product(const GatedProductParams& p) {
  const std::int64_t n = product_output();
  if (n >= p.gate.rows) return;
  const std::int64_t first = dev::block_y() * kProductRowTile;
  float gates[kProductRowTile];
  float ups[kProductRowTile];
  products(p.rows, p.gate, n, first, gates);
  products(p.rows, p.up, n, first, ups);
  if (dev::lane() != 0) return;
  const dev::Global<float> out(p.out);
  KAKEYA_UNROLL
  for (int r = 0; r < kProductRowTile; ++r) {
    if (first + r < p.rows.count) {
      out.store((first + r) * p.gate.rows + n, gated(p.silu, gates[r], ups[r]));
    }
  }
}

// Grid: F / kProductWarps, rows * top_k.
KAKEYA_DEVICE void expert_hidden(const ExpertHiddenParams& p) {
  const std::int64_t n = product_output();
  if (n >= p.gate.rows) return;
  const std::int64_t expert = dev::Global<const std::int32_t>(p.experts).load(dev::block_y());
  ProductRows row = p.rows;
  const std::int64_t t = dev::block_y() / p.top_k;
  row.count = t + 1;  // no row behind it
  float gate[1];
  float up[1];
  products(row, p.gate, expert * p.gate.rows + n, t, gate);
  products(row, p.up, expert * p.up.rows + n, t, up);
  if (dev::lane() != 0) return;
  dev::Global<float>(p.hidden).store(dev::block_y() * p.gate.rows + n,
                                     gated(p.silu, gate[0], up[0]));
}

// Grid: D / kProductWarps, rows. Ranks ascending; each is multiplied, then added.
KAKEYA_DEVICE void expert_output(const ExpertOutputParams& p) {
  const std::int64_t n = product_output();
  if (n >= p.down.rows) return;
  const dev::Global<const std::int32_t> experts(p.experts);
  const dev::Global<const float> weights(p.weights);
  float total = 0.0F;
  for (std::int64_t rank = 0; rank < p.top_k; ++rank) {
    const std::int64_t at = dev::block_y() * p.top_k + rank;
    ProductRows row = p.rows;
    row.count = at + 1;
    float sum[1];
    products(row, p.down, experts.load(at) * p.down.rows + n, at, sum);
    const float weighted = weights.load(at) * sum[0];
    total = total + weighted;
  }
  if (dev::lane() == 0) dev::Global<float>(p.out).store(dev::block_y() * p.down.rows + n, total);
}

// Rows as products with integers see them. Grid: runs of 32 columns / kProductWarps, rows.
KAKEYA_DEVICE void round_rows(const RoundParams& p) {
  const std::int64_t run = product_output();
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
