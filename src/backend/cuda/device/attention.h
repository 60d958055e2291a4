// Attention over rows of the cache. The order of its sums: chunks of 64 keys that begin at
// multiples of 64 positions, of which each of eight warps takes eight keys; as many chunks as make
// at most 32 spans, each a block's, are added up by each warp, ascending; then warps; then spans.
// What a query sees decides all of that, so its sums are the same alone and beside other rows.
//
// Products of rotated vectors are those of the vectors themselves. So a query meets rotated keys
// rotated, and sums of rotated values are rotated back once, at the end.
#pragma once

#include "backend/cuda/device/stored_vector.h"

namespace kakeya::cuda::device {

inline constexpr int kChunk = 64;  // keys
inline constexpr int kAttentionWarps = 8;
inline constexpr int kWarpKeys = kChunk / kAttentionWarps;
inline constexpr int kMaxSpans = 32;
// Shared words: largest scores and sums of the warps, and their values.
inline constexpr int kValuesWord = 2 * kAttentionWarps;
inline constexpr int kAttentionWords = kValuesWord + kAttentionWarps * kMaxHeadDim;

// The positions that a query sees, as AttentionInput::seen() says. `Int`: kernels that have no
// registers to spare take 32 bits.
template <typename Int>
struct SeenBy {
  Int sink_begin;
  Int sink_end;
  Int begin;
  Int end;

  KAKEYA_DEVICE bool holds(Int position) const {
    return (position >= sink_begin && position < sink_end) || (position >= begin && position < end);
  }
  KAKEYA_DEVICE bool meets(Int first, Int last) const {
    return (sink_begin < sink_end && first < sink_end && last > sink_begin) ||
           (first < end && last > begin);
  }
};
using Seen = SeenBy<std::int64_t>;

template <typename Int>
KAKEYA_DEVICE Int larger(Int a, Int b) {
  return a > b ? a : b;
}

// Where the rows of an attention are.
template <typename Int>
struct RowPositions {
  Int first;
  Int stored_end;  // rows before it have been there since before the pass
  Int block_end;   // each row sees those before it; 0: those up to itself

  KAKEYA_DEVICE RowPositions(const AttentionParams& p, Int first_position)
      : first(first_position),
        stored_end(first_position - static_cast<Int>(p.first_row)),
        block_end(p.block_rows == 0 ? 0 : stored_end + static_cast<Int>(p.block_rows)) {}
};
// Also before a launch has waited: no launch of a pass writes positions.
template <typename Int>
KAKEYA_DEVICE RowPositions<Int> row_positions(const AttentionParams& p) {
  const dev::Global<const std::int64_t> positions(p.positions);
  return {p, static_cast<Int>(positions.load_fresh(0))};
}

template <typename Int>
KAKEYA_DEVICE SeenBy<Int> seen_by(const AttentionParams& p,
                                  const RowPositions<Int>& at,
                                  Int position) {
  const auto window = static_cast<Int>(p.window);
  const auto kept = static_cast<Int>(p.kept);
  const auto sinks = static_cast<Int>(p.cache.sink);
  const Int first = window == 0 ? 0 : larger<Int>(0, position - window + 1);
  const Int begin = kept == 0 ? first : larger<Int>(first, position - kept + 1);
  const Int sink = sinks < begin ? sinks : begin;
  return {first, larger(first, sink), begin, larger<Int>(position + 1, at.block_end)};
}

// Positions from `first` on; for each that is not seen the last one that is.
template <int kCount>
KAKEYA_DEVICE void seen_positions(const Seen& seen,
                                  std::int64_t first,
                                  std::int64_t (&positions)[kCount]) {
  KAKEYA_UNROLL
  for (int j = 0; j < kCount; ++j) {
    positions[j] = seen.holds(first + j) ? first + j : seen.end - 1;
  }
}

// The chunks of which a query sees some keys: `sinks` of them from first_sink on, then the others.
// They are of `size` positions, and begin at multiples of it.
template <typename Int>
struct ChunksOf {
  Int size;
  Int sinks;
  Int first_sink;
  Int first;
  Int count;

