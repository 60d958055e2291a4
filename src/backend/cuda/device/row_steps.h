// Operations on rows that follow each other, by one kernel: a block takes a row through all steps.
// The arithmetic is that of the operations by themselves.
//
// Rows lie in places of shared memory. What steps read is brought there all at once, weights while
// the launches before have not ended: one row waits for latency alone. A warp has a segment of the
// columns, as in rms_norm(), so a thread finds in a place what it put there itself.
#pragma once

#include "backend/cuda/device/norm.h"
#include "backend/cuda/device/run_groups.h"

namespace kakeya::cuda::device {

inline constexpr int kRowStepThreads = kNormSegments * dev::kWarp;

// Shared words: sums of segments, of which norms take one half or the other; the steps, since the
// parameters of a launch come as slowly, one after the other, as anything else; places.
inline constexpr int kStepWords = sizeof(RowStep) / sizeof(std::uint32_t);
inline constexpr int kStepsWord = 2 * kNormSegments;
inline constexpr int kPlacesWord = kStepsWord + kMaxRowSteps * kStepWords;
KAKEYA_DEVICE int row_step_words(std::int64_t places, std::int64_t width) {
  return kPlacesWord + static_cast<int>(places * width);
}

// Begins to bring the rows of places [begin, end), whose addresses are for row `row`.
KAKEYA_DEVICE void bring_rows(const RowStepsParams& p, int begin, int end, std::int64_t row) {
  const dev::CopyPolicy policy(false);
  const int units = static_cast<int>(p.width) / kUnitWords;
  KAKEYA_NO_UNROLL
  for (int place = begin; place < end; ++place) {
    const auto* const from = reinterpret_cast<const FourWords*>(p.brought[place] + row * p.width);
    const int word = row_step_words(place, p.width);
    KAKEYA_NO_UNROLL
    for (int unit = dev::thread(); unit < units; unit += kRowStepThreads) {
      dev::begin_copy(word + unit * kUnitWords, from, unit, policy);
    }
  }
  dev::end_copies();
}

KAKEYA_DEVICE void bring_steps(const RowStepsParams& p) {
  constexpr int kUnits = kStepWords / kUnitWords;
  const int unit = dev::thread();
  if (unit >= p.count * kUnits) return;
  dev::Shared<std::uint32_t>(kStepsWord)
      .store_as(unit * kUnitWords, reinterpret_cast<const FourWords*>(p.steps)[unit]);
}

// The columns of a row that a thread has: those of its warp's segment.
class OwnColumns {
 public:
  KAKEYA_DEVICE explicit OwnColumns(int width) : width_(width) {
    const int length = (width + kNormSegments - 1) / kNormSegments;
    const int last = (dev::warp() + 1) * length;
    first_ = dev::warp() * length + dev::lane();
    end_ = last < width ? last : width;
  }

  // Runs a step, of row number `row`.
  KAKEYA_DEVICE void run(const RowStep& step, std::int64_t row) {
    if (step.kind == RowStepKind::kRound) return round(step, row);
    const bool copies = step.kind == RowStepKind::kCopy;
    float* const out = step.out + (copies ? row * step.out_width + step.column : row * width_);
    if (step.kind == RowStepKind::kAdd) {
      const float factor = step.number;
      return make(step, out, [&](float x, float other) {
        const float sum = x + other;
        return sum * factor;
      });
    }
    if (step.kind == RowStepKind::kNorm && !step.keeps_factor) {
      factor_ = norm_factor(sum_of_squares(step.a), width_, step.number);
    }
    const float factor = copies ? 1.0F : factor_;
    make(step, out, [&](float x, float weight) {
      const float scaled = x * factor;
      return scaled * weight;
    });
  }

 private:
  static constexpr int kAtOnce = 4;

  KAKEYA_DEVICE int place_word(int place) const { return row_step_words(place, width_); }
  KAKEYA_DEVICE dev::Shared<float> place(int place) const {
    return dev::Shared<float>(place_word(place));
  }

