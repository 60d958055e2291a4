// Products of one row with few strips of four bits and scales in f16 (integer_strips.h), as
// split_strips.h has them for all formats: with more warps for each strip, and few enough registers
// that four blocks have room on a multiprocessor.
#pragma once

#include "backend/cuda/device/plain_experts.h"

namespace kakeya::cuda::device {

inline constexpr int kPlainWarps = 8;  // of a block, which share its strip

// The words of shared memory: the strip, whose terms lie where its weights were; then the row.
KAKEYA_DEVICE int plain_product_words(int steps) {
  return steps * kPlainStepWords + plain_row_words(steps);
}

// Makes the terms of `count` steps, which lie from `word` on, with those of the row from `step` on:
// of run lane % 4 / 2 and of output lane / 4 + 8 * (lane % 2).
KAKEYA_DEVICE void make_plain_terms(
    const StripRows<1>& row, float zero, int word, int step, int count) {
  constexpr int kAtOnce = 3;
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

// Grid: strips of all parts.
KAKEYA_DEVICE void plain_product(const IntegerProductParams& p) {
  const auto item = static_cast<int>(dev::block_x());
  const int steps = plain_steps(p.rows);
  const ProductWork<1> work = {p, 0};
  const Strip strip = work.strip(item, 0);
  const int begin = steps * dev::warp() / kPlainWarps;
  const int count = steps * (dev::warp() + 1) / kPlainWarps - begin;
  const int word = begin * kPlainStepWords;
  begin_few_copies(dev::CopyPolicy(true), word, strip.data + begin * kPlainStepUnits,
                   count * kPlainStepUnits, dev::lane(), dev::kWarp);
  dev::end_copies();
  dev::wait_for_previous();
  dev::let_next_start();
  const StripRows<1> row(steps * kPlainStepWords, steps, false);
  row.bring<true, 2>(p.rows, TileRows(p.rows, 0), 0, steps, dev::thread(), dev::threads());
  dev::await_copies<0>();
  dev::sync_block();
  make_plain_terms(row, strip.zero, word, begin, count);
  dev::sync_block();
  if (dev::thread() >= kStripOutputs) return;
  const float own[1] = {add_plain_output(dev::lane() * 2 * kTermWords, steps)};
  work.store_one(item, dev::lane(), own);
}

}  // namespace kakeya::cuda::device
