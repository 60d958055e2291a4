// Norms and sums between the products of a layer: norms of what these made, the sum of that and the
// residual stream, norms of the sum for the products that follow, and their roundings. A block
// takes a row through, which its threads hold in registers: row_steps() can be anything, and takes
// two or three times as long.
#pragma once

#include "backend/cuda/device/integer_strips.h"
#include "backend/cuda/device/norm.h"

namespace kakeya::cuda::device {

inline constexpr int kResidualThreads = kNormSegments * dev::kWarp;
inline constexpr int kResidualColumns = 11;  // of a thread, at most: 2,816 in all
inline constexpr std::int64_t kMaxResidualWidth = kResidualThreads * kResidualColumns;
// Shared words: sums of segments, of two rows at a time, three times.
inline constexpr int kResidualWords = 3 * 2 * kNormSegments;

// Columns of a thread: every 32nd of its warp's segment. Where rows are rounded, segments are whole
// runs, and there is an even number of them.
KAKEYA_DEVICE bool has_runs_in_segments(std::int64_t width) {
  return width % kResidualThreads == 0;
}
using ResidualColumns = float[kResidualColumns];

// kFull: each thread has as many columns as it can.
template <bool kFull>
class ResidualRow {
 public:
  KAKEYA_DEVICE explicit ResidualRow(const ResidualStepsParams& p)
      : p_(p), width_(static_cast<int>(p.width)) {
    const int length = (width_ + kNormSegments - 1) / kNormSegments;
    const int last = (dev::warp() + 1) * length;
    first_ = dev::warp() * length + dev::lane();
    end_ = last < width_ ? last : width_;
  }

  KAKEYA_DEVICE void prefetch_weights() const {
    prefetch(p_.a.weight);
    prefetch(p_.b.weight);
    prefetch(p_.sum_weight);
    KAKEYA_UNROLL
    for (int k = 0; k < kResidualNorms; ++k) prefetch(p_.norms[k].weight);
  }

  KAKEYA_DEVICE void run() {
    ResidualColumns a;
    ResidualColumns b;
    ResidualColumns x;
    ResidualColumns weight;
    ResidualColumns weight_b;
    ResidualColumns sum_weight;
    load_row(p_.a.x, a);
    load_row(p_.b.x, b);
    load_row(p_.x, x);
    load(p_.a.weight, 1.0F, weight);
    load(p_.b.weight, 1.0F, weight_b);
    load(p_.sum_weight, 1.0F, sum_weight);
    if (p_.normalises) norm_both(a, b, weight, weight_b);
    if (p_.b.x != nullptr) {
      add(a, b, 1.0F, p_.sum_out);
      norm(a, sum_weight, 1, p_.normed_sum_out);
    }
    add(x, a, p_.scale, p_.out);
    if (p_.copy != nullptr) store(x, p_.copy + dev::block_x() * p_.copy_width);
    if (p_.num_norms == 0) return;
    make_norms(x);
  }

 private:
  KAKEYA_DEVICE bool has(int i) const { return kFull || column(i) < end_; }
  KAKEYA_DEVICE int column(int i) const { return first_ + i * dev::kWarp; }

  KAKEYA_DEVICE void prefetch(const float* weight) const {
    if (weight == nullptr) return;
    const dev::Global<const float> from(weight);
    KAKEYA_UNROLL
    for (int i = 0; i < kResidualColumns; ++i) {
      if (has(i) && dev::lane() == 0) from.prefetch(column(i));
    }
  }
  KAKEYA_DEVICE void load(const float* at, float other, ResidualColumns& x) const {
    const dev::Global<const float> from(at);
    KAKEYA_UNROLL
    for (int i = 0; i < kResidualColumns; ++i) {
      x[i] = at != nullptr && has(i) ? from.load(column(i)) : other;
    }
  }
  KAKEYA_DEVICE void load_row(const float* rows, ResidualColumns& x) const {
    load(rows == nullptr ? rows : rows + dev::block_x() * p_.width, 0.0F, x);
  }
  KAKEYA_DEVICE void store(const ResidualColumns& x, float* to) const {
    const dev::Global<float> out(to);
    KAKEYA_UNROLL
    for (int i = 0; i < kResidualColumns; ++i) {
      if (has(i)) out.store(column(i), x[i]);
    }
  }
  KAKEYA_DEVICE void store_row(const ResidualColumns& x, float* rows) const {
    if (rows != nullptr) store(x, rows + dev::block_x() * p_.width);
  }

  KAKEYA_DEVICE static float squares_of(const ResidualColumns& x) {
    float sum = 0.0F;
    KAKEYA_UNROLL
    for (int i = 0; i < kResidualColumns; ++i) sum = dev::fma(x[i], x[i], sum);
    return sum;
  }
  // Shares the sums of squares of segments; behind the call they are there.
  template <int kCount>
  KAKEYA_DEVICE static void share(float (&squares)[kCount], int turn) {
    const dev::Shared<float> sums(turn * 2 * kNormSegments);
    dev::warp_sums(squares);
    if (dev::lane() == 0) {
      KAKEYA_UNROLL
      for (int k = 0; k < kCount; ++k) sums.store(k * kNormSegments + dev::warp(), squares[k]);
    }
    dev::sync_block();
  }
  KAKEYA_DEVICE float shared_factor(int turn, int row) const {
    return norm_factor(add_segments(dev::Shared<float>((turn * 2 + row) * kNormSegments)), p_.width,
                       p_.eps);
  }
  // Each turn has words of its own.
  KAKEYA_DEVICE float factor_of(const ResidualColumns& x, int turn) const {
    float squares[1] = {squares_of(x)};
    share(squares, turn);
    return shared_factor(turn, 0);
  }

