// How sums of tensor_attention.h come together. Chunks of 64 keys make a span of 256 positions, at
// multiples of it, ascending; spans make what a query sees, ascending. Who does it, and where the
// sums lie meanwhile, changes no bit.
#pragma once

#include "backend/cuda/device/attention.h"
#include "backend/cuda/device/integer_strips.h"
#include "backend/cuda/device/near_math.h"

namespace kakeya::cuda::device {

inline constexpr int kTensorSpan = 256;        // positions
inline constexpr int kAttentionThreads = 256;  // of tensor_attention.h

KAKEYA_DEVICE float minus_infinity() {
  return dev::float_of(0xff800000U);
}

// Factors of sums so far and of those that are added to them: one of them is 1, unless
// something is not finite.
struct JoinFactors {
  float before = 0.0F;
  float added = 0.0F;

  KAKEYA_DEVICE float join(float sum, float more) const {
    const float both = dev::fma(more, added, sum * before);
    return added == 0.0F ? sum : before == 0.0F ? more : both;
  }
};

// exp(score - largest); 0 for a key that is not seen.
KAKEYA_DEVICE float near_power(float score, float largest) {
  return score == minus_infinity() ? 0.0F : near_exp(score - largest);
}

KAKEYA_DEVICE JoinFactors join_factors(float before, float added) {
  const float largest = added > before ? added : before;
  return {near_power(before, largest), near_power(added, largest)};
}

// The largest score of some keys and the sum of their powers.
struct Powers {
  float largest = minus_infinity();
  float total = 0.0F;

  KAKEYA_DEVICE JoinFactors join(const Powers& more) {
    const JoinFactors factors = join_factors(largest, more.largest);
    if (more.largest > largest) largest = more.largest;
    total = factors.join(total, more.total);
    return factors;
  }
};

// All that rows from `first` to `last` see together.
KAKEYA_DEVICE SeenBy<int> seen_by_all(const AttentionParams& p,
                                      const RowPositions<int>& at,
                                      int first,
                                      int last) {
  const SeenBy<int> low = seen_by(p, at, at.first + first);
  const SeenBy<int> high = seen_by(p, at, at.first + last);
  const auto sinks = static_cast<int>(p.cache.sink);
  const int sink = sinks < high.begin ? sinks : high.begin;
  return {low.sink_begin, larger(low.sink_begin, sink), low.begin, high.end};
}
// All that the rows of an attention see together, and its parts.
KAKEYA_DEVICE SeenBy<int> seen_by_all(const AttentionParams& p, const RowPositions<int>& at) {
  return seen_by_all(p, at, 0, static_cast<int>(p.rows) - 1);
}
KAKEYA_DEVICE ChunksOf<int> parts_of(const AttentionParams& p, const RowPositions<int>& at) {
  const SeenBy<int> seen = seen_by_all(p, at);
  // Constants: a card divides by them at once.
  return p.part_positions == kChunk ? chunks_of(seen, kChunk) : chunks_of(seen, kTensorSpan);
}

// Where the sums of a part lie: the largest score, the sum of powers, then values.
KAKEYA_DEVICE std::int64_t part_place(const AttentionParams& p, int row, int head, int part) {
  const int vector =
      (row * static_cast<int>(p.num_heads) + head) * static_cast<int>(p.spans) + part;
  return vector * (p.cache.head_dim + 2);
}

// True if such rows are all of what a launch of join_attention_parts() makes.
KAKEYA_DEVICE bool makes_rows_of(const AttentionParams& p, const RoundParams& rows) {
  return rows.x == p.out && rows.count == p.rows && rows.width == p.num_heads * p.cache.head_dim;
}

KAKEYA_DEVICE bool makes_rows_of(const ManyAttentionsParams& p, const RoundParams& rows) {
  const AttentionParams& first = p.sequences[0];
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < p.count; ++i) {
    if (p.sequences[i].out != first.out + count * rows.width) return false;
    count += p.sequences[i].rows;
  }
  return rows.x == first.out && rows.count == count &&
         rows.width == first.num_heads * first.cache.head_dim;
}

// A block of join_attention_parts() takes 32 columns, of so many parts at a time. Chunks that are
// parts make one batch: a span is within it.
inline constexpr int kJoinedParts = 128;
inline constexpr int kJoinedColumns = dev::kWarp;
// Shared words: values, four factors of each part, sums of powers, largest scores, and the largest
// ones before each of them; then those of warps.
inline constexpr int kPartFactorsWord = kJoinedParts * kJoinedColumns;
inline constexpr int kPartTotalsWord = kPartFactorsWord + 4 * kJoinedParts;
inline constexpr int kPartLargestWord = kPartTotalsWord + kJoinedParts;
inline constexpr int kPartBeforeWord = kPartLargestWord + kJoinedParts;
inline constexpr int kWarpLargestWord = kPartBeforeWord + kJoinedParts;
inline constexpr int kJoinWords = kWarpLargestWord + kAttentionThreads / dev::kWarp;

