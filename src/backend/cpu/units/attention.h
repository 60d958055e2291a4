// Attention over chunks of kKeyChunk keys that start at multiples of kKeyChunk in absolute
// position, merged in order with the online softmax. Included after rows.h.
//
// A score is a dot product in 16 fixed lanes; a key that a query does not see has probability
// exactly 0 in a fixed lane of its chunk, so neither neighbours nor the ring's wrap change a bit.
//
// Keys that are not stored are made from the values, four at a time, and kept on the way; coded
// rows are decoded a chunk at a time to f32 rows, with which the rest goes on.
//
// Up to four queries read the cache directly: it is read once and memory is the limit. More of them
// share slices of it that were copied (and widened) to a small contiguous block: rows of the cache
// are a power of two apart and would evict each other.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/units/key_angles.h"
#include "backend/cpu/units/kv_vectors.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline constexpr Index kQueryTile = 4;
inline constexpr Index kValueSlice = 64;  // elements of a head that are added up at once
inline constexpr Index kMaxQueryFloats = kMaxQueries * kMaxHeadDim;

// Positions that one query sees.
struct SeenByQuery {
  Index begin;
  Index end;         // one after the last
  Index sink_begin;  // it sees these as well; begin = end if none
  Index sink_end;
};

// About 170 KiB of stack.
struct QueryState {
  explicit QueryState(const Attention& attention) : angles(attention) {}

  KeyAngles angles;
  Index count;     // queries, rounded up to a whole tile with zeros
  Index head_dim;  // rounded up to whole vectors with zeros
  SeenByQuery seen[kMaxQueries];
  float largest[kMaxQueries];
  float total[kMaxQueries];
  float rescale[kMaxQueries];
  const std::byte* keys[kKeyChunk];  // rows of the chunk
  const std::byte* values[kKeyChunk];
  alignas(64) float scores[kMaxQueries][kKeyChunk];
  alignas(64) float queries[kMaxQueryFloats];
  alignas(64) float sums[kMaxQueryFloats];
  alignas(64) float staged[kKeyChunk * kValueSlice];

  float* query(Index i) { return queries + i * head_dim; }
  float* sum(Index i) { return sums + i * head_dim; }
};

template <bool kBf16>
inline Vec load_cached(const std::byte* row, Index at, Index count) {
  if constexpr (kBf16) {
    return count == 16 ? load_bf16(row + 2 * at) : load_bf16_part(row + 2 * at, count);
  } else {
    return load_count(reinterpret_cast<const float*>(row) + at, count);
  }
}

// Scores of kQueries queries from `first` on with the keys of rows[0 .. 16 / kQueries), which are
// keys j ... of the chunk.
template <bool kBf16, int kQueries>
inline void score_tile(
    QueryState& state, Index first, Index j, const std::byte* const* rows, Index head_dim) {
  constexpr int kKeys = 16 / kQueries;
  const float* query = state.query(first);
  Vec sums[16];
  for (Vec& sum : sums) sum = zero();
  const auto step = [&](Index e, Index count) {
    Vec q[kQueries];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) q[i] = load(query + i * state.head_dim + e);
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) {
      const Vec key = load_cached<kBf16>(rows[k], e, count);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        sums[i * kKeys + k] = multiply_add(q[i], key, sums[i * kKeys + k]);
      }
    }
  };
  Index e = 0;
  for (; e + 16 <= head_dim; e += 16) step(e, 16);
  if (e < head_dim) step(e, head_dim - e);
  alignas(64) float scores[16];
  store(scores, reduce_sixteen(sums));
  for (int i = 0; i < kQueries; ++i) {
    __builtin_memcpy(&state.scores[first + i][j], scores + i * kKeys, kKeys * sizeof(float));
  }
}

// Asks for the row's lines ahead of their use.
inline void prefetch_row(const std::byte* row, Index bytes) {
  for (Index at = 0; at < bytes; at += 64) prefetch(row + at);
}

// Scores of all keys [low, high) read from the cache, for at most one tile of queries. The last
// tile of keys repeats the last key; its scores are never looked at.
template <bool kBf16, int kQueries>
inline void score_directly(QueryState& state, Index low, Index high, Index head_dim) {
  constexpr int kKeys = 16 / kQueries;
  const Index row_bytes = head_dim * (kBf16 ? 2 : 4);
  for (Index j = low / kKeys * kKeys; j < high; j += kKeys) {
    const std::byte* rows[kKeys];
    for (int k = 0; k < kKeys; ++k) {
      const Index key = j + k < low ? low : j + k >= high ? high - 1 : j + k;
      rows[k] = state.keys[key];
      prefetch_row(state.values[key], row_bytes);
    }
    score_tile<kBf16, kQueries>(state, 0, j, rows, head_dim);
  }
}