  KAKEYA_DEVICE void norm(ResidualColumns& x, const ResidualColumns& weight, int turn, float* out) {
    copy_scaled(x, factor_of(x, turn), weight, x);
    store_row(x, out);
  }
  // The norms of a and of b, if there is any.
  KAKEYA_DEVICE void norm_both(ResidualColumns& a,
                               ResidualColumns& b,
                               const ResidualColumns& a_weight,
                               const ResidualColumns& b_weight) {
    float squares[2] = {squares_of(a), squares_of(b)};
    share(squares, 0);
    copy_scaled(a, shared_factor(0, 0), a_weight, a);
    store_row(a, p_.a.out);
    if (p_.b.x == nullptr) return;
    copy_scaled(b, shared_factor(0, 1), b_weight, b);
    store_row(b, p_.b.out);
  }

  // Adds `other` to x.
  KAKEYA_DEVICE void add(ResidualColumns& x, const ResidualColumns& other, float by, float* out) {
    KAKEYA_UNROLL
    for (int i = 0; i < kResidualColumns; ++i) {
      const float sum = x[i] + other[i];
      x[i] = sum * by;
    }
    store_row(x, out);
  }

  // Weights are on their way while squares are added up.
  KAKEYA_DEVICE void make_norms(const ResidualColumns& x) const {
    ResidualColumns weights[kResidualNorms];
    KAKEYA_UNROLL
    for (int k = 0; k < kResidualNorms; ++k) load(p_.norms[k].weight, 1.0F, weights[k]);
    const float factor = factor_of(x, 2);
    KAKEYA_UNROLL
    for (int k = 0; k < kResidualNorms; ++k) {
      if (k >= p_.num_norms) continue;
      ResidualColumns made;
      copy_scaled(x, factor, weights[k], made);
      store_row(made, p_.norms[k].out);
    }
    // The code is long, and what it needs is near.
    KAKEYA_NO_UNROLL
    for (int k = 0; k < p_.num_norms; ++k) {
      if (p_.norms[k].codes == nullptr) continue;
      ResidualColumns made;
      load(p_.norms[k].weight, 1.0F, weights[0]);
      copy_scaled(x, factor, weights[0], made);
      round(p_.norms[k], made);
    }
  }
  KAKEYA_DEVICE static void copy_scaled(const ResidualColumns& x,
                                        float factor,
                                        const ResidualColumns& weight,
                                        ResidualColumns& made) {
    KAKEYA_UNROLL
    for (int i = 0; i < kResidualColumns; ++i) {
      const float scaled = x[i] * factor;
      made[i] = scaled * weight[i];
    }
  }

  // As round_run(): a warp has whole runs, of which lane i finds the step of number i.
  KAKEYA_DEVICE void round(const ResidualNorm& to, const ResidualColumns& x) const {
    std::uint32_t largest = 0;
    KAKEYA_UNROLL
    for (int i = 0; i < kResidualColumns; ++i) {
      const std::uint32_t of_run = dev::warp_most(dev::bits_of(run_magnitude(x[i])));
      if (dev::lane() == i) largest = of_run;
    }
    const RunScale own(dev::float_of(largest));
    const int first_run = (first_ - dev::lane()) / dev::kWarp;
    const std::int64_t row = dev::block_x() * num_steps(p_.width);
    const dev::Global<std::int8_t> codes(to.codes);
    const int in_run = dev::lane() / 4 % 4 * 16 + dev::lane() / 16 * 4 + dev::lane() % 4;
    int total = 0;
    int low = 0;
    KAKEYA_UNROLL
    for (int i = 0; i < kResidualColumns; ++i) {
      float factor[1];
      dev::of_lanes(own.factor, i, factor);
      RunScale scale = own;
      scale.factor = factor[0];
      const int code = static_cast<int>(scale.code(x[i]));
      const int all = dev::warp_total(code);
      const int first_half = dev::warp_total(dev::lane() < 16 ? code : 0);
      if (dev::lane() == i) {
        total = all;
        low = first_half;
      }
      const int run = first_run + i;
      if (has(i)) {
        codes.store((row + run / 2) * kStepColumns + run % 2 * 8 + in_run,
                    static_cast<std::int8_t>(code));
      }
    }
    const int run = first_run + dev::lane();
    if (dev::lane() >= kResidualColumns || run * dev::kWarp >= end_) return;
    const std::int64_t at = 2 * row + run;  // steps have two runs
    dev::Global<TwoFloats>(reinterpret_cast<TwoFloats*>(to.numbers))
        .store(at, TwoFloats{{static_cast<float>(total), own.step}});
    dev::Global<float>(to.low_sums).store(at, static_cast<float>(low));
  }

  const ResidualStepsParams& p_;
  const int width_;
  int first_;
  int end_;
};

template <bool kFull>
KAKEYA_DEVICE void take_residual_steps(const ResidualStepsParams& p) {
  ResidualRow<kFull> row(p);
  row.prefetch_weights();
  dev::wait_for_previous();
  dev::let_next_start();
  row.run();
}

// Grid: rows.
KAKEYA_DEVICE void residual_steps(const ResidualStepsParams& p) {
  if (p.width == kMaxResidualWidth) {
    take_residual_steps<true>(p);
  } else {
    take_residual_steps<false>(p);
  }
}

}  // namespace kakeya::cuda::device
