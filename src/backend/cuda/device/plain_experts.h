// Experts of one row, whose weights have codes of four bits and scales in f16 (integer_strips.h):
// what most files have, in kernels with little code, which is read from memory where it runs once.
//
// The hidden kernel makes a run of hidden columns of one rank a block, which are two strips of
// gates and two of what they are for, each shared by four warps. So it can round what it has made.
// Codes of steps lie in shared memory, where each lane reads what it has copied itself, and then
// terms, as split_strips.h has them; scales stay in registers.
#pragma once

#include "backend/cuda/device/split_strips.h"

namespace kakeya::cuda::device {

inline constexpr int kPlainCodeWords = 128;  // of a step
inline constexpr int kPlainStepWords = 144;
inline constexpr int kPlainStepUnits = kPlainStepWords / kUnitWords;
inline constexpr int kRunStrips = 2;
inline constexpr int kRunWarps = 2 * kRunStrips * kSplitWarps;  // of a block
inline constexpr int kPlainAtOnce = 4;                          // steps
inline constexpr int kMostQuarterSteps = 3 * kPlainAtOnce;
inline constexpr int kMostPlainRanks = 8;  // a warp each

KAKEYA_DEVICE bool is_plain(const Weight& w) {
  return w.type == WeightType::kIntegers && w.four_bits && w.half_scales;
}
// Where a strip begins, of matrices of such a shape that lie from `data` on.
KAKEYA_DEVICE const FourWords* plain_strip(const void* data,
                                           const Weight& shape,
                                           int matrix,
                                           int strip) {
  const auto strips = (static_cast<std::uint32_t>(shape.rows) + kStripOutputs - 1) / kStripOutputs;
  const auto steps = (static_cast<std::uint32_t>(shape.cols) + kStepColumns - 1) / kStepColumns;
  const auto before =
      static_cast<std::uint32_t>(matrix) * strips + static_cast<std::uint32_t>(strip);
  return static_cast<const FourWords*>(data) +
         static_cast<std::uint64_t>(before) * (steps * kPlainStepUnits);
}
KAKEYA_DEVICE int plain_steps(const ProductRows& rows) {
  return static_cast<int>((static_cast<std::uint32_t>(rows.width) + kStepColumns - 1) /
                          kStepColumns);
}
KAKEYA_DEVICE int plain_row_words(int steps) {
  return steps * (kStepCodeUnits * kUnitWords + kStepNumbers);
}

// Units of a row's codes, and behind those of its numbers: as StripRows<1> has them.
struct RowUnits {
  const FourWords* codes;
  const FourWords* numbers;
  int code_units;

  KAKEYA_DEVICE RowUnits(const ProductRows& in, int row, int steps)
      : codes(reinterpret_cast<const FourWords*>(in.codes) + row * steps * kStepCodeUnits),
        numbers(reinterpret_cast<const FourWords*>(in.numbers) + row * steps),
        code_units(steps * kStepCodeUnits) {}

  KAKEYA_DEVICE const FourWords* at(int unit) const {
    return unit < code_units ? codes + unit : numbers + (unit - code_units);
  }
};

// Multiplies both runs of a step, whose codes lie from `word` on, with those of a row.
KAKEYA_DEVICE void multiply_plain_step(int word,
                                       const StripRows<1>& row,
                                       int step,
                                       int (&products)[2][4]) {
  const StepCodes<true> codes(word);
  const FourWords own = row.codes(0, step);
  std::uint32_t a[2][4];
  std::uint32_t b[2][2];
  KAKEYA_UNROLL
  for (int run = 0; run < 2; ++run) {
    codes.of_run(run, a[run]);
    b[run][0] = own.at[2 * run];
    b[run][1] = own.at[2 * run + 1];
  }
  dev::integer_mma(products, a, b, kSumBaseBits);
}

// A warp's quarter of the steps of a strip: of each, terms of run lane % 4 / 2 and of output
// lane / 4 + 8 * (lane % 2).
struct PlainQuarter {
  int word;  // of its first step
  int step;  // of the row, the first one
  int count;
  std::uint32_t scales[kMostQuarterSteps];  // from the next step on