  KAKEYA_DEVICE Int in_a_span() const { return (count + kMaxSpans - 1) / kMaxSpans; }
  KAKEYA_DEVICE Int spans() const { return (count + in_a_span() - 1) / in_a_span(); }
  // The position at which chunk i begins.
  KAKEYA_DEVICE Int position(Int i) const {
    return (i < sinks ? first_sink + i : first + i - sinks) * size;
  }
};
using Chunks = ChunksOf<std::int64_t>;

template <typename Int>
KAKEYA_DEVICE ChunksOf<Int> chunks_of(const SeenBy<Int>& seen, Int size = kChunk) {
  const Int first_sink = seen.sink_begin / size;
  const Int sinks =
      seen.sink_begin < seen.sink_end ? (seen.sink_end - 1) / size + 1 - first_sink : 0;
  const Int own = seen.begin / size;
  const Int first = sinks > 0 ? larger(own, first_sink + sinks) : own;
  const Int end = (seen.end - 1) / size + 1;
  return {size, sinks, first_sink, first, sinks + larger<Int>(0, end - first)};
}

// The storage of rows that is known when their kernel is compiled.
enum class Stored { kAnyType, kBf16, kOneBf16Vector };

// The keys and values of one head that were stored.
template <Stored kStored>
struct StoredRows {
  static constexpr bool kBf16 = kStored != Stored::kAnyType;
  // Keys that a warp loads at once. The code for all types, and that which makes keys, is long.
  static constexpr int kTogether = kStored == Stored::kBf16 ? 4 : kBf16 ? 2 : 1;
  // Where the key and the value lie that are the lane's own, of the warp's keys.
  struct Places {
    std::uint64_t key;
    std::uint64_t value;
  };
  const AttentionParams& p;
  std::int64_t head;
  Held held;

  KAKEYA_DEVICE bool makes_keys() const {
    return kStored == Stored::kAnyType ? p.cache.keys == nullptr
                                       : kStored == Stored::kOneBf16Vector;
  }
  KAKEYA_DEVICE bool keys_stay_rotated() const { return values_stay_rotated() && !makes_keys(); }
  KAKEYA_DEVICE bool values_stay_rotated() const {
    return !kBf16 && p.cache.format == RowFormat::kE8;
  }

  KAKEYA_DEVICE void multiply_by_norm(float (&x)[kHeld]) const {
    const dev::Global<const float> norm(p.k_norm);
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const int e = held.element(k);
      if (e >= 0) x[k] = x[k] * norm.load(e);
    }
  }
  KAKEYA_DEVICE void turn_key(std::int64_t position, float (&x)[kHeld]) const {
    turn(position, dev::Global<const float>(p.frequencies), p.num_frequencies, x);
  }

  KAKEYA_DEVICE Places places(std::int64_t position) const {
    const std::uint64_t value = vector_address(p.cache, p.cache.values, position, head);
    if (makes_keys()) return {value, value};
    return {vector_address(p.cache, p.cache.keys, position, head), value};
  }

  // Keys of the lanes from `first` on, which lie at `positions`.
  template <int kCount>
  KAKEYA_DEVICE void load_keys(const Places& own,
                               int first,
                               const std::int64_t (&positions)[kCount],
                               bool stay_rotated,
                               float (&x)[kCount][kHeld]) const {
    std::uint64_t addresses[kCount];
    dev::of_lanes(own.key, first, addresses);
    load_vectors<kBf16>(held, p.cache, addresses, stay_rotated, x);
    if (!makes_keys()) return;
    KAKEYA_UNROLL
    for (int j = 0; j < kCount; ++j) {
      multiply_by_norm(x[j]);
      turn_key(positions[j], x[j]);
    }
  }
  template <int kCount>
  KAKEYA_DEVICE void load_keys(const Places& own,
                               int first,
                               const std::int64_t (&positions)[kCount],
                               float (&x)[kCount][kHeld]) const {
    load_keys(own, first, positions, keys_stay_rotated(), x);
  }
  template <int kCount>
  KAKEYA_DEVICE void load_values(const Places& own,
                                 int first,
                                 const std::int64_t (&/*positions*/)[kCount],
                                 bool stay_rotated,
                                 float (&x)[kCount][kHeld]) const {
    std::uint64_t addresses[kCount];
    dev::of_lanes(own.value, first, addresses);
    load_vectors<kBf16>(held, p.cache, addresses, stay_rotated, x);
  }
  template <int kCount>
  KAKEYA_DEVICE void load_values(const Places& own,
                                 int first,
                                 const std::int64_t (&positions)[kCount],
                                 float (&x)[kCount][kHeld]) const {
    load_values(own, first, positions, values_stay_rotated(), x);
  }
};

// A query of one head, as the lanes of a warp know it, and where it finds keys and values.
template <typename Rows>
struct Query {
  const Rows& rows;
  Seen seen;
  Held held;
  float scale;
  float elements[kHeld];
};

// The sums of a warp so far: the largest score, the sum of powers, and values weighted by them.
struct Attended {
  float largest = dev::float_of(0xff800000U);
  float total = 0.0F;
  float values[kHeld] = {};
};

