// Rounded rows in shared memory, from where warps hand them to tensor cores.
#pragma once

#include "backend/cuda/device/run_groups.h"

namespace kakeya::cuda::device {

struct alignas(8) TwoWords {
  std::uint32_t at[2];
};

inline constexpr int kMostRoundedRows = 8;  // of a tile that a block may round

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

  // The words of a row's codes; where numbers begin.
  KAKEYA_DEVICE int row_words() const {
    return steps * kRowWords + (kRows > 1 && steps % 2 == 0 ? kRowWords : 0);
  }
  KAKEYA_DEVICE int numbers_at() const { return first_word + kRows * row_words(); }

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

  // Brings `count` steps from `begin` on, by thread `own` of `threads`, of whole warps. Rows that
  // are not there are zeros. kMayRound: rows may have no codes.
  template <bool kMayRound, int kGroupsAtOnce = 4>
  KAKEYA_DEVICE void bring(const ProductRows& in,
                           const TileRows& tile,
                           int begin,
                           int count,
                           int own,
                           int threads) const {
    if constexpr (kMayRound && kRows <= kMostRoundedRows) {
      if (in.codes == nullptr)
        return bring_rounded<kGroupsAtOnce>(in, tile, begin, count, own, threads);
    }
    constexpr int kAtOnce = kRows - (kRows > 8 ? kRows - 8 : 0);
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
  KAKEYA_DEVICE int low_sums_at() const { return numbers_at() + steps * kRows * kStepNumbers; }
  KAKEYA_DEVICE static int row(int tile, int column) {
    return kRows == 1 ? 0 : tile * 8 + dev::lane() % 4 * 2 + column;
  }

  // Rounds rows that nobody has rounded, to what round_run() makes of them. Groups of four runs are
  // for a warp each, some at a time, and those behind them are on their way meanwhile.
  template <int kAtOnce>
  KAKEYA_DEVICE void bring_rounded(const ProductRows& in,
                                   const TileRows& tile,
                                   int begin,
                                   int count,
                                   int own,
                                   int threads) const {
    const int there = tile.count < kRows ? static_cast<int>(tile.count) : kRows;
    const int groups = (count + 1) / 2;  // of two steps
    const int apart = threads / dev::kWarp;
    FourFloats ahead[kAtOnce];
    load_groups(in, tile, begin, groups, there * groups, own / dev::kWarp, apart, ahead);
    KAKEYA_NO_UNROLL
    for (int group = own / dev::kWarp; group < there * groups; group += kAtOnce * apart) {
      FourFloats x[kAtOnce];
      KAKEYA_UNROLL
      for (int k = 0; k < kAtOnce; ++k) x[k] = ahead[k];
      load_groups(in, tile, begin, groups, there * groups, group + kAtOnce * apart, apart, ahead);
      store_groups(x, groups, there * groups, 2 * count, group, apart);
    }
    constexpr std::int64_t kNone[1] = {-1};
    KAKEYA_NO_UNROLL
    for (int r = there; r < kRows; ++r) {
      bring_units(in, kNone, r, count, own, threads);
      if (halves) bring_low_sums(in, kNone, r, count, own, threads);
    }
  }

  // The row and the run, from the first one of the chunk, of a lane of a group.
  struct LaneRun {
    int row;
    int run;

    KAKEYA_DEVICE LaneRun(int group, int groups) {
      row = kRows == 1 ? 0 : static_cast<int>(unsigned(group) / unsigned(groups));
      run = 4 * (group - row * groups) + dev::lane() / 8;
    }
  };

  // Four columns of each of some groups; zeros behind the last column and the last group.
  template <int kAtOnce>
  KAKEYA_DEVICE void load_groups(const ProductRows& in,
                                 const TileRows& tile,
                                 int begin,
                                 int groups,
                                 int end,
                                 int first,
                                 int apart,
                                 FourFloats (&x)[kAtOnce]) const {
    const dev::Global<const FourFloats> from(reinterpret_cast<const FourFloats*>(in.x));
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      const int group = first + k * apart;
      const LaneRun at(group, groups);
      const int four = (2 * begin + at.run) * 8 + dev::lane() % 8;
      const bool is_there = group < end && 4 * four < in.width;
      x[k] = is_there ? from.load(tile.row(at.row) * (in.width / 4) + four) : FourFloats{};
    }
  }

  // Rounds groups and stores those runs that the chunk has.
  template <int kAtOnce>
  KAKEYA_DEVICE void store_groups(
      const FourFloats (&x)[kAtOnce], int groups, int end, int runs, int first, int apart) const {
    const RunGroups<kAtOnce> rounded(x);
    KAKEYA_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      const LaneRun at(first + k * apart, groups);
      if (first + k * apart >= end || at.run >= runs) continue;
      store_run(at, rounded.codes[k], {{rounded.sums[k], rounded.steps[k]}}, rounded.lows[k]);
    }
  }

  // The lane's four codes of a run; of eight lanes the first one has the numbers.
  KAKEYA_DEVICE void store_run(const LaneRun& at,
                               std::uint32_t codes,
                               const TwoFloats& numbers,
                               float low) const {
    const int step = at.run / 2;
    const int in_step = at.run % 2;
    const int half = dev::lane() / 4 % 2;
    dev::Shared<std::uint32_t>(first_word + at.row * row_words() + step * kRowWords)
        .store(dev::lane() % 4 * kUnitWords + in_step * 2 + half, codes);
    if (dev::lane() % 8 != 0) return;
    const int place = step * kRows + at.row;
    dev::Shared<float>(numbers_at()).store_as(place * kStepNumbers + in_step * 2, numbers);
    if (halves) dev::Shared<float>(low_sums_at()).store(place * kStepLowSums + in_step, low);
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
