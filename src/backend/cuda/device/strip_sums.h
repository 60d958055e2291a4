// Sums of strips with rows: each warp has tensor cores multiply a step at a time, exactly, and adds
// the runs up in the order of backend.h.
//
// Tensor cores begin at the bits of 12582912.0f, so that what they come to, read as a float, is
// that number and the integer: what is subtracted for the zero of the codes, and the 16 that codes
// in the higher halves of bytes are multiplied by, make one exact operation of it. Integers are
// below 2^22, those of higher halves 16 * 32 * 15 * 127 at most.
#pragma once

#include "backend/cuda/device/strip_rows.h"

namespace kakeya::cuda::device {

inline constexpr float kSumBase = 12582912.0F;
inline constexpr int kSumBaseBits = 0x4b400000;

// The sums that a lane has with kRows rows: of outputs lane / 4 and 8 behind it, and of rows
// lane % 4 * 2 and the next one of each eight; of one row all lanes of four have the same.
template <int kRows>
struct StripSums {
  static constexpr int kTiles = kRows > 8 ? kRows / 8 : 1;
  static constexpr int kColumns = StripRows<kRows>::kColumns;

  float at[kTiles][2][kColumns];
};

// Weights that tensor cores are handed, of outputs lane / 4 and 8 behind it.
template <bool kFourBits>
struct StepCodes {
  FourWords units[kFourBits ? 1 : 2];

  KAKEYA_DEVICE explicit StepCodes(int word) {
    const dev::Shared<std::uint32_t> words(word);
    KAKEYA_UNROLL
    for (int i = 0; i < (kFourBits ? 1 : 2); ++i) {
      units[i] = words.load_as<FourWords>(i * 128 + dev::lane() * kUnitWords);
    }
  }

  KAKEYA_DEVICE void of_run(int run, std::uint32_t (&a)[4]) const {
    KAKEYA_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (kFourBits) {
        a[i] = units[0].at[i] & (run == 0 ? 0x0f0f0f0fU : 0xf0f0f0f0U);
      } else {
        a[i] = units[run].at[i];
      }
    }
  }
  // The integer of a sum of tensor cores, less what is for `zero`, of rows with such a sum of
  // codes.
  KAKEYA_DEVICE static float integer(int sum, int run, float zero, float code_sum) {
    const float value = dev::float_of(static_cast<std::uint32_t>(sum));
    if (!kFourBits || run == 0) return value - dev::fma(zero, code_sum, kSumBase);
    return dev::fma(value, 0x1p-4F, -dev::fma(zero, code_sum, kSumBase * 0x1p-4F));
  }
};

// Adds a step whose scales are f16, one a run, to `sums`. Rows are StripRows, or hand out codes and
// numbers as these do.
template <int kRows, bool kFourBits, typename PlacedRows>
KAKEYA_DEVICE void add_plain_step(
    int word, const PlacedRows& rows, int step, float zero, StripSums<kRows>& sums) {
  constexpr int kTiles = StripSums<kRows>::kTiles;
  constexpr int kColumns = StripSums<kRows>::kColumns;
  using Codes = StepCodes<kFourBits>;
  const Codes codes(word);
  const auto pairs = dev::Shared<std::uint32_t>(word + (kFourBits ? 128 : 256))
                         .load_as<TwoWords>(dev::lane() / 4 * 2);
  float scales[2][2];  // output, run
  KAKEYA_UNROLL
  for (int o = 0; o < 2; ++o) dev::floats_of_halves(pairs.at[o], scales[o]);
  FourFloats numbers[kTiles][kColumns];
  std::uint32_t a[2 * kTiles][4];
  std::uint32_t b[2 * kTiles][2];
  int products[2 * kTiles][4];
  KAKEYA_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    const FourWords own = rows.codes(tile, step);
    KAKEYA_UNROLL
    for (int run = 0; run < 2; ++run) {
      codes.of_run(run, a[2 * tile + run]);
      b[2 * tile + run][0] = own.at[2 * run];
      b[2 * tile + run][1] = own.at[2 * run + 1];
    }
    KAKEYA_UNROLL
    for (int c = 0; c < kColumns; ++c) numbers[tile][c] = rows.numbers(tile, step, c);
  }
  dev::integer_mma(products, a, b, kSumBaseBits);
  KAKEYA_UNROLL
  for (int run = 0; run < 2; ++run) {
    KAKEYA_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      KAKEYA_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const FourFloats& n = numbers[tile][c];
        KAKEYA_UNROLL
        for (int o = 0; o < 2; ++o) {
          const float integer =
              Codes::integer(products[2 * tile + run][2 * o + c], run, zero, n.at[2 * run]);
          float& sum = sums.at[tile][o][c];
          sum = dev::fma(integer, scales[o][run] * n.at[2 * run + 1], sum);
        }
      }
    }
  }
}

// Adds a run, or a half of one, whose scale is f32.
template <int kRows, bool kFourBits>
struct GeneralPart {
  static constexpr int kTiles = StripSums<kRows>::kTiles;
  static constexpr int kColumns = StripSums<kRows>::kColumns;
  using Codes = StepCodes<kFourBits>;