// Copies `count` elements of a row from element e on, widened and padded with zeros.
template <bool kBf16>
inline void stage_row(const std::byte* row, Index e, Index count, Index padded, float* to) {
  Index i = 0;
  for (; i + 16 <= count; i += 16) store(to + i, load_cached<kBf16>(row, e + i, 16));
  for (; i < padded; i += 16) {
    store(to + i, i < count ? load_cached<kBf16>(row, e + i, count - i) : zero());
  }
}

// Scores as score_directly does, for any number of tiles of queries, four keys at a time.
template <bool kBf16>
inline void score_staged(
    QueryState& state, Index low, Index high, Index chunk_begin, const Attention& attention) {
  constexpr Index kKeys = 16 / kQueryTile;
  constexpr Index kBytes = kBf16 ? 2 : 4;
  const Index head_dim = attention.head_dim;
  const Index row_bytes = head_dim * kBytes;
  const Index slice_bytes = (head_dim < kValueSlice ? head_dim : kValueSlice) * kBytes;
  for (Index j = low / kKeys * kKeys; j < high; j += kKeys) {
    const std::byte* rows[kKeys];
    for (Index k = 0; k < kKeys; ++k) {
      const Index key = j + k < low ? low : j + k >= high ? high - 1 : j + k;
      float* to = state.staged + k * state.head_dim;
      stage_row<kBf16>(state.keys[key], 0, head_dim, state.head_dim, to);
      if (attention.keys == nullptr) derive_key(attention, state.angles, chunk_begin + key, to);
      rows[k] = reinterpret_cast<const std::byte*>(to);
      if (key + kKeys < high) prefetch_row(state.keys[key + kKeys], row_bytes);
      prefetch_row(state.values[key], slice_bytes);
    }
    for (Index first = 0; first < state.count; first += kQueryTile) {
      score_tile<false, kQueryTile>(state, first, j, rows, state.head_dim);
    }
  }
}

// Puts -inf in place of what a query does not see of the scores [kKeyChunk] of a chunk.
inline void hide_unseen(const SeenByQuery& seen,
                        Index chunk_begin,
                        bool has_sink,
                        Vec (&scores)[kKeyChunk / 16]) {
  const Vec minus_infinity = splat(-__builtin_inff());
  const Index before_begin = seen.begin - chunk_begin;
  const Index before_end = seen.end - chunk_begin;
  const Vec low = splat(static_cast<float>(before_begin < 0 ? 0 : before_begin));
  const Vec high = splat(static_cast<float>(before_end < 0           ? 0
                                            : before_end > kKeyChunk ? kKeyChunk
                                                                     : before_end));
  const Vec sink_low = splat(static_cast<float>(seen.sink_begin - chunk_begin));
  const Vec sink_high = splat(static_cast<float>(seen.sink_end - chunk_begin));
  for (int j = 0; j < kKeyChunk / 16; ++j) {
    const Vec key = add(lane_numbers(), splat(16.0F * static_cast<float>(j)));
    const Vec score = select_less(key, high, scores[j], minus_infinity);
    Vec outside = minus_infinity;  // before `low`
    if (has_sink) {
      outside = select_less(key, sink_low, outside, select_less(key, sink_high, score, outside));
    }
    scores[j] = select_less(key, low, outside, score);
  }
}

// Turns the scores of one query into probabilities relative to the largest score so far.
inline void soften(QueryState& state, Index query, Index chunk_begin, float scale, bool has_sink) {
  float* scores = state.scores[query];
  const float minus_infinity = -__builtin_inff();
  Vec s[kKeyChunk / 16];
  for (int j = 0; j < kKeyChunk / 16; ++j) s[j] = mul(load(scores + 16 * j), splat(scale));
  hide_unseen(state.seen[query], chunk_begin, has_sink, s);
  Vec largest = splat(minus_infinity);
  for (const Vec& score : s) largest = max(largest, score);
  const float before = state.largest[query];
  const float here = reduce_max(largest);
  const float now = here > before ? here : before;
  if (now == minus_infinity) {  // it sees nothing of this chunk, nor of those before
    for (int j = 0; j < kKeyChunk / 16; ++j) store(scores + 16 * j, zero());
    state.rescale[query] = 1.0F;
    return;
  }
  Vec total = zero();
  for (int j = 0; j < kKeyChunk / 16; ++j) {
    const Vec p = exp(sub(s[j], splat(now)));
    store(scores + 16 * j, p);
    total = add(total, p);
  }
  alignas(64) float rescale[16];
  store(rescale, exp(splat(before - now)));
  state.rescale[query] = rescale[0];
  state.largest[query] = now;
  state.total[query] = state.total[query] * rescale[0] + reduce_add(total);
}