  KAKEYA_DEVICE static bool is_second_run() { return dev::lane() % 4 >= 2; }

  // A group of copies for each kPlainAtOnce steps.
  KAKEYA_DEVICE PlainQuarter(const FourWords* strip, int strip_word, int steps) {
    const int quarter = dev::warp() % kSplitWarps;
    step = steps * quarter / kSplitWarps;
    count = steps * (quarter + 1) / kSplitWarps - step;
    word = strip_word + step * kPlainCodeWords;
    const FourWords* const from = strip + step * kPlainStepUnits + dev::lane();
    const int to = word + dev::lane() * kUnitWords;
    const dev::CopyPolicy policy(true);
    KAKEYA_NO_UNROLL
    for (int first = 0; first < kMostQuarterSteps; first += kPlainAtOnce) {
      KAKEYA_UNROLL
      for (int k = 0; k < kPlainAtOnce; ++k) {
        if (first + k >= count) continue;
        dev::begin_copy(to + (first + k) * kPlainCodeWords, from, (first + k) * kPlainStepUnits,
                        policy);
      }
      dev::end_copies();
    }
    const int half = (dev::lane() / 4 * 2 + dev::lane() % 2) * 2 + dev::lane() % 4 / 2;
    const dev::Global<const std::uint16_t> halves(
        reinterpret_cast<const std::uint16_t*>(strip + step * kPlainStepUnits) +
        2 * kPlainCodeWords + half);
    KAKEYA_UNROLL
    for (int k = 0; k < kMostQuarterSteps; ++k) {
      scales[k] = k < count ? halves.load(k * 2 * kPlainStepWords) : 0;
    }
  }

  KAKEYA_DEVICE void make_terms(const StripRows<1>& row, float zero) {
    KAKEYA_NO_UNROLL
    for (int first = 0; first < count; first += kPlainAtOnce) {
      if (first == 0) {
        dev::await_copies<2>();
      } else if (first == kPlainAtOnce) {
        dev::await_copies<1>();
      } else {
        dev::await_copies<0>();
      }
      make_some(row, zero, first);
      KAKEYA_UNROLL
      for (int k = 0; k + kPlainAtOnce < kMostQuarterSteps; ++k) {
        scales[k] = scales[k + kPlainAtOnce];
      }
    }
  }

 private:
  // Behind the last step stands that one again, of which nothing is stored.
  KAKEYA_DEVICE void make_some(const StripRows<1>& row, float zero, int first) const {
    const float unit = is_second_run() ? 0x1p-4F : 1.0F;
    TwoFloats terms[kPlainAtOnce];
    KAKEYA_UNROLL
    for (int k = 0; k < kPlainAtOnce; ++k) {
      const int at = first + k < count ? first + k : count - 1;
      int products[2][4];
      multiply_plain_step(word + at * kPlainCodeWords, row, step + at, products);
      const bool is_second = dev::lane() % 2 != 0;
      const int low = is_second ? products[0][2] : products[0][0];
      const int high = is_second ? products[1][2] : products[1][0];
      const float sum = dev::float_of(static_cast<std::uint32_t>(is_second_run() ? high : low));
      const FourFloats numbers = row.numbers(0, step + at, 0);
      const float codes = is_second_run() ? numbers.at[2] : numbers.at[0];
      float scale[2];
      dev::floats_of_halves(scales[k], scale);
      terms[k] = {{dev::fma(sum, unit, -dev::fma(zero, codes, kSumBase * unit)),
                   scale[0] * (is_second_run() ? numbers.at[3] : numbers.at[1])}};
    }
    dev::sync_warp();
    const int output = dev::lane() / 4 + 8 * (dev::lane() % 2);
    const int own = (output * 2 + (is_second_run() ? 1 : 0)) * kTermWords;
    KAKEYA_UNROLL
    for (int k = 0; k < kPlainAtOnce; ++k) {
      if (first + k >= count) continue;
      dev::Shared<float>(word + (first + k) * kPlainCodeWords).store_as(own, terms[k]);
    }
  }
};

// Adds the terms of kAhead steps of two outputs, which lie from `words` on, as long as there are so
// many.
template <int kAhead>
KAKEYA_DEVICE void add_both(const int (&words)[2], int steps, int& step, float (&sums)[2]) {
  KAKEYA_NO_UNROLL
  for (; step + kAhead <= steps; step += kAhead) {
    FourFloats terms[kAhead][2];
    KAKEYA_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      KAKEYA_UNROLL
      for (int i = 0; i < 2; ++i) {
        terms[k][i] =
            dev::Shared<float>(words[i]).load_as<FourFloats>((step + k) * kPlainCodeWords);
      }
    }
    KAKEYA_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      KAKEYA_UNROLL
      for (int i = 0; i < 2; ++i) {
        sums[i] = dev::fma(terms[k][i].at[0], terms[k][i].at[1], sums[i]);
        sums[i] = dev::fma(terms[k][i].at[2], terms[k][i].at[3], sums[i]);
      }
    }
  }
}

