// Products of one row with few strips: four warps share a strip, of which each makes the terms of a
// quarter of its steps. Then sixteen lanes add them up, in the order that backend.h has.
//
// All copies of a block are begun at once. The terms of a step lie where its weights were: for each
// output and each part (runs, or halves of them) the integer and its factor, then, where there are
// minimums, the minimum and its factor.
#pragma once

#include "backend/cuda/device/integer_experts.h"

namespace kakeya::cuda::device {

inline constexpr int kSplitWarps = 4;  // of a strip
inline constexpr int kTermWords = 2;

// Makes terms: lane l those of run l % 4 / 2 and of output l / 4 + 8 * (l % 2).
struct TermMaker {
  const Strip& strip;
  const StripRows<1>& row;

  KAKEYA_DEVICE static int run() { return dev::lane() % 4 / 2; }
  KAKEYA_DEVICE static int output() { return dev::lane() / 4 + 8 * (dev::lane() % 2); }

  // The steps whose weights are read before the first term is written.
  template <bool kFourBits, int kSteps>
  KAKEYA_DEVICE void make_plain(int word, int step) const {
    constexpr int kCodeWords = kFourBits ? 128 : 256;
    constexpr int kWords = kCodeWords + 16;
    TwoFloats terms[kSteps];
    KAKEYA_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      const FourFloats numbers = row.numbers(0, step + k, 0);
      const StepCodes<kFourBits> codes(word + k * kWords);
      const std::uint32_t pair = dev::Shared<std::uint32_t>(word + k * kWords + kCodeWords)
                                     .load(dev::lane() / 4 * 2 + dev::lane() % 2);
      float scales[2];
      dev::floats_of_halves(pair, scales);
      terms[k] = {{own_integer<kFourBits>(codes, step + k, 3, code_sum(numbers)),
                   (run() == 0 ? scales[0] : scales[1]) * row_step(numbers)}};
    }
    dev::sync_warp();
    KAKEYA_UNROLL
    for (int k = 0; k < kSteps; ++k) store(word + k * kWords, output() * 2 + run(), terms[k]);
  }

  template <bool kFourBits>
  KAKEYA_DEVICE void make_general(int word, int step) const {
    const StepLayout& layout = strip.layout;
    const FourFloats numbers = row.numbers(0, step, 0);
    const StepCodes<kFourBits> codes(word);
    const dev::Shared<float> scales(word + layout.code_words());
    const int halves = layout.halves ? 2 : 1;
    TwoFloats terms[2] = {};
    TwoFloats minimums[2] = {};
    KAKEYA_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (half >= halves) break;
      float sum = code_sum(numbers);
      if (layout.halves) {
        const float low = row.low_sum(0, step, run(), 0);
        sum = half == 0 ? low : sum - low;
      }
      const int at = StepLayout::scale_at(output(), run(), half);
      const int used = layout.halves ? 1 << half : 3;
      terms[half] = {
          {own_integer<kFourBits>(codes, step, used, sum), scales.load(at) * row_step(numbers)}};
      if (!layout.has_minimum) continue;
      minimums[half] = {{scales.load(at + layout.scale_words()), row_step(numbers) * sum}};
    }
    dev::sync_warp();
    KAKEYA_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (half >= halves) break;
      const int at = (output() * 2 + run()) * halves + half;
      store(word, at, terms[half]);
      if (layout.has_minimum) store(word, kStripOutputs * 2 * halves + at, minimums[half]);
    }
  }

 private:
  KAKEYA_DEVICE static float code_sum(const FourFloats& numbers) {
    return run() == 0 ? numbers.at[0] : numbers.at[2];
  }
  KAKEYA_DEVICE static float row_step(const FourFloats& numbers) {
    return run() == 0 ? numbers.at[1] : numbers.at[3];
  }

  // The integer of the lane's output and run, of columns in halves that `used` has a bit for.
  template <bool kFourBits>
  KAKEYA_DEVICE float own_integer(const StepCodes<kFourBits>& codes,
                                  int step,
                                  int used,
                                  float sum) const {
    const FourWords own = row.codes(0, step);
    std::uint32_t a[2][4];
    std::uint32_t b[2][2];
    int products[2][4];
    KAKEYA_UNROLL
    for (int r = 0; r < 2; ++r) {
      codes.of_run(r, a[r]);
      b[r][0] = (used & 1) != 0 ? own.at[2 * r] : 0;
      b[r][1] = (used & 2) != 0 ? own.at[2 * r + 1] : 0;
    }
    dev::integer_mma(products, a, b, kSumBaseBits);
    const bool is_second = dev::lane() % 2 != 0;
    const int low = is_second ? products[0][2] : products[0][0];
    const int high = is_second ? products[1][2] : products[1][0];
    const float of_low = StepCodes<kFourBits>::integer(low, 0, strip.zero, sum);
    const float of_high = StepCodes<kFourBits>::integer(high, 1, strip.zero, sum);
    return run() == 0 ? of_low : of_high;
  }

  KAKEYA_DEVICE static void store(int word, int at, const TwoFloats& term) {
    dev::Shared<float>(word).store_as(at * kTermWords, term);
  }
};

