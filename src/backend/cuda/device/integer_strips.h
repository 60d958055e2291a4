// Weights whose codes are integers, and rows rounded to eight bits for them, as the device holds
// them.
//
// Sixteen outputs of a matrix are a strip, 64 columns (two runs) of it a step: steps of a strip lie
// one after the other, and strips of all stacked matrices. What is behind the last column or the
// last output is zeros. A step has
//
//   codes     lane l of a warp has units of 16 bytes, which are what tensor cores want of it: words
//             of output g = l / 4 and columns 4 q ... + 3 (q = l % 4), of output g + 8, and of both
//             with columns 16 + 4 q ... + 3. Of 4 bits: one unit, the second run in the higher
//             halves of the bytes. Of 8 bits: 32 units of the first run, then those of the second
//   scales    for g = 0 ... 7: of output g with either run, of output g + 8: in f16 or in f32.
//   Where
//             scales are for 16 columns: those of the first 16 of each run, then the others
//   minimums  likewise, where there are any
//
// A row of activations has as many steps: of each 64 codes, in units of 16 bytes by q: columns 4 q
// ... + 3 and 16 + 4 q ... + 3 of the first run, then of the second; for each run the sum of codes
// and the step of rounding; and the sums of codes of the first 16 columns of each run.
#pragma once

#include "backend/cuda/device/products.h"

namespace kakeya::cuda::device {

inline constexpr int kStripOutputs = 16;
inline constexpr int kStepColumns = 64;
inline constexpr int kUnitWords = 4;

// A row's numbers of a step.
inline constexpr int kStepNumbers = 4;  // {sum of codes, step of rounding} of either run
inline constexpr int kStepLowSums = 2;
inline constexpr int kStepCodeUnits = 4;

KAKEYA_DEVICE std::int64_t num_steps(std::int64_t columns) {
  return (columns + kStepColumns - 1) / kStepColumns;
}
KAKEYA_DEVICE std::int64_t num_strips(std::int64_t outputs) {
  return (outputs + kStripOutputs - 1) / kStripOutputs;
}

// Where things are in a step of weights, in words.
struct StepLayout {
  bool four_bits;
  bool halves;
  bool has_minimum;
  bool half_scales;  // then neither halves nor minimums

  KAKEYA_DEVICE explicit StepLayout(const Weight& w)
      : four_bits(w.four_bits),
        halves(w.halves),
        has_minimum(w.has_minimum),
        half_scales(w.half_scales) {}

  // The first one or the second, whose members stay in registers.
  KAKEYA_DEVICE StepLayout(bool is_first, const StepLayout& first, const StepLayout& second)
      : four_bits(is_first ? first.four_bits : second.four_bits),
        halves(is_first ? first.halves : second.halves),
        has_minimum(is_first ? first.has_minimum : second.has_minimum),
        half_scales(is_first ? first.half_scales : second.half_scales) {}