// sums = sums * rescale + probabilities times values, for kQueries queries and kVectors vectors of
// the head from element e on, which are at element `at` of the rows.
template <bool kBf16, int kQueries, int kVectors>
inline void add_values(QueryState& state,
                       Index first,
                       Index low,
                       Index high,
                       Index e,
                       const std::byte* const* rows,
                       Index at,
                       Index count) {
  Vec sums[kQueries][kVectors];
  for (int i = 0; i < kQueries; ++i) {
    const Vec rescale = splat(state.rescale[first + i]);
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = mul(load(state.sum(first + i) + e + 16 * v), rescale);
    }
  }
  for (Index j = low; j < high; ++j) {
    Vec value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      value[v] = load_cached<kBf16>(rows[j], at + 16 * v, count);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const Vec p = splat(state.scores[first + i][j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = multiply_add(p, value[v], sums[i][v]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) store(state.sum(first + i) + e + 16 * v, sums[i][v]);
  }
}

template <bool kBf16, int kQueries>
inline void add_directly(QueryState& state, Index low, Index high, Index head_dim) {
  const std::byte* const* rows = state.values;
  Index e = 0;
  for (; e + 64 <= head_dim; e += 64) {
    add_values<kBf16, kQueries, 4>(state, 0, low, high, e, rows, e, 16);
  }
  for (; e < head_dim; e += 16) {
    const Index count = head_dim - e < 16 ? head_dim - e : 16;
    add_values<kBf16, kQueries, 1>(state, 0, low, high, e, rows, e, count);
  }
}

template <bool kBf16>
inline void add_staged(QueryState& state, Index low, Index high, Index head_dim) {
  constexpr Index kBytes = kBf16 ? 2 : 4;
  const std::byte* rows[kKeyChunk];
  for (Index e = 0; e < head_dim; e += kValueSlice) {
    const Index count = head_dim - e < kValueSlice ? head_dim - e : kValueSlice;
    const Index padded = round_up(count, 16);
    const Index left = head_dim - e - count;
    const Index next_bytes = (left < kValueSlice ? left : kValueSlice) * kBytes;
    for (Index j = low; j < high; ++j) {
      float* to = state.staged + j * kValueSlice;
      stage_row<kBf16>(state.values[j], e, count, padded, to);
      rows[j] = reinterpret_cast<const std::byte*>(to);
      prefetch_row(state.values[j] + (e + kValueSlice) * kBytes, next_bytes);
    }
    for (Index first = 0; first < state.count; first += kQueryTile) {
      if (padded == kValueSlice) {
        add_values<false, kQueryTile, 4>(state, first, low, high, e, rows, 0, 16);
        continue;
      }
      for (Index at = 0; at < padded; at += 16) {
        add_values<false, kQueryTile, 1>(state, first, low, high, e + at, rows, at, 16);
      }
    }
  }
}

// Adds the values of rows [low, high) to the sums of all queries.
template <bool kBf16>
inline void add_chunk(QueryState& state, Index low, Index high, Index head_dim) {
  if (state.count > kQueryTile) {
    add_staged<kBf16>(state, low, high, head_dim);
  } else if (state.count == 1) {
    add_directly<kBf16, 1>(state, low, high, head_dim);
  } else if (state.count == 2) {
    add_directly<kBf16, 2>(state, low, high, head_dim);
  } else {
    add_directly<kBf16, 4>(state, low, high, head_dim);
  }
}

template <bool kBf16>
inline void attend_chunk(
    QueryState& state, Index low, Index high, Index chunk_begin, const Attention& attention) {
  const Index head_dim = attention.head_dim;
  if (state.count > kQueryTile || attention.keys == nullptr) {
    score_staged<kBf16>(state, low, high, chunk_begin, attention);
  } else if (state.count == 1) {
    score_directly<kBf16, 1>(state, low, high, head_dim);
  } else if (state.count == 2) {
    score_directly<kBf16, 2>(state, low, high, head_dim);
  } else {
    score_directly<kBf16, 4>(state, low, high, head_dim);
  }
  for (Index i = 0; i < state.count; ++i) {
    soften(state, i, chunk_begin, attention.scale, attention.sink > 0);
  }
  add_chunk<kBf16>(state, low, high, head_dim);
}

inline Index window_begin(Index position, Index window) {
  const Index begin = window == 0 ? 0 : position - window + 1;
  return begin < 0 ? 0 : begin;
}

// The first position that a query at `position` sees, but for the sink.
inline Index first_seen(const Attention& attention, Index position) {
  const Index begin = window_begin(position, attention.window);
  const Index kept = window_begin(position, attention.kept);
  return begin > kept ? begin : kept;
}

// One after the last of the sink that a query at `position` sees beside those.
inline Index sink_end_seen(const Attention& attention, Index position) {
  const Index first = first_seen(attention, position);
  return attention.sink < first ? attention.sink : first;
}

// One after the last.
inline Index end_seen(const Attention& attention, Index position) {
  return position + 1 > attention.block_end ? position + 1 : attention.block_end;
}

inline SeenByQuery seen_by_query(const Attention& attention, Index position) {
  return {first_seen(attention, position), end_seen(attention, position),
          window_begin(position, attention.window), sink_end_seen(attention, position)};
}

inline void begin_queries(QueryState& state,
                          const Attention& attention,
                          const AttentionPart& part) {
  const Index count = part.rows * part.heads;
  const bool whole_tiles = count > 2 || attention.keys == nullptr;
  state.count = whole_tiles ? round_up(count, kQueryTile) : count;
  state.head_dim = round_up(attention.head_dim, 16);
  for (Index i = 0; i < state.count; ++i) {
    const Index row = part.first_row + (i < count ? i / part.heads : 0);
    const Index head = part.first_head + i % part.heads;
    const Index position = attention.first_position + row;
    state.seen[i] = seen_by_query(attention, position);
    state.largest[i] = -__builtin_inff();
    state.total[i] = 0.0F;
    const float* query = attention.queries + row * attention.stride + head * attention.head_dim;
    const Index width = i < count ? attention.head_dim : 0;
    stage_row<false>(reinterpret_cast<const std::byte*>(query), 0, width, state.head_dim,
                     state.query(i));
    for (Index e = 0; e < state.head_dim; e += 16) store(state.sum(i) + e, zero());
  }
}

// Writes the queries' sums divided by their totals.
template <typename State>
inline void finish_queries(State& state, const Attention& attention, const AttentionPart& part) {
  for (Index i = 0; i < part.rows * part.heads; ++i) {
    const Index row = part.first_row + i / part.heads;
    const Index head = part.first_head + i % part.heads;
    const Vec total = splat(state.total[i]);
    map_row(state.sum(i), attention.head_dim,
            attention.out + row * attention.stride + head * attention.head_dim,
            [&](Vec v, Index, Index) { return div(v, total); });
  }
}

// The positions that some query of a part sees.
struct SeenByPart {
  Index sink_begin;
  Index sink_end;  // the union of the queries'
  Index begin;
  Index end;
};

inline SeenByPart seen_by_part(const Attention& attention, const AttentionPart& part) {
  const Index first = attention.first_position + part.first_row;
  const Index last = first + part.rows - 1;
  SeenByPart seen = {window_begin(first, attention.window), sink_end_seen(attention, last),
                     first_seen(attention, first), end_seen(attention, last)};
  // No gap: one range.
  if (seen.sink_end >= seen.begin) seen.begin = seen.sink_begin;
  if (seen.sink_end > seen.begin) seen.sink_end = seen.begin;
  return seen;
}

// Addresses of the chunk's keys and values [low, high). Rows of the gap between sink and window may
// hold anything; their probability is 0, and they are read as the window's first row.
inline void find_rows(const Attention& attention,
                      Index kv_head,
                      const SeenByPart& seen,
                      Index chunk_begin,
                      Index low,
                      Index high,
                      const std::byte** keys,
                      const std::byte** values) {
  const Index sink = attention.sink;
  const Index turn = attention.capacity - sink;
  const Index head = kv_head * attention.vector_bytes;
  Index previous = -2;
  Index slot = 0;
  Index last = -1;  // slot of the same block and of the cache
  const std::byte* key = nullptr;
  const std::byte* value = nullptr;
  for (Index j = low; j < high; ++j) {
    Index position = chunk_begin + j;
    if (position >= seen.sink_end && position < seen.begin) position = seen.begin;
    if (position == previous + 1 && slot < last) {  // no division for each row
      ++slot;
      key += attention.slot_bytes;
      value += attention.slot_bytes;
    } else if (position != previous) {
      slot = position < sink ? position : sink + (position - sink) % turn;
      const Index block = slot / attention.block_slots;
      const Index first = block * attention.block_slots;
      const Index offset = (slot - first) * attention.slot_bytes + head;
      last = first + attention.block_slots - 1;
      if (last >= attention.capacity) last = attention.capacity - 1;
      value = attention.values[block] + offset;
      key = attention.keys == nullptr ? value : attention.keys[block] + offset;
    }
    previous = position;
    values[j] = value;
    keys[j] = key;
  }
}

// Rows of one chunk as f32, zeros behind each.
struct DecodedChunk {
  alignas(64) float keys[kKeyChunk * kMaxHeadDim];
  alignas(64) float values[kKeyChunk * kMaxHeadDim];
};

// Decodes the rows [low, high) and lets the state point to them.
inline void decode_rows(
    QueryState& state, const Attention& attention, Index low, Index high, DecodedChunk& decoded) {
  for (Index j = low; j < high; ++j) {
    float* value = decoded.values + j * state.head_dim;
    if (j + 1 < high) prefetch_row(state.values[j + 1], attention.vector_bytes);
    decode_vector(attention.format, state.values[j], attention.head_dim, state.head_dim, value);
    state.values[j] = reinterpret_cast<const std::byte*>(value);
    if (attention.keys == nullptr) {
      state.keys[j] = state.values[j];
      continue;
    }
    float* key = decoded.keys + j * state.head_dim;
    if (j + 1 < high) prefetch_row(state.keys[j + 1], attention.vector_bytes);
    decode_vector(attention.format, state.keys[j], attention.head_dim, state.head_dim, key);
    state.keys[j] = reinterpret_cast<const std::byte*>(key);
  }
}

// Calls visit(seen, chunk_begin, low, high) for each chunk of kKeys keys of which something is
// seen, in order.
template <Index kKeys, typename Visit>
inline void for_chunks(const Attention& attention, const AttentionPart& part, Visit&& visit) {
  const SeenByPart seen = seen_by_part(attention, part);
  const bool has_sink = seen.sink_begin < seen.sink_end;
  const Index begin = has_sink ? seen.sink_begin : seen.begin;
  for (Index chunk = begin / kKeys * kKeys; chunk < seen.end; chunk += kKeys) {
    const Index low = begin > chunk ? begin - chunk : 0;
    const Index high = seen.end - chunk < kKeys ? seen.end - chunk : kKeys;
    if (chunk + low >= seen.sink_end && chunk + kKeys <= seen.begin) continue;
    visit(seen, chunk, low, high);
  }
}

// Walks the chunks for queries in vectors: calls attend_rows(state, chunk_begin, low, high) for
// each.
template <typename AttendRows>
inline void attend_queries(const Attention& attention,
                           const AttentionPart& part,
                           AttendRows&& attend_rows) {
  QueryState state(attention);
  begin_queries(state, attention, part);
  for_chunks<kKeyChunk>(
      attention, part, [&](const SeenByPart& seen, Index chunk, Index low, Index high) {
        find_rows(attention, part.kv_head, seen, chunk, low, high, state.keys, state.values);
        attend_rows(state, chunk, low, high);
      });
  finish_queries(state, attention, part);
}

template <bool kBf16>
void attend_stored(const Attention& attention, const AttentionPart& part) {
  attend_queries(attention, part, [&](QueryState& state, Index chunk, Index low, Index high) {
    attend_chunk<kBf16>(state, low, high, chunk, attention);
  });
}

inline void attend_decoded(const Attention& attention, const AttentionPart& part) {
  DecodedChunk decoded;
  attend_queries(attention, part, [&](QueryState& state, Index chunk, Index low, Index high) {
    decode_rows(state, attention, low, high, decoded);
    attend_chunk<false>(state, low, high, chunk, attention);
  });
}

inline void attend(const Attention& attention, const AttentionPart& part) {
  if (attention.format == KvFormat::kBf16) {
    attend_stored<true>(attention, part);
  } else if (attention.format == KvFormat::kF32) {
    attend_stored<false>(attention, part);
  } else {
    attend_decoded(attention, part);
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