template <bool kFourBits>
KAKEYA_DEVICE void make_terms(const TermMaker& maker, int word, int begin, int end) {
  const StepLayout& layout = maker.strip.layout;
  int step = begin;
  if (layout.half_scales) {
    constexpr int kAtOnce = kFourBits ? 2 : 1;
    KAKEYA_NO_UNROLL
    for (; step + kAtOnce <= end; step += kAtOnce) {
      maker.make_plain<kFourBits, kAtOnce>(word + step * layout.words(), step);
    }
    if (step < end) maker.make_plain<kFourBits, 1>(word + step * layout.words(), step);
    return;
  }
  KAKEYA_NO_UNROLL
  for (; step < end; ++step) maker.make_general<kFourBits>(word + step * layout.words(), step);
}

// Adds terms of an output to `sum`, of kAhead steps, each with one for either run, as long as there
// are so many.
template <int kAhead>
KAKEYA_DEVICE void add_plain_terms(
    const StepLayout& layout, const dev::Shared<float>& own, int steps, int& step, float& sum) {
  KAKEYA_NO_UNROLL
  for (; step + kAhead <= steps; step += kAhead) {
    FourFloats terms[kAhead];
    KAKEYA_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      terms[k] = own.load_as<FourFloats>((step + k) * layout.words());
    }
    KAKEYA_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      sum = dev::fma(terms[k].at[0], terms[k].at[1], sum);
      sum = dev::fma(terms[k].at[2], terms[k].at[3], sum);
    }
  }
}

// Adds the terms of output `output` of a strip that lie from `word` on.
KAKEYA_DEVICE float add_terms(const StepLayout& layout, int word, int steps, int output) {
  float sum = 0.0F;
  int step = 0;
  if (layout.half_scales) {
    const dev::Shared<float> own(word + output * 2 * kTermWords);
    add_plain_terms<8>(layout, own, steps, step, sum);
    add_plain_terms<4>(layout, own, steps, step, sum);
    add_plain_terms<1>(layout, own, steps, step, sum);
    return sum;
  }
  const int parts = layout.halves ? 4 : 2;
  KAKEYA_NO_UNROLL
  for (; step < steps; ++step) {
    const dev::Shared<float> terms(word + step * layout.words());
    for (int part = 0; part < parts; ++part) {
      const int at = (output * parts + part) * kTermWords;
      const auto term = terms.load_as<TwoFloats>(at);
      sum = dev::fma(term.at[0], term.at[1], sum);
      if (!layout.has_minimum) continue;
      const auto minimum = terms.load_as<TwoFloats>(kStripOutputs * parts * kTermWords + at);
      sum = dev::fma(minimum.at[0], minimum.at[1], sum);
    }
  }
  return sum;
}

// By a block of kSplitWarps warps for each of kParts strips, one item. `words[part]` are those of a
// strip in shared memory.
template <int kParts, typename Work>
KAKEYA_DEVICE void multiply_split(const ProductRows& in,
                                  const TileRows& tile,
                                  bool has_halves,
                                  const Work& work) {
  const auto item = static_cast<int>(dev::block_x());
  const int steps = static_cast<int>(num_steps(in.width));
  const int own_part = dev::warp() / kSplitWarps;
  const Strip strip = work.strip(item, own_part);
  const Strip first = work.strip(item, 0);
  const Strip last = work.strip(item, kParts - 1);
  const int word = own_part == 0 ? 0 : steps * first.layout.words();
  const int quarter = dev::warp() % kSplitWarps;
  const int begin = steps * quarter / kSplitWarps;
  const int end = steps * (quarter + 1) / kSplitWarps;
  const dev::CopyPolicy policy(true);
  const int units = strip.layout.units();
  begin_copies(policy, word + begin * units * kUnitWords, strip.data + begin * units,
               (end - begin) * units);
  dev::end_copies();
  dev::wait_for_previous();
  dev::let_next_start();
  const StripRows<1> row(steps * (first.layout.words() + (kParts == 1 ? 0 : last.layout.words())),
                         steps, has_halves);
  row.template bring<kParts == 1>(in, tile, 0, steps, dev::thread(), dev::threads());
  dev::await_copies<0>();
  dev::sync_block();
  const TermMaker maker = {strip, row};
  if (strip.layout.four_bits) {
    make_terms<true>(maker, word, begin, end);
  } else {
    make_terms<false>(maker, word, begin, end);
  }
  dev::sync_block();
  if (dev::warp() != 0) return;
  const int output = dev::lane() % kStripOutputs;
  const bool is_first = kParts == 1 || dev::lane() < kStripOutputs;
  const float sum = add_terms(StepLayout(is_first, first.layout, last.layout),
                              is_first ? 0 : steps * first.layout.words(), steps, output);
  float own[kParts] = {sum};
  if constexpr (kParts == 2) {
    float other[1] = {sum};
    dev::warp_swap(other, kStripOutputs);
    own[1] = other[0];
  }
  if (dev::lane() < kStripOutputs) work.store_one(item, output, own);
}

// Grid, of all of these: items.
KAKEYA_DEVICE void split_integer_product(const IntegerProductParams& p) {
  multiply_split<1>(p.rows, TileRows(p.rows, 0), p.plan.has_halves, ProductWork<1>{p, 0});
}
KAKEYA_DEVICE void split_gated_product(const GatedProductParams& p) {
  multiply_split<2>(p.rows, TileRows(p.rows, 0), p.plan.has_halves, GatedWork<1>{p, 0});
}
KAKEYA_DEVICE void split_expert_hidden(const ExpertHiddenParams& p) {
  multiply_split<2>(p.rows, TileRows(p.rows, 0), p.plan.has_halves, HiddenWork{p});
}

}  // namespace kakeya::cuda::device