// The words of shared memory of plain_expert_hidden(): codes of the strips of gates, then of the
// others; then the row.
KAKEYA_DEVICE int plain_hidden_words(int steps) {
  return 2 * kRunStrips * steps * kPlainCodeWords + plain_row_words(steps);
}

// Also for matrices that are no experts: without ids, of one rank. Grid: runs, ranks.
KAKEYA_DEVICE void plain_expert_hidden(const ExpertHiddenParams& p) {
  dev::wait_for_previous();
  const auto rank = static_cast<int>(dev::block_y());
  const std::int32_t expert =
      p.experts == nullptr ? 0 : dev::Global<const std::int32_t>(p.experts).load(rank);
  const int steps = plain_steps(p.rows);
  const int strip_words = steps * kPlainCodeWords;
  const int row_word = 2 * kRunStrips * strip_words;
  const int own = dev::warp() / kSplitWarps;
  const bool is_gate = own < kRunStrips;
  const int last = static_cast<int>(num_strips(p.gate.rows)) - 1;
  const int wanted = static_cast<int>(dev::block_x()) * kRunStrips + own % kRunStrips;
  PlainQuarter quarter(
      plain_strip(is_gate ? p.gate.data : p.up.data, p.gate, expert, wanted < last ? wanted : last),
      own * strip_words, steps);
  // Behind the copies: those of the next launch come when these have.
  dev::let_next_start();
  const StripRows<1> row(row_word, steps, false);
  row.bring<true, 1>(p.rows, TileRows(p.rows, 0), 0, steps, dev::thread(), dev::threads());
  dev::sync_block();
  quarter.make_terms(row, static_cast<float>(is_gate ? p.gate.zero : p.up.zero));
  dev::await_copies<0>();
  dev::sync_block();
  if (dev::warp() != 0) return;
  const int word =
      dev::lane() / kStripOutputs * strip_words + dev::lane() % kStripOutputs * 2 * kTermWords;
  const int words[2] = {word, word + kRunStrips * strip_words};
  float sums[2] = {};
  int step = 0;
  add_both<8>(words, steps, step, sums);
  add_both<4>(words, steps, step, sums);
  add_both<1>(words, steps, step, sums);
  const float x = gated(p.silu, sums[0], sums[1]);
  const std::int64_t column = dev::block_x() * dev::kWarp + dev::lane();
  if (column < p.gate.rows) dev::Global<float>(p.hidden).store(rank * p.gate.rows + column, x);
  if (p.rounded.codes != nullptr) round_run(p.rounded, rank, dev::block_x(), x);
}

// The words of shared memory of plain_expert_output(): what ranks come to, then each warp's strip
// and its row.
KAKEYA_DEVICE int plain_output_words(int steps, int ranks) {
  return ranks * (kStripOutputs + steps * kPlainStepWords + plain_row_words(steps));
}

