// Rounded rows in shared memory, from where warps hand them to tensor cores.
#pragma once

#include "backend/cuda/device/integer_strips.h"

namespace kakeya::cuda::device {

struct alignas(8) TwoWords {
  std::uint32_t at[2];
};

// Room for `steps` steps of kRows rows: for each row codes, 64 bytes apart modulo 128, so that
// lanes load them from different banks; then by step and row the numbers; then, if some scales are
// for 16 columns, sums of the first ones.
template <int kRows>
struct StripRows {
  static constexpr int kColumns = kRows == 1 ? 1 : 2;  // the rows that a lane has sums of
  static constexpr int kRowWords = kStepCodeUnits * kUnitWords;

  int first_word;
  int steps;
  bool halves;

  KAKEYA_DEVICE StripRows(int first, int room, bool has_halves)
      : first_word(first), steps(room), halves(has_halves) {}

  KAKEYA_DEVICE int words() const {
    return low_sums_at() - first_word + (halves ? steps * kRows * kStepLowSums : 0);
  }

  // The lane's codes of a step, of eight rows: of row lane / 4. Of one row all have the same.
  KAKEYA_DEVICE FourWords codes(int tile, int step) const {
    const int row = kRows == 1 ? 0 : tile * 8 + dev::lane() / 4;
    return dev::Shared<std::uint32_t>(first_word + row * row_words() + step * kRowWords)
        .load_as<FourWords>(dev::lane() % 4 * kUnitWords);
  }
  // The numbers of a step, of the row that has the lane's column number `column` of sums.
  KAKEYA_DEVICE FourFloats numbers(int tile, int step, int column) const {
    return dev::Shared<float>(numbers_at())
        .load_as<FourFloats>((step * kRows + row(tile, column)) * kStepNumbers);
  }
  KAKEYA_DEVICE float low_sum(int tile, int step, int run, int column) const {
    return dev::Shared<float>(low_sums_at())
        .load((step * kRows + row(tile, column)) * kStepLowSums + run);
  }

  // Brings `count` steps from `begin` on, by thread `own` of `threads`. Rows that are not there are
  // zeros.
  KAKEYA_DEVICE void bring(const ProductRows& in,
                           const TileRows& tile,
                           int begin,
                           int count,
                           int own,
                           int threads) const {
    constexpr int kAtOnce = kRows < 8 ? kRows : 8;
    KAKEYA_NO_UNROLL
    for (int first = 0; first < kRows; first += kAtOnce) {
      std::int64_t from[kAtOnce];
      KAKEYA_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        from[r] = first + r < tile.count ? tile.row(first + r) * num_steps(in.width) + begin : -1;
      }
      bring_units(in, from, first, count, own, threads);
      if (halves) bring_low_sums(in, from, first, count, own, threads);
    }
  }

 private:
  KAKEYA_DEVICE int row_words() const {
    return steps * kRowWords + (kRows > 1 && steps % 2 == 0 ? kRowWords : 0);
  }
  KAKEYA_DEVICE int numbers_at() const { return first_word + kRows * row_words(); }
  KAKEYA_DEVICE int low_sums_at() const { return numbers_at() + steps * kRows * kStepNumbers; }
  KAKEYA_DEVICE static int row(int tile, int column) {
    return kRows == 1 ? 0 : tile * 8 + dev::lane() % 4 * 2 + column;
  }

  // Codes and numbers, each in units of 16 bytes; of several rows all are loaded before the first
  // one is stored.
  template <int kAtOnce>
  KAKEYA_DEVICE void bring_units(const ProductRows& in,
                                 const std::int64_t (&from)[kAtOnce],
                                 int first,
                                 int count,
                                 int own,
                                 int threads) const {
    const int code_units = count * kStepCodeUnits;
    const dev::Shared<std::uint32_t> to(0);
    for (int unit = own; unit < code_units + count; unit += threads) {
      const bool is_code = unit < code_units;
      const int step = unit - code_units;
      const dev::Global<const FourWords> units(reinterpret_cast<const FourWords*>(
          is_code ? static_cast<const void*>(in.codes) : in.numbers));
      const int of_step = is_code ? kStepCodeUnits : 1;
      const int at = is_code ? unit : step;
      FourWords held[kAtOnce];
      KAKEYA_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        held[r] = from[r] < 0 ? FourWords{} : units.load(from[r] * of_step + at);
      }
      const int word = is_code ? first_word + first * row_words() + unit * kUnitWords
                               : numbers_at() + (step * kRows + first) * kStepNumbers;
      const int apart = is_code ? row_words() : kStepNumbers;
      KAKEYA_UNROLL
      for (int r = 0; r < kAtOnce; ++r) to.store_as(word + r * apart, held[r]);
    }
  }

  template <int kAtOnce>
  KAKEYA_DEVICE void bring_low_sums(const ProductRows& in,
                                    const std::int64_t (&from)[kAtOnce],
                                    int first,
                                    int count,
                                    int own,
                                    int threads) const {
    const dev::Global<const TwoWords> lows(reinterpret_cast<const TwoWords*>(in.low_sums));
    const dev::Shared<std::uint32_t> to(low_sums_at());
    for (int step = own; step < count; step += threads) {
      KAKEYA_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        to.store_as((step * kRows + first + r) * kStepLowSums,
                    from[r] < 0 ? TwoWords{} : lows.load(from[r] + step));
      }
    }
  }
};

}  // namespace kakeya::cuda::device