  KAKEYA_DEVICE int code_words() const { return four_bits ? 128 : 256; }
  // The words of scales, and as many of minimums.
  KAKEYA_DEVICE int scale_words() const { return half_scales ? 16 : halves ? 64 : 32; }
  KAKEYA_DEVICE int words() const { return code_words() + scale_words() * (has_minimum ? 2 : 1); }
  KAKEYA_DEVICE int units() const { return words() / kUnitWords; }
  // The number of f32 for an output (of sixteen), a run and a half of it, behind the codes.
  KAKEYA_DEVICE static int scale_at(int output, int run, int half) {
    return half * 32 + output % 8 * 4 + output / 8 * 2 + run;
  }
};

// Element of one of the stacked rows: what is decoded from its format. There is one matrix.
KAKEYA_DEVICE float integer_weight(const Weight& w, std::int64_t row, std::int64_t column) {
  const StepLayout layout(w);
  const dev::Global<const std::uint32_t> words(static_cast<const std::uint32_t*>(w.data));
  const std::int64_t step = row / kStripOutputs * num_steps(w.cols) + column / kStepColumns;
  const std::int64_t first = step * layout.words();
  const auto output = static_cast<int>(row % kStripOutputs);
  const auto in_step = static_cast<int>(column % kStepColumns);
  const int run = in_step / 32;
  const int half = in_step / 16 % 2;
  const int lane = output % 8 * 4 + in_step / 4 % 4;
  const int word = lane * kUnitWords + half * 2 + output / 8 + (layout.four_bits ? 0 : run * 128);
  const int shift = in_step % 4 * 8 + (layout.four_bits ? run * 4 : 0);
  const auto code =
      static_cast<int>(words.load(first + word) >> shift & (layout.four_bits ? 15U : 255U));
  const std::int64_t scales = first + layout.code_words();
  const float integer = static_cast<float>(code - w.zero);
  if (layout.half_scales) {
    float both[2];
    dev::floats_of_halves(words.load(scales + output % 8 * 2 + output / 8), both);
    return (run == 0 ? both[0] : both[1]) * integer;
  }
  const std::int64_t at = scales + StepLayout::scale_at(output, run, layout.halves ? half : 0);
  const float scaled = dev::float_of(words.load(at)) * integer;
  if (!layout.has_minimum) return scaled + 0.0F;
  return scaled + dev::float_of(words.load(at + layout.scale_words()));
}

// How a run is rounded whose largest magnitude is `largest`; NaN counts as 0 there.
struct RunScale {
  float factor;
  float step;

  KAKEYA_DEVICE explicit RunScale(float largest) {
    const bool tiny = !(largest > 1e-36F);
    factor = tiny ? 0.0F : 127.0F / largest;
    step = tiny ? 0.0F : largest / 127.0F;
  }

  // An integer. NaN becomes 127.
  KAKEYA_DEVICE float code(float x) const {
    const float rounded = dev::round_even(x * factor);
    return rounded < 127.0F ? (rounded > -127.0F ? rounded : -127.0F) : 127.0F;
  }
};
// Counts among those of which the largest one is looked for.
KAKEYA_DEVICE float run_magnitude(float x) {
  const float size = magnitude(x);
  return size > 0.0F ? size : 0.0F;
}

// By a warp: rounds run number `run` of a row, of which lane l has column 32 run + l. Behind the
// last run of a step that has but one it stores zeros.
KAKEYA_DEVICE void round_run(const RoundParams& p, std::int64_t row, std::int64_t run, float x) {
  // Numbers that are not negative have the order of their bits.
  const RunScale scale(dev::float_of(dev::warp_most(dev::bits_of(run_magnitude(x)))));
  const float code = scale.code(x);
  const int half = dev::lane() / 16;
  float sums[2] = {code, half == 0 ? code : 0.0F};
  dev::warp_sums(sums);
  const std::int64_t step = row * num_steps(p.width) + run / 2;
  const int unit = dev::lane() / 4 % 4;
  const dev::Global<std::int8_t> codes(p.codes);
  const dev::Global<float> numbers(p.numbers);
  const dev::Global<float> low_sums(p.low_sums);
  const auto in_step = static_cast<int>(run % 2);
  const std::int64_t at = step * kStepColumns + unit * 16 + half * 4 + dev::lane() % 4;
  const bool is_last = in_step == 0 && (run + 1) * 32 == p.width;
  codes.store(at + in_step * 8, static_cast<std::int8_t>(code));
  if (is_last) codes.store(at + 8, 0);
  if (dev::lane() != 0) return;
  numbers.store(step * kStepNumbers + in_step * 2, sums[0]);
  numbers.store(step * kStepNumbers + in_step * 2 + 1, scale.step);
  low_sums.store(step * kStepLowSums + in_step, sums[1]);
  if (!is_last) return;
  numbers.store(step * kStepNumbers + 2, 0.0F);
  numbers.store(step * kStepNumbers + 3, 0.0F);
  low_sums.store(step * kStepLowSums + 1, 0.0F);
}

}  // namespace kakeya::cuda::device
