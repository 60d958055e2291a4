// Operations on rows that follow each other, by one kernel: a block takes a row through all steps.
// Its threads have the columns that rms_norm() gives them, so each finds what it made itself. The
// arithmetic is that of the operations by themselves.
#pragma once

#include "backend/cuda/device/integer_strips.h"
#include "backend/cuda/device/norm.h"

namespace kakeya::cuda::device {

inline constexpr int kRowStepThreads = kNormSegments * dev::kWarp;
inline constexpr int kRowColumns = 16;  // that a thread holds, at most
// Widths are multiples of kRowStepThreads, so that a warp's columns are whole runs of 32.
inline constexpr std::int64_t kMaxRowStepWidth = kRowColumns * kRowStepThreads;

// The columns of a row that are the thread's own: neighbours lie 32 apart.
struct OwnColumns {
  std::int64_t row;    // where it begins
  std::int64_t first;  // column
  int count;

  KAKEYA_DEVICE OwnColumns(std::int64_t width, std::int64_t block)
      : row(block * width),
        first(dev::warp() * (width / kNormSegments) + dev::lane()),
        count(static_cast<int>(width) / kRowStepThreads) {}
  KAKEYA_DEVICE std::int64_t column(int i) const { return first + i * dev::kWarp; }
};

// Columns of some row, remembered by where it lies.
struct HeldRow {
  const float* of = nullptr;
  float at[kRowColumns] = {};
};

// The sum of squares of a row, in the order of rms_norm(). Steps in turn use other shared words, of
// which the last but one has nobody left who reads it.
KAKEYA_DEVICE float sum_of_squares(const HeldRow& x, const OwnColumns& own, int step) {
  float squares[1] = {0.0F};
  KAKEYA_UNROLL
  for (int i = 0; i < kRowColumns; ++i) {
    if (i < own.count) squares[0] = dev::fma(x.at[i], x.at[i], squares[0]);
  }
  dev::warp_sums(squares);
  const dev::Shared<float> sums(step % 2 * kNormSegments);
  if (dev::lane() == 0) sums.store(dev::warp(), squares[0]);
  dev::sync_block();
  float total = 0.0F;
  for (int s = 0; s < kNormSegments; ++s) total = total + sums.load(s);
  return total;
}

// A row on its way through the steps: what the last step read, what it made, and whose norm was
// computed last.
class RowOnItsWay {
 public:
  KAKEYA_DEVICE RowOnItsWay(std::int64_t width, std::int64_t block)
      : own_(width, block), width_(width) {}

  KAKEYA_DEVICE void run(const RowStep& step, std::int64_t row) {
    const HeldRow x = load(step.a);
    if (step.kind == RowStepKind::kRound) return round(step, row, x);
    HeldRow made;
    made.of = step.out;
    if (step.kind == RowStepKind::kNorm) {
      norm(step, x, made);
    } else if (step.kind == RowStepKind::kAdd) {
      add(step, x, made);
    } else {
      return copy(step, row, x);
    }
    store(made);
    read_ = x;
    made_ = made;
    if (read_.of == step.out) read_.of = nullptr;
    if (normed_ == step.out) normed_ = nullptr;
  }

 private:
  KAKEYA_DEVICE HeldRow load(const float* from) const {
    HeldRow x;
    x.of = from;
    const bool is_read = from == read_.of;
    const bool is_made = from == made_.of;
    const dev::Global<const float> row(from + own_.row);
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      if (i >= own_.count) break;
      x.at[i] = is_made ? made_.at[i] : is_read ? read_.at[i] : row.load(own_.column(i));
    }
    return x;
  }
  KAKEYA_DEVICE void store(const HeldRow& made) const {
    const dev::Global<float> out(const_cast<float*>(made.of) + own_.row);
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      if (i < own_.count) out.store(own_.column(i), made.at[i]);
    }
  }

  KAKEYA_DEVICE void norm(const RowStep& step, const HeldRow& x, HeldRow& made) {
    float weights[kRowColumns] = {};
    if (step.b != nullptr) {  // on their way while squares are added up
      const dev::Global<const float> weight(step.b);
      KAKEYA_UNROLL
      for (int i = 0; i < kRowColumns; ++i) {
        if (i < own_.count) weights[i] = weight.load(own_.column(i));
      }
    }
    if (normed_ != x.of || eps_ != step.number) {
      factor_ = norm_factor(sum_of_squares(x, own_, sums_++), width_, step.number);
      normed_ = x.of;
      eps_ = step.number;
    }
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      const float scaled = x.at[i] * factor_;
      made.at[i] = step.b == nullptr ? scaled : scaled * weights[i];
    }
  }

  KAKEYA_DEVICE void add(const RowStep& step, const HeldRow& x, HeldRow& made) const {
    const HeldRow other = load(step.b);
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      const float sum = x.at[i] + other.at[i];
      made.at[i] = sum * step.number;
    }
  }

  KAKEYA_DEVICE void round(const RowStep& step, std::int64_t row, const HeldRow& x) const {
    const RoundParams to = {nullptr, 0, width_, step.codes, step.numbers, step.low_sums};
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      if (i < own_.count) round_run(to, row, (own_.column(i) - dev::lane()) / dev::kWarp, x.at[i]);
    }
  }

  KAKEYA_DEVICE void copy(const RowStep& step, std::int64_t row, const HeldRow& x) const {
    const dev::Global<float> out(step.out + row * step.out_width + step.column);
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      if (i < own_.count) out.store(own_.column(i), x.at[i]);
    }
  }

  const OwnColumns own_;
  const std::int64_t width_;
  HeldRow read_;
  HeldRow made_;
  const float* normed_ = nullptr;
  float eps_ = 0.0F;
  float factor_ = 0.0F;
  int sums_ = 0;
};

// Grid: rows.
KAKEYA_DEVICE void row_steps(const RowStepsParams& p) {
  RowOnItsWay row(p.width, dev::block_x());
  KAKEYA_NO_UNROLL
  for (int i = 0; i < p.count; ++i) row.run(p.steps[i], dev::block_x());
}

}  // namespace kakeya::cuda::device