// The product of output lane / 4 + 8 * (lane % 2) of a strip with a row.
KAKEYA_DEVICE float plain_product(int word, const StripRows<1>& row, int steps, float zero) {
  // With one more at once two blocks have no room beside one of plain_expert_hidden().
  constexpr int kAtOnce = 3;
  const bool is_second = dev::lane() % 2 != 0;
  float sum = 0.0F;
  KAKEYA_NO_UNROLL
  for (int first = 0; first < steps; first += kAtOnce) {
    float integers[kAtOnce][2];
    float factors[kAtOnce][2];
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      const int at = first + k < steps ? first + k : steps - 1;
      const int step_word = word + at * kPlainStepWords;
      int products[2][4];
      multiply_plain_step(step_word, row, at, products);
      const FourFloats numbers = row.numbers(0, at, 0);
      float scales[2];
      dev::floats_of_halves(dev::Shared<std::uint32_t>(step_word + kPlainCodeWords)
                                .load(dev::lane() / 4 * 2 + dev::lane() % 2),
                            scales);
      KAKEYA_UNROLL
      for (int run = 0; run < 2; ++run) {
        const int product = is_second ? products[run][2] : products[run][0];
        integers[k][run] = StepCodes<true>::integer(product, run, zero, numbers.at[2 * run]);
        factors[k][run] = scales[run] * numbers.at[2 * run + 1];
      }
    }
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      if (first + k >= steps) continue;
      sum = dev::fma(integers[k][0], factors[k][0], sum);
      sum = dev::fma(integers[k][1], factors[k][1], sum);
    }
  }
  return sum;
}

// Warps have a rank each, whose weights are on their way before the hidden columns are there. Then
// ranks are added up as expert_output() does. The launch before this one is not the one that has
// chosen the experts. Grid: strips.
KAKEYA_DEVICE void plain_expert_output(const ExpertOutputParams& p) {
  const int rank = dev::warp();
  const std::int32_t expert = dev::Global<const std::int32_t>(p.experts).load_fresh(rank);
  const float weight = dev::Global<const float>(p.weights).load_fresh(rank);
  const int steps = plain_steps(p.rows);
  const auto top_k = static_cast<int>(p.top_k);
  const int own_words = plain_output_words(steps, 1) - kStripOutputs;
  const int word = top_k * kStripOutputs + rank * own_words;
  const int row_word = word + steps * kPlainStepWords;
  begin_few_copies(dev::CopyPolicy(true), word,
                   plain_strip(p.down.data, p.down, expert, static_cast<int>(dev::block_x())),
                   steps * kPlainStepUnits, dev::lane(), dev::kWarp);
  dev::wait_for_previous();
  dev::let_next_start();
  const RowUnits units(p.rows, rank, steps);
  const dev::CopyPolicy policy(false);
  KAKEYA_NO_UNROLL
  for (int unit = dev::lane(); unit < steps * (kStepCodeUnits + 1); unit += dev::kWarp) {
    dev::begin_copy(row_word + unit * kUnitWords, units.at(unit), 0, policy);
  }
  dev::end_copies();
  dev::await_copies<0>();
  dev::sync_warp();
  const float sum = plain_product(word, StripRows<1>(row_word, steps, false), steps,
                                  static_cast<float>(p.down.zero));
  const dev::Shared<float> ranks(0);
  if (dev::lane() % 4 < 2) {
    ranks.store(rank * kStripOutputs + dev::lane() / 4 + 8 * (dev::lane() % 4), weight * sum);
  }
  dev::sync_block();
  const std::int64_t n = dev::block_x() * kStripOutputs + dev::thread();
  if (dev::thread() >= kStripOutputs || n >= p.down.rows) return;
  float total = 0.0F;
  KAKEYA_UNROLL
  for (int r = 0; r < kMostPlainRanks; ++r) {
    if (r < top_k) total = total + ranks.load(r * kStripOutputs + dev::thread());
  }
  dev::Global<float>(p.out).store(n, total);
}

}  // namespace kakeya::cuda::device
