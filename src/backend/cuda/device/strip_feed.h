// How a warp brings strips to shared memory: ahead of what it adds up, into a ring of its own.
#pragma once

#include "backend/cuda/device/strip_sums.h"

namespace kakeya::cuda::device {

inline constexpr int kRingCopies = 4;  // under way at a time

// By a warp: begins to copy `units` units to shared memory.
KAKEYA_DEVICE void begin_copies(const dev::CopyPolicy& policy,
                                int word,
                                const FourWords* from,
                                int units) {
  constexpr int kPairUnits = 2 * dev::kWarp;
  constexpr int kWarpWords = dev::kWarp * kUnitWords;
  int to = word + dev::lane() * kUnitWords;
  int unit = dev::lane();
  int left = units;
  KAKEYA_NO_UNROLL
  for (; left >= kPairUnits; left -= kPairUnits) {
    dev::begin_copy(to, from, unit, policy);
    dev::begin_copy(to + kWarpWords, from, unit + dev::kWarp, policy);
    to += 2 * kWarpWords;
    unit += kPairUnits;
  }
  if (dev::lane() < left) dev::begin_copy(to, from, unit, policy);
  if (dev::lane() + dev::kWarp < left) {
    dev::begin_copy(to + kWarpWords, from, unit + dev::kWarp, policy);
  }
}

// Does so by thread `own` of `threads`, with little code.
template <typename T>
KAKEYA_DEVICE void begin_few_copies(
    const dev::CopyPolicy& policy, int word, const T* from, int units, int own, int threads) {
  KAKEYA_NO_UNROLL
  for (int unit = own; unit < units; unit += threads) {
    dev::begin_copy(word + unit * kUnitWords, from, unit, policy);
  }
}

// A strip of one of the stacked matrices.
struct Strip {
  const FourWords* data;
  StepLayout layout;
  float zero;

  KAKEYA_DEVICE Strip(const Weight& w, std::int64_t matrix, std::int64_t strip)
      : data(static_cast<const FourWords*>(w.data)), layout(w), zero(static_cast<float>(w.zero)) {
    data += (matrix * num_strips(w.rows) + strip) * num_steps(w.cols) * layout.units();
  }

  // The steps of a copy of `words` at most.
  KAKEYA_DEVICE int copy_steps(int words) const {
    return static_cast<int>(static_cast<unsigned>(words) / static_cast<unsigned>(layout.words()));
  }
};

// The items that a warp takes: every `apart`th one.
struct StripItems {
  int first;
  int apart;
  int end;
};

// Brings for each item, for each chunk of its steps, the steps of kParts strips. `work.strip(item,
// part)` says where they lie. Slots of the ring are used in the order in which they are filled.
template <int kParts, typename Work>
class StripFeed {
 public:
  KAKEYA_DEVICE StripFeed(
      const Work& work, const StripPlan& plan, const StripItems& items, int steps, int first_word)
      : work_(work),
        plan_(plan),
        policy_(plan.reads_once),
        items_(items),
        steps_(steps),
        first_word_(first_word),
        fills_(first_word),
        uses_(first_word) {
    KAKEYA_NO_UNROLL
    for (int i = 0; i < kRingCopies; ++i) begin_next();
  }

  // Adds steps [begin, end), a chunk, of the next strip, which is `strip`.
  template <int kRows>
  KAKEYA_DEVICE void add(const Strip& strip,
                         int begin,
                         int end,
                         const StripRows<kRows>& rows,
                         StripSums<kRows>& sums) {
    const int copy_steps = strip.copy_steps(plan_.copy_words);
    KAKEYA_NO_UNROLL
    for (int step = begin; step < end; step += copy_steps) {
      const int count = step + copy_steps < end ? copy_steps : end - step;
      dev::await_copies<kRingCopies - 1>();
      dev::sync_warp();
      add_steps(strip.layout, uses_, count, rows, step - begin, strip.zero, sums);
      dev::sync_warp();
      uses_ = behind(uses_);
      begin_next();
    }
  }

 private:
  KAKEYA_DEVICE int behind(int word) const {
    const int next = word + plan_.copy_words;
    return next == first_word_ + kRingCopies * plan_.copy_words ? first_word_ : next;
  }

  KAKEYA_DEVICE void begin_next() {
    if (left_ == 0) find_next();
    const int units = left_ < most_ ? left_ : most_;
    begin_copies(policy_, fills_, from_, units);
    dev::end_copies();
    from_ += units;
    left_ -= units;
    fills_ = behind(fills_);
  }

  // The next part; there may be none any more.
  KAKEYA_DEVICE void find_next() {
    if (items_.first >= items_.end) return;
    const Strip strip = work_.strip(items_.first, part_);
    const int end = begin_ + plan_.chunk_steps < steps_ ? begin_ + plan_.chunk_steps : steps_;
    const int units = strip.layout.units();
    from_ = strip.data + static_cast<std::int64_t>(begin_) * units;
    left_ = (end - begin_) * units;
    most_ = strip.copy_steps(plan_.copy_words) * units;
    if (++part_ < kParts) return;
    part_ = 0;
    begin_ = end;
    if (end < steps_) return;
    begin_ = 0;
    items_.first += items_.apart;
  }

  const Work& work_;
  const StripPlan& plan_;
  dev::CopyPolicy policy_;
  StripItems items_;  // from the next one on
  int steps_;
  int first_word_;
  int fills_;  // the next slot
  int uses_;
  // The part that is being brought.
  int part_ = 0;
  int begin_ = 0;
  const FourWords* from_ = nullptr;
  int left_ = 0;  // units
  int most_ = 0;  // of a copy
};

KAKEYA_DEVICE int ring_words(const StripPlan& plan) {
  return kRingCopies * plan.copy_words;
}

}  // namespace kakeya::cuda::device