// The score of the warp's key number lane(), of those from `first` on: minus infinity where there
// is none, or the query does not see it. For such a key it looks at the last one that it sees.
template <typename Rows>
KAKEYA_DEVICE float own_score(const Query<Rows>& query,
                              const typename Rows::Places& places,
                              std::int64_t first) {
  float own = dev::float_of(0xff800000U);
  KAKEYA_NO_UNROLL
  for (int begin = 0; begin < kWarpKeys; begin += Rows::kTogether) {
    std::int64_t positions[Rows::kTogether];
    seen_positions(query.seen, first + begin, positions);
    float keys[Rows::kTogether][kHeld] = {};
    query.rows.load_keys(places, begin, positions, keys);
    float products[Rows::kTogether] = {};
    KAKEYA_UNROLL
    for (int j = 0; j < Rows::kTogether; ++j) {
      KAKEYA_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        if (query.held.uses(k)) products[j] = dev::fma(query.elements[k], keys[j][k], products[j]);
      }
    }
    dev::warp_sums(products);
    KAKEYA_UNROLL
    for (int j = 0; j < Rows::kTogether; ++j) {
      const bool is_own = dev::lane() == begin + j && query.seen.holds(first + begin + j);
      if (is_own) own = products[j] * query.scale;
    }
  }
  return own;
}

// exp(a - b), where b is the larger one.
KAKEYA_DEVICE float power_of(float a, float b) {
  return static_cast<float>(device::exp(static_cast<double>(a) - b));
}

// Adds the warp's keys of a chunk, the first of them at `first`.
template <typename Rows>
KAKEYA_DEVICE void attend_keys(const Query<Rows>& query, std::int64_t first, Attended& all) {
  std::int64_t own_position[1];
  seen_positions(query.seen, first + dev::lane() % kWarpKeys, own_position);
  const typename Rows::Places places = query.rows.places(own_position[0]);
  const float score = own_score(query, places, first);
  const float new_largest = dev::warp_max(score);
  const float largest = new_largest > all.largest ? new_largest : all.largest;
  const float own_power = power_of(score, largest);
  const float before = power_of(all.largest, largest);
  all.largest = largest;
  all.total = all.total * before;
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) all.values[k] = all.values[k] * before;
  KAKEYA_NO_UNROLL
  for (int begin = 0; begin < kWarpKeys; begin += Rows::kTogether) {
    std::int64_t positions[Rows::kTogether];
    seen_positions(query.seen, first + begin, positions);
    float values[Rows::kTogether][kHeld] = {};
    query.rows.load_values(places, begin, positions, values);
    float power[Rows::kTogether];
    dev::of_lanes(own_power, begin, power);
    KAKEYA_UNROLL
    for (int j = 0; j < Rows::kTogether; ++j) {
      all.total = all.total + power[j];
      KAKEYA_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        if (query.held.uses(k)) all.values[k] = dev::fma(power[j], values[j][k], all.values[k]);
      }
    }
  }
}

// Writes what a query comes to, by a warp that holds the sum of its values.
template <typename Rows>
KAKEYA_DEVICE void write_attended(
    const AttentionParams& p, const Rows& rows, const Held& held, std::int64_t row, Attended& all) {
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    if (held.uses(k)) all.values[k] = all.values[k] / all.total;
  }
  if (rows.values_stay_rotated()) hadamard(held, all.values);
  const dev::Global<float> out(p.out);
  const std::int64_t at = (row * p.num_heads + dev::block_x()) * held.size();
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int e = held.element(k);
    if (e >= 0) out.store(at + e, all.values[k]);
  }
}

// Adds up what the warps of a block saw, in its first one. The values of the others are shared.
KAKEYA_DEVICE void add_warps(const Held& held, Attended& all) {
  const dev::Shared<float> largest(0);
  const dev::Shared<float> totals(kAttentionWarps);
  const dev::Shared<float> values(kValuesWord);
  if (dev::lane() == 0) {
    largest.store(dev::warp(), all.largest);
    totals.store(dev::warp(), all.total);
  }
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    if (held.uses(k))
      values.store(dev::warp() * kMaxHeadDim + dev::kWarp * k + dev::lane(), all.values[k]);
  }
  dev::sync_block();
  if (dev::warp() != 0) return;
  const bool is_of_warp = dev::lane() < kAttentionWarps;
  const float own = is_of_warp ? largest.load(dev::lane()) : dev::float_of(0xff800000U);
  all = {};
  all.largest = dev::warp_max(own);
  const float own_factor = power_of(own, all.largest);
  for (int w = 0; w < kAttentionWarps; ++w) {
    float of_warp[1];
    dev::of_lanes(own_factor, w, of_warp);
    const float factor = of_warp[0];
    all.total = dev::fma(totals.load(w), factor, all.total);
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      if (!held.uses(k)) continue;
      const float value = values.load(w * kMaxHeadDim + dev::kWarp * k + dev::lane());
      all.values[k] = dev::fma(value, factor, all.values[k]);
    }
  }
}

