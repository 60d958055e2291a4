// Products of one row with few strips of four bits and scales in f16 (integer_strips.h), as
// split_strips.h has them for all formats: with more warps for each strip, and few enough registers
// that four blocks have room on a multiprocessor.
#pragma once

#include "backend/cuda/device/plain_experts.h"

namespace kakeya::cuda::device {

inline constexpr int kPlainWarps = 8;  // of a block, which share its strip

// The words of shared memory: strips, whose terms lie where their weights were; then the row.
KAKEYA_DEVICE int plain_product_words(int steps, int strips = 1) {
  return strips * steps * kPlainStepWords + plain_row_words(steps);
}

// Makes the terms of `count` steps, which lie from `word` on, with those of the row from `step` on:
// of run lane % 4 / 2 and of output lane / 4 + 8 * (lane % 2).
template <int kAtOnce>
KAKEYA_DEVICE void make_plain_terms(
    const StripRows<1>& row, float zero, int word, int step, int count) {
  const bool is_second_run = dev::lane() % 4 >= 2;
  const bool is_second = dev::lane() % 2 != 0;
  const float unit = is_second_run ? 0x1p-4F : 1.0F;
  const int output = dev::lane() / 4 + 8 * (dev::lane() % 2);
  const int own = (output * 2 + (is_second_run ? 1 : 0)) * kTermWords;
  KAKEYA_NO_UNROLL
  for (int first = 0; first < count; first += kAtOnce) {
    TwoFloats terms[kAtOnce];
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      // Behind the last step stands that one again, of which nothing is stored.
      const int at = first + k < count ? first + k : count - 1;
      const int step_word = word + at * kPlainStepWords;
      int products[2][4];
      multiply_plain_step(step_word, row, step + at, products);
      const int low = is_second ? products[0][2] : products[0][0];
      const int high = is_second ? products[1][2] : products[1][0];
      const float sum = dev::float_of(static_cast<std::uint32_t>(is_second_run ? high : low));
      const FourFloats numbers = row.numbers(0, step + at, 0);
      const float codes = is_second_run ? numbers.at[2] : numbers.at[0];
      float scales[2];
      dev::floats_of_halves(dev::Shared<std::uint32_t>(step_word + kPlainCodeWords)
                                .load(dev::lane() / 4 * 2 + dev::lane() % 2),
                            scales);
      terms[k] = {{dev::fma(sum, unit, -dev::fma(zero, codes, kSumBase * unit)),
                   (is_second_run ? scales[1] : scales[0]) *
                       (is_second_run ? numbers.at[3] : numbers.at[1])}};
    }
    dev::sync_warp();
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      if (first + k >= count) continue;
      dev::Shared<float>(word + (first + k) * kPlainStepWords).store_as(own, terms[k]);
    }
  }
}

// Adds the terms of an output, which lie from `word` on: those of some steps are under way while
// the ones before are added.
KAKEYA_DEVICE float add_plain_output(int word, int steps) {
  constexpr int kAhead = 4;
  const dev::Shared<float> terms(word);
  FourFloats next[kAhead];
  KAKEYA_UNROLL
  for (int k = 0; k < kAhead; ++k) {
    next[k] = terms.load_as<FourFloats>((k < steps ? k : steps - 1) * kPlainStepWords);
  }
  float sum = 0.0F;
  KAKEYA_NO_UNROLL
  for (int step = 0; step < steps; step += kAhead) {
    FourFloats own[kAhead];
    KAKEYA_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      own[k] = next[k];
      const int later = step + kAhead + k;
      next[k] = terms.load_as<FourFloats>((later < steps ? later : steps - 1) * kPlainStepWords);
    }
    KAKEYA_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if (step + k >= steps) continue;
      sum = dev::fma(own[k].at[0], own[k].at[1], sum);
      sum = dev::fma(own[k].at[2], own[k].at[3], sum);
    }
  }
  return sum;
}

// By the warps of a block that has `strips` strips, each for warps_of_strip() of them, with one
// row. The strips' weights are on their way before the block waits. Lanes below kStripOutputs of
// the first warp of each get an output.
struct PlainProduct {
  int strips;

  KAKEYA_DEVICE int warps_of_strip() const {
    return static_cast<int>(static_cast<unsigned>(dev::threads()) /
                            static_cast<unsigned>(strips * dev::kWarp));
  }
  // The strip of a warp, of those of the block, and which of its warps it is.
  KAKEYA_DEVICE int strip() const { return dev::warp() / warps_of_strip(); }
  KAKEYA_DEVICE int share() const { return dev::warp() - strip() * warps_of_strip(); }
  KAKEYA_DEVICE bool has_output() const { return share() == 0 && dev::lane() < kStripOutputs; }

  // kAtOnce: steps whose terms are made together.
  template <bool kMayRound, int kAtOnce>
  KAKEYA_DEVICE float output(const ProductRows& rows, const FourWords* weights, float zero) const {
    const int steps = plain_steps(rows);
    const int begin = steps * share() / warps_of_strip();
    const int count = steps * (share() + 1) / warps_of_strip() - begin;
    const int strip_word = strip() * steps * kPlainStepWords;
    const int word = strip_word + begin * kPlainStepWords;
    begin_few_copies(dev::CopyPolicy(true), word, weights + begin * kPlainStepUnits,
                     count * kPlainStepUnits, dev::lane(), dev::kWarp);
    dev::end_copies();
    dev::wait_for_previous();
    dev::let_next_start();
    const StripRows<1> row(strips * steps * kPlainStepWords, steps, false);
    row.bring<kMayRound, 2>(rows, TileRows(rows, 0), 0, steps, dev::thread(), dev::threads());
    dev::await_copies<0>();
    dev::sync_block();
    make_plain_terms<kAtOnce>(row, zero, word, begin, count);
    dev::sync_block();
    if (!has_output()) return 0.0F;
    return add_plain_output(strip_word + dev::lane() * 2 * kTermWords, steps);
  }
};

// Grid: strips of all parts.
KAKEYA_DEVICE void plain_product(const IntegerProductParams& p) {
  const auto item = static_cast<int>(dev::block_x());
  const ProductWork<1> work = {p, 0};
  const Strip strip = work.strip(item, 0);
  const PlainProduct product = {1};
  const float own[1] = {product.output<true, 3>(p.rows, strip.data, strip.zero)};
  if (product.has_output()) work.store_one(item, dev::lane(), own);
}

}  // namespace kakeya::cuda::device