  // Some of the thread's columns from `d` on; behind the last one `other`.
  KAKEYA_DEVICE void load(const dev::Shared<float>& from, int d, float other, float (&x)[kAtOnce]) {
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      const int column = d + k * dev::kWarp;
      x[k] = column < end_ ? from.load(column) : other;
    }
  }

  template <typename Make>
  KAKEYA_DEVICE void make(const RowStep& step, float* to, const Make& value) {
    const dev::Global<float> out(to);
    KAKEYA_NO_UNROLL
    for (int d = first_; d < end_; d += kAtOnce * dev::kWarp) {
      float x[kAtOnce];
      float other[kAtOnce] = {1.0F, 1.0F, 1.0F, 1.0F};
      load(place(step.a), d, 0.0F, x);
      if (step.b >= 0) load(place(step.b), d, 0.0F, other);
      KAKEYA_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const int column = d + k * dev::kWarp;
        if (column >= end_) break;
        const float made = value(x[k], other[k]);
        place(step.made).store(column, made);
        out.store(column, made);
      }
    }
  }

  // The sum of squares of a row, in the order of rms_norm().
  KAKEYA_DEVICE float sum_of_squares(int row_place) {
    const dev::Shared<float> sums(num_sums_++ % 2 * kNormSegments);
    float squares[1] = {0.0F};
    KAKEYA_NO_UNROLL
    for (int d = first_; d < end_; d += kAtOnce * dev::kWarp) {
      float x[kAtOnce];
      load(place(row_place), d, 0.0F, x);
      // Nothing is added to a sum of squares by the zeros behind the last column.
      KAKEYA_UNROLL
      for (int k = 0; k < kAtOnce; ++k) squares[0] = dev::fma(x[k], x[k], squares[0]);
    }
    dev::warp_sums(squares);
    if (dev::lane() == 0) sums.store(dev::warp(), squares[0]);
    dev::sync_block();
    return add_segments(sums);
  }

  // Warps take groups of runs in turn, of columns that others have made.
  KAKEYA_DEVICE void round(const RowStep& step, std::int64_t row) const {
    constexpr int kGroups = 3;  // side by side
    const int steps = static_cast<int>(num_steps(width_));
    const int groups = (width_ + kGroupColumns - 1) / kGroupColumns;
    const dev::Shared<float> x(place_word(step.a));
    const RoundedRows to = {step.codes, step.numbers, step.low_sums};
    dev::sync_block();
    KAKEYA_NO_UNROLL
    for (int group = dev::warp(); group < groups; group += kGroups * kNormSegments) {
      FourFloats own[kGroups];
      KAKEYA_UNROLL
      for (int k = 0; k < kGroups; ++k) {
        const int column = (group + k * kNormSegments) * kGroupColumns + 4 * dev::lane();
        own[k] = column < width_ ? x.load_as<FourFloats>(column) : FourFloats{};
      }
      const RunGroups<kGroups> rounded(own);
      KAKEYA_UNROLL
      for (int k = 0; k < kGroups; ++k) {
        const int run = 4 * (group + k * kNormSegments) + dev::lane() / 8;
        if (run < 2 * steps) to.store(row * steps, run, rounded, k);
      }
    }
    dev::sync_block();
  }

  const int width_;
  int first_;
  int end_;
  float factor_ = 0.0F;
  int num_sums_ = 0;
};

// Grid: rows.
KAKEYA_DEVICE void row_steps(const RowStepsParams& p) {
  bring_rows(p, 0, p.num_weights, 0);
  bring_steps(p);
  dev::wait_for_previous();
  dev::let_next_start();
  bring_rows(p, p.num_weights, p.num_brought, dev::block_x());
  OwnColumns own(static_cast<int>(p.width));
  dev::await_copies<0>();
  dev::sync_block();
  KAKEYA_NO_UNROLL
  for (int i = 0; i < p.count; ++i) {
    own.run(dev::Shared<std::uint32_t>(kStepsWord).load_as<RowStep>(i * kStepWords),
            dev::block_x());
  }
}

}  // namespace kakeya::cuda::device
