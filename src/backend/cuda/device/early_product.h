// The product of one row with a matrix of few outputs, as a router is, in the order of products.h:
// its weights are on their way to shared memory before the row is there.
#pragma once

#include "backend/cuda/device/strip_feed.h"

namespace kakeya::cuda::device {

// Units of a row of weights, which is to have whole ones.
KAKEYA_DEVICE int row_units(const Weight& w) {
  return static_cast<int>(w.cols) / (w.type == WeightType::kF32 ? 4 : 8);
}
// The words of shared memory of early_row_product(): each warp's weights, then the row.
KAKEYA_DEVICE int early_product_words(const Weight& w) {
  return kProductWarps * row_units(w) * kUnitWords + static_cast<int>(w.cols);
}

// A lane's sum of a row of weights that lies from `word` on with the one from `row_word` on.
template <typename Fours>
KAKEYA_DEVICE float early_sum(int word, int row_word, int fours) {
  constexpr int kAtOnce = 8;
  constexpr int kWords = static_cast<int>(sizeof(Fours) / 4);
  const dev::Shared<std::uint32_t> weights(word);
  const dev::Shared<float> row(row_word);
  float sum = 0.0F;
  KAKEYA_NO_UNROLL
  for (int first = dev::lane(); first < fours; first += kAtOnce * dev::kWarp) {
    Fours w[kAtOnce] = {};
    FourFloats x[kAtOnce] = {};
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      const int four = first + k * dev::kWarp;
      if (four >= fours) continue;
      w[k] = weights.load_as<Fours>(four * kWords);
      x[k] = row.load_as<FourFloats>(four * 4);
    }
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      if (first + k * dev::kWarp >= fours) continue;
      KAKEYA_UNROLL
      for (int i = 0; i < 4; ++i) sum = dev::fma(x[k].at[i], w[k].value(i), sum);
    }
  }
  return sum;
}

// Weights are f32 or bf16. Grid: outputs / kProductWarps.
KAKEYA_DEVICE void early_row_product(const ProductParams& p) {
  const auto last = static_cast<int>(p.weight.rows) - 1;
  const auto cols = static_cast<int>(p.weight.cols);
  const int n = static_cast<int>(dev::block_x()) * kProductWarps + dev::warp();
  const int units = row_units(p.weight);
  const int word = dev::warp() * units * kUnitWords;
  const int row_word = kProductWarps * units * kUnitWords;
  const auto* const weights = static_cast<const FourWords*>(p.weight.data);
  begin_few_copies(dev::CopyPolicy(true), word,
                   weights + static_cast<std::int64_t>(n < last ? n : last) * units, units,
                   dev::lane(), dev::kWarp);
  dev::wait_for_previous();
  dev::let_next_start();
  begin_few_copies(dev::CopyPolicy(false), row_word, reinterpret_cast<const FourFloats*>(p.rows.x),
                   cols / 4, dev::thread(), kProductWarps * dev::kWarp);
  dev::end_copies();
  dev::await_copies<0>();
  dev::sync_block();
  float sums[1] = {p.weight.type == WeightType::kF32
                       ? early_sum<FourFloats>(word, row_word, cols / 4)
                       : early_sum<FourBfloats>(word, row_word, cols / 4)};
  dev::warp_sums(sums);
  if (dev::lane() == 0 && n <= last) dev::Global<float>(p.out).store(n, sums[0]);
}

}  // namespace kakeya::cuda::device