// A part but for its values; nothing, where there is none.
struct PartNumbers {
  bool is_part = false;
  float largest = minus_infinity();
  float total = 0.0F;
};

// The parts of one row and head, by a block that brings columns [column, column + 32) together.
struct PartJoiner {
  const AttentionParams& p;
  int row;
  int head;
  int column;
  SeenBy<int> seen;
  ChunksOf<int> parts;

  KAKEYA_DEVICE bool sees(int part) const {
    const int position = parts.position(part);
    return seen.meets(position, position + parts.size);
  }
  KAKEYA_DEVICE int span(int part) const { return parts.position(part) / kTensorSpan; }
  KAKEYA_DEVICE bool is_last_of_span(int part) const {
    return part + 1 == parts.count || span(part + 1) != span(part);
  }

  // Each warp every eighth part, a lane a column. Parts that the row does not see were not made.
  KAKEYA_DEVICE void share_values(int begin, int count) const {
    constexpr int kWarps = kAttentionThreads / dev::kWarp;
    constexpr int kAhead = 4;
    const dev::Global<const float> partials(p.partials);
    const dev::Shared<float> values(0);
    KAKEYA_NO_UNROLL
    for (int first = dev::warp(); first < count; first += kAhead * kWarps) {
      float ahead[kAhead] = {};
      KAKEYA_UNROLL
      for (int j = 0; j < kAhead; ++j) {
        const int i = first + j * kWarps;
        if (i >= count || !sees(begin + i)) continue;
        const std::int64_t at = part_place(p, row, head, begin + i) + 2 + column;
        ahead[j] = partials.load(at + dev::lane());
      }
      KAKEYA_UNROLL
      for (int j = 0; j < kAhead; ++j) {
        const int i = first + j * kWarps;
        if (i < count) values.store(i * kJoinedColumns + dev::lane(), ahead[j]);
      }
    }
  }

  // The largest score of the parts before the thread's own, which has `own`; `carried`: of those
  // before the batch, and behind the call also of the batch.
  KAKEYA_DEVICE float largest_before(float own, float& carried) const {
    const dev::Shared<float> of_warps(kWarpLargestWord);
    float largest = own == own ? own : minus_infinity();
    KAKEYA_UNROLL
    for (int apart = 1; apart < dev::kWarp; apart *= 2) {
      float other[1];
      dev::of_lanes(largest, dev::lane() < apart ? 0 : dev::lane() - apart, other);
      if (dev::lane() >= apart && other[0] > largest) largest = other[0];
    }
    float before[1];
    dev::of_lanes(largest, dev::lane() == 0 ? 0 : dev::lane() - 1, before);
    if (dev::lane() == dev::kWarp - 1) of_warps.store(dev::warp(), largest);
    dev::sync_block();
    float all = dev::lane() == 0 ? carried : larger_score(before[0], carried);
    for (int w = 0; w < kAttentionThreads / dev::kWarp; ++w) {
      const float of_warp = of_warps.load(w);
      if (w < dev::warp()) all = larger_score(all, of_warp);
      carried = larger_score(carried, of_warp);
    }
    return all;
  }
  static KAKEYA_DEVICE float larger_score(float a, float b) { return a > b ? a : b; }

  // A thread a part.
  KAKEYA_DEVICE PartNumbers load_numbers(int begin, int count) const {
    PartNumbers own;
    own.is_part = dev::thread() < count;
    if (!own.is_part || !sees(begin + dev::thread())) return own;
    const std::int64_t at = part_place(p, row, head, begin + dev::thread());
    const auto numbers =
        dev::Global<const TwoFloats>(reinterpret_cast<const TwoFloats*>(p.partials)).load(at / 2);
    own.largest = numbers.at[0];
    own.total = numbers.at[1];
    return own;
  }