  const StepLayout& layout;
  int word;
  int step;
  int run;
  int half;

  KAKEYA_DEVICE float code_sum(const StripRows<kRows>& rows, int tile, int c, float all) const {
    if (!layout.halves) return all;
    const float low = rows.low_sum(tile, step, run, c);
    return half == 0 ? low : all - low;
  }

  KAKEYA_DEVICE void add(const Codes& codes,
                         const StripRows<kRows>& rows,
                         float zero,
                         StripSums<kRows>& sums) const {
    std::uint32_t a[kTiles][4];
    std::uint32_t b[kTiles][2];
    int products[kTiles][4];
    KAKEYA_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      const FourWords own = rows.codes(tile, step);
      codes.of_run(run, a[tile]);
      b[tile][0] = half == 0 ? own.at[2 * run] : 0;
      b[tile][1] = half == 1 || !layout.halves ? own.at[2 * run + 1] : 0;
    }
    dev::integer_mma(products, a, b, kSumBaseBits);
    const dev::Shared<float> scales(word + layout.code_words());
    float scale[2];
    float minimum[2] = {};
    KAKEYA_UNROLL
    for (int o = 0; o < 2; ++o) {
      const int at = StepLayout::scale_at(dev::lane() / 4 + 8 * o, run, half);
      scale[o] = scales.load(at);
      if (layout.has_minimum) minimum[o] = scales.load(at + layout.scale_words());
    }
    KAKEYA_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      KAKEYA_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const FourFloats numbers = rows.numbers(tile, step, c);
        const float row_step = numbers.at[2 * run + 1];
        const float codes_of_part = code_sum(rows, tile, c, numbers.at[2 * run]);
        KAKEYA_UNROLL
        for (int o = 0; o < 2; ++o) {
          const float integer = Codes::integer(products[tile][2 * o + c], run, zero, codes_of_part);
          float& sum = sums.at[tile][o][c];
          sum = dev::fma(integer, scale[o] * row_step, sum);
          if (layout.has_minimum) sum = dev::fma(minimum[o], row_step * codes_of_part, sum);
        }
      }
    }
  }
};

template <int kRows, bool kFourBits>
KAKEYA_DEVICE void add_general_step(const StepLayout& layout,
                                    int word,
                                    const StripRows<kRows>& rows,
                                    int step,
                                    float zero,
                                    StripSums<kRows>& sums) {
  const StepCodes<kFourBits> codes(word);
  KAKEYA_UNROLL
  for (int run = 0; run < 2; ++run) {
    KAKEYA_NO_UNROLL
    for (int half = 0; half < (layout.halves ? 2 : 1); ++half) {
      GeneralPart<kRows, kFourBits>{layout, word, step, run, half}.add(codes, rows, zero, sums);
    }
  }
}

// Adds steps of `count` from number `i` on, kAtOnce at a time, and returns the first one behind
// them.
template <int kRows, bool kFourBits, int kAtOnce>
KAKEYA_DEVICE int add_plain_steps(int word,
                                  int i,
                                  int count,
                                  const StripRows<kRows>& rows,
                                  int step,
                                  float zero,
                                  StripSums<kRows>& sums) {
  constexpr int kWords = kFourBits ? 144 : 272;
  KAKEYA_NO_UNROLL
  for (; i + kAtOnce <= count; i += kAtOnce) {
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      add_plain_step<kRows, kFourBits>(word + (i + k) * kWords, rows, step + i + k, zero, sums);
    }
  }
  return i;
}

// Adds `count` steps that lie from `word` on, of which the first one meets step `step` of the rows.
template <int kRows, bool kFourBits>
KAKEYA_DEVICE void add_steps(const StepLayout& layout,
                             int word,
                             int count,
                             const StripRows<kRows>& rows,
                             int step,
                             float zero,
                             StripSums<kRows>& sums) {
  if (!layout.half_scales) {
    KAKEYA_NO_UNROLL
    for (int i = 0; i < count; ++i) {
      add_general_step<kRows, kFourBits>(layout, word + i * layout.words(), rows, step + i, zero,
                                         sums);
    }
    return;
  }
  // A warp that is alone with its strips waits the less the more steps it has at once.
  int i = 0;
  if constexpr (kRows == 8) {
    i = add_plain_steps<kRows, kFourBits, 4>(word, i, count, rows, step, zero, sums);
  }
  i = add_plain_steps<kRows, kFourBits, 2>(word, i, count, rows, step, zero, sums);
  add_plain_steps<kRows, kFourBits, 1>(word, i, count, rows, step, zero, sums);
}

template <int kRows>
KAKEYA_DEVICE void add_steps(const StepLayout& layout,
                             int word,
                             int count,
                             const StripRows<kRows>& rows,
                             int step,
                             float zero,
                             StripSums<kRows>& sums) {
  if (layout.four_bits) {
    add_steps<kRows, true>(layout, word, count, rows, step, zero, sums);
  } else {
    add_steps<kRows, false>(layout, word, count, rows, step, zero, sums);
  }
}

}  // namespace kakeya::cuda::device