// Where a span's sums are put: the largest score, the sum of powers, then values.
KAKEYA_DEVICE std::int64_t partial_place(const AttentionParams& p,
                                         std::int64_t row,
                                         std::int64_t span) {
  return ((row * p.num_heads + dev::block_x()) * p.spans + span) * (p.cache.head_dim + 2);
}

// By a block: one span of what a query of a head sees.
template <typename Rows>
KAKEYA_DEVICE void attend(const AttentionParams& p,
                          const Rows& rows,
                          const Seen& seen,
                          std::int64_t row) {
  const std::int64_t span = dev::block_y() % p.spans;
  const Chunks chunks = chunks_of(seen);
  const std::int64_t begin = span * chunks.in_a_span();
  const std::int64_t behind = begin + chunks.in_a_span();
  const std::int64_t end = behind < chunks.count ? behind : chunks.count;
  if (begin >= end) return;
  const Held held(static_cast<int>(p.cache.head_dim));
  Query<Rows> query = {rows, seen, held, p.scale, {}};
  const dev::Global<const float> q(p.queries);
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int e = held.element(k);
    if (e >= 0) query.elements[k] = q.load((row * p.num_heads + dev::block_x()) * held.size() + e);
  }
  if (rows.keys_stay_rotated()) hadamard(held, query.elements);
  Attended all;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t first = chunks.position(i) + kWarpKeys * dev::warp();
    if (seen.meets(first, first + kWarpKeys)) attend_keys(query, first, all);
  }
  add_warps(held, all);
  if (dev::warp() != 0) return;
  if (p.spans == 1) return write_attended(p, rows, held, row, all);
  const dev::Global<float> partials(p.partials);
  const std::int64_t at = partial_place(p, row, span);
  if (dev::lane() == 0) {
    partials.store(at, all.largest);
    partials.store(at + 1, all.total);
  }
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int e = held.element(k);
    if (e >= 0) partials.store(at + 2 + e, all.values[k]);
  }
}

// By a warp: adds up the spans of what a query of a head sees.
template <typename Rows>
KAKEYA_DEVICE void add_spans(const AttentionParams& p, const Rows& rows, const Seen& seen) {
  const Held held(static_cast<int>(p.cache.head_dim));
  const std::int64_t row = dev::block_y();
  const int spans = static_cast<int>(chunks_of(seen).spans());
  const dev::Global<const float> partials(p.partials);
  const auto place = [&](int span) { return partial_place(p, row, span); };
  const float own =
      dev::lane() < spans ? partials.load(place(dev::lane())) : dev::float_of(0xff800000U);
  Attended all;
  all.largest = dev::warp_max(own);
  const float own_factor = power_of(own, all.largest);
  for (int span = 0; span < spans; ++span) {
    float of_span[1];
    dev::of_lanes(own_factor, span, of_span);
    const float factor = of_span[0];
    all.total = dev::fma(partials.load(place(span) + 1), factor, all.total);
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const int e = held.element(k);
      if (e >= 0)
        all.values[k] = dev::fma(partials.load(place(span) + 2 + e), factor, all.values[k]);
    }
  }
  write_attended(p, rows, held, row, all);
}

// The kv head of the block's query.
KAKEYA_DEVICE std::int64_t own_kv_head(const AttentionParams& p) {
  return dev::block_x() / (p.num_heads / p.cache.num_kv_heads);
}

template <Stored kStored>
KAKEYA_DEVICE StoredRows<kStored> stored_rows(const AttentionParams& p) {
  return {p, own_kv_head(p), Held(static_cast<int>(p.cache.head_dim))};
}

// By a block: one span of what a query of a head sees. Grid of all of them: heads, rows * spans.
template <Stored kStored>
KAKEYA_DEVICE void attend_stored(const AttentionParams& p) {
  const std::int64_t row = dev::block_y() / p.spans;
  const auto at = row_positions<std::int64_t>(p);
  attend(p, stored_rows<kStored>(p), seen_by(p, at, at.first + row), row);
}

// The attention over keys and values of bf16.
KAKEYA_DEVICE void attention(const AttentionParams& p) {
  attend_stored<Stored::kBf16>(p);
}

// The attention over vectors of bf16 that serve as both.
KAKEYA_DEVICE void one_vector_attention(const AttentionParams& p) {
  attend_stored<Stored::kOneBf16Vector>(p);
}

// The attention over rows of any type.
KAKEYA_DEVICE void coded_attention(const AttentionParams& p) {
  attend_stored<Stored::kAnyType>(p);
}

// Joins the spans behind any of them with more than one span. Grid: heads, rows.
KAKEYA_DEVICE void attention_spans(const AttentionParams& p) {
  const auto at = row_positions<std::int64_t>(p);
  add_spans(p, stored_rows<Stored::kAnyType>(p), seen_by(p, at, at.first + dev::block_y()));
}

}  // namespace kakeya::cuda::device