  // A thread a part: how it joins its span, and of the last of a span how that joins all.
  KAKEYA_DEVICE void share_factors(int begin, const PartNumbers& numbers, float& carried) const {
    const dev::Shared<float> largest(kPartLargestWord);
    const dev::Shared<float> before(kPartBeforeWord);
    const int i = dev::thread();
    const float own = numbers.largest;
    const float all_before = largest_before(own, carried);
    if (numbers.is_part) {
      largest.store(i, own);
      before.store(i, all_before);
      dev::Shared<float>(kPartTotalsWord).store(i, numbers.total);
    }
    dev::sync_block();
    if (!numbers.is_part) return;
    int first = i;
    float of_span = minus_infinity();
    for (; first > 0 && span(begin + first - 1) == span(begin + i); --first) {
      of_span = larger_score(of_span, largest.load(first - 1));
    }
    const JoinFactors joins = join_factors(of_span, own);
    JoinFactors span_joins = {1.0F, 0.0F};
    if (is_last_of_span(begin + i)) {
      span_joins = join_factors(before.load(first), own > of_span ? own : of_span);
    }
    dev::Shared<float>(kPartFactorsWord)
        .store_as(4 * i,
                  FourFloats{{joins.before, joins.added, span_joins.before, span_joins.added}});
  }
};

// A lane's column, as far as parts are added.
struct JoinedSums {
  float span_value = 0.0F;
  float span_total = 0.0F;
  float value = 0.0F;
  float total = 0.0F;

  // Adds kAtOnce parts of a batch, as long as there are so many: all are read before the first one
  // is added. `value_of` has the values of the lane's column.
  template <int kAtOnce, typename ValueOf>
  KAKEYA_DEVICE void add(int& first, int count, const ValueOf& value_of) {
    const dev::Shared<float> factors(kPartFactorsWord);
    const dev::Shared<float> totals(kPartTotalsWord);
    KAKEYA_NO_UNROLL
    for (; first + kAtOnce <= count; first += kAtOnce) {
      FourFloats f[kAtOnce];
      float more[kAtOnce];
      float more_total[kAtOnce];
      KAKEYA_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        f[k] = factors.load_as<FourFloats>(4 * (first + k));
        more[k] = value_of(first + k);
        more_total[k] = totals.load(first + k);
      }
      KAKEYA_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const JoinFactors joins = {f[k].at[0], f[k].at[1]};
        const JoinFactors span_joins = {f[k].at[2], f[k].at[3]};
        span_value = joins.join(span_value, more[k]);
        span_total = joins.join(span_total, more_total[k]);
        value = span_joins.join(value, span_value);
        total = span_joins.join(total, span_total);
      }
    }
  }
};

// Brings the parts of a row together, in blocks of heads * head_dim / 32; it is `rounded_row` of
// the rows that are rounded. The next launch may start behind the wait for the launches before.
KAKEYA_DEVICE void join_parts(const AttentionParams& p,
                              int row,
                              const RoundParams& rounded,
                              int rounded_row) {
  const int slices = static_cast<int>(p.cache.head_dim) / kJoinedColumns;
  const auto block = static_cast<int>(dev::block_x());
  const int head = block / slices;
  const int column = block % slices * kJoinedColumns;
  const auto at = row_positions<int>(p);
  const PartJoiner joiner = {p, row, head, column, seen_by(p, at, at.first + row), parts_of(p, at)};
  dev::wait_for_previous();
  dev::let_next_start();
  float carried = minus_infinity();
  JoinedSums sums;
  for (int begin = 0; begin < joiner.parts.count; begin += kJoinedParts) {
    const int left = joiner.parts.count - begin;
    const int count = left < kJoinedParts ? left : kJoinedParts;
    if (begin > 0) dev::sync_block();
    // On their way while values are.
    const PartNumbers numbers = joiner.load_numbers(begin, count);
    joiner.share_values(begin, count);
    joiner.share_factors(begin, numbers, carried);
    dev::sync_block();
    if (dev::warp() != 0) continue;
    const dev::Shared<float> values(0);
    const auto value_of = [&](int i) { return values.load(i * kJoinedColumns + dev::lane()); };
    int added = 0;
    sums.add<4>(added, count, value_of);
    sums.add<1>(added, count, value_of);
  }
  if (dev::warp() != 0) return;
  const std::int64_t first = (row * p.num_heads + head) * p.cache.head_dim + column;
  const float joined = sums.value / sums.total;
  dev::Global<float>(p.out).store(first + dev::lane(), joined);
  if (rounded.codes != nullptr) round_run(rounded, rounded_row, block, joined);
}

// Where there are several parts. Grid: heads * head_dim / 32, rows.
KAKEYA_DEVICE void join_attention_parts(const AttentionParams& p) {
  const auto row = static_cast<int>(dev::block_y());
  join_parts(p, row, p.rounded, row);
}

}  // namespace kakeya::cuda::device
