// Operations on rows that follow each other, by one kernel: a block takes a row through all steps.
// A thread has the same columns in all of them, so it finds what it made itself. The arithmetic is
// that of the operations by themselves. There are many threads, and few columns of each, since one
// row waits for latency alone, that of instructions too.
#pragma once

#include "backend/cuda/device/integer_strips.h"
#include "backend/cuda/device/norm.h"

namespace kakeya::cuda::device {

inline constexpr int kRowStepWarps = 32;
inline constexpr int kRowStepThreads = kRowStepWarps * dev::kWarp;
inline constexpr int kRowColumns = 4;  // that a thread holds, at most
inline constexpr std::int64_t kMaxRowStepWidth = kRowColumns * kRowStepThreads;

// Shared words: sums of segments, of which steps use one half or the other, and a row.
inline constexpr int kStepRowWord = 2 * kNormSegments;
KAKEYA_DEVICE int row_step_words(std::int64_t width) {
  return kStepRowWord + static_cast<int>(width);
}

// Some of the columns of a row: thread t has t, t + kRowStepThreads, ..., so that a warp has whole
// runs of 32.
struct OwnColumns {
  std::int64_t row;  // where it begins
  int width;

  KAKEYA_DEVICE OwnColumns(std::int64_t row_width, std::int64_t block)
      : row(block * row_width), width(static_cast<int>(row_width)) {}
  KAKEYA_DEVICE static int column(int i) { return dev::thread() + i * kRowStepThreads; }
  KAKEYA_DEVICE bool has(int i) const { return column(i) < width; }
};

// Columns of some row, remembered by where it lies.
struct HeldRow {
  const float* of = nullptr;
  float at[kRowColumns] = {};
};

// A row on its way through the steps: what the last step read, what it made, and whose norm was
// computed last.
class RowOnItsWay {
 public:
  KAKEYA_DEVICE RowOnItsWay(std::int64_t width, std::int64_t block) : own_(width, block) {}

  KAKEYA_DEVICE void run(const RowStep& step, std::int64_t row) {
    const HeldRow x = load(step.a);
    if (step.kind == RowStepKind::kRound) return round(step, row, x);
    if (step.kind == RowStepKind::kCopy) {
      return store(x, step.out + row * step.out_width + step.column);
    }
    HeldRow made;
    made.of = step.out;
    if (step.kind == RowStepKind::kNorm) {
      norm(step, x, made);
    } else {
      add(step, x, made);
    }
    store(made, step.out + own_.row);
    read_ = x;
    made_ = made;
    if (read_.of == step.out) read_.of = nullptr;
    if (normed_ == step.out) normed_ = nullptr;
  }

 private:
  KAKEYA_DEVICE HeldRow load(const float* from) const {
    HeldRow x;
    x.of = from;
    if (from == made_.of) return made_;
    if (from == read_.of) return read_;
    const dev::Global<const float> row(from + own_.row);
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      if (own_.has(i)) x.at[i] = row.load(OwnColumns::column(i));
    }
    return x;
  }
  KAKEYA_DEVICE void store(const HeldRow& x, float* to) const {
    const dev::Global<float> out(to);
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      if (own_.has(i)) out.store(OwnColumns::column(i), x.at[i]);
    }
  }

  // The sum of squares of a row, in the order of rms_norm().
  KAKEYA_DEVICE float sum_of_squares(const HeldRow& x) {
    const dev::Shared<float> row(kStepRowWord);
    const dev::Shared<float> sums(num_sums_++ % 2 * kNormSegments);
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      if (own_.has(i)) row.store(OwnColumns::column(i), x.at[i]);
    }
    dev::sync_block();
    if (dev::warp() < kNormSegments) {
      const int length = (own_.width + kNormSegments - 1) / kNormSegments;
      const int last = (dev::warp() + 1) * length;
      const int end = last < own_.width ? last : own_.width;
      float squares[1] = {0.0F};
      for (int d = dev::warp() * length + dev::lane(); d < end; d += dev::kWarp) {
        const float value = row.load(d);
        squares[0] = dev::fma(value, value, squares[0]);
      }
      dev::warp_sums(squares);
      if (dev::lane() == 0) sums.store(dev::warp(), squares[0]);
    }
    dev::sync_block();
    return add_segments(sums);
  }

  KAKEYA_DEVICE void norm(const RowStep& step, const HeldRow& x, HeldRow& made) {
    HeldRow weights;
    if (step.b != nullptr) {  // on their way while squares are added up
      const dev::Global<const float> weight(step.b);
      KAKEYA_UNROLL
      for (int i = 0; i < kRowColumns; ++i) {
        if (own_.has(i)) weights.at[i] = weight.load(OwnColumns::column(i));
      }
    }
    if (normed_ != x.of || eps_ != step.number) {
      factor_ = norm_factor(sum_of_squares(x), own_.width, step.number);
      normed_ = x.of;
      eps_ = step.number;
    }
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      const float scaled = x.at[i] * factor_;
      made.at[i] = step.b == nullptr ? scaled : scaled * weights.at[i];
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

  // Run after run: several at a time would take more registers than so many threads have. A thread
  // finds its columns in shared memory.
  KAKEYA_DEVICE void round(const RowStep& step, std::int64_t row, const HeldRow& x) const {
    const RoundParams to = {nullptr, 0, own_.width, step.codes, step.numbers, step.low_sums};
    const dev::Shared<float> shared(kStepRowWord);
    KAKEYA_UNROLL
    for (int i = 0; i < kRowColumns; ++i) {
      if (own_.has(i)) shared.store(OwnColumns::column(i), x.at[i]);
    }
    KAKEYA_NO_UNROLL
    for (int i = 0; own_.has(i); ++i) {
      round_run(to, row, dev::warp() + i * kRowStepWarps, shared.load(OwnColumns::column(i)));
    }
  }

  const OwnColumns own_;
  HeldRow read_;
  HeldRow made_;
  const float* normed_ = nullptr;
  float eps_ = 0.0F;
  float factor_ = 0.0F;
  int num_sums_ = 0;
};

// Brings the weights of norms near, a warp those of a step.
KAKEYA_DEVICE void prefetch_weights(const RowStepsParams& p) {
  if (dev::warp() >= p.count) return;
  const RowStep& step = p.steps[dev::warp()];
  if (step.kind != RowStepKind::kNorm || step.b == nullptr) return;
  const dev::Global<const float> weight(step.b);
  for (std::int64_t d = dev::kWarp * dev::lane(); d < p.width; d += dev::kWarp * dev::kWarp) {
    weight.prefetch(d);
  }
}

// Grid: rows.
KAKEYA_DEVICE void row_steps(const RowStepsParams& p) {
  prefetch_weights(p);
  RowOnItsWay row(p.width, dev::block_x());
  KAKEYA_NO_UNROLL
  for (int i = 0; i < p.count; ++i) row.run(p.steps[i], dev::block_x());
}

}  // namespace kakeya::cuda::device
