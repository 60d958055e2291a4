// Attention over chunks of kKeyChunk keys that start at multiples of kKeyChunk in absolute
// position, merged in order with the online softmax. Included after rows.h.
//
// A score is a dot product in 16 fixed lanes; a key that a query does not see has probability
// exactly 0 in a fixed lane of its chunk, so neither neighbours nor the ring's wrap change a bit.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

struct QueryState {
  const float* query[kMaxQueries];
  float* out[kMaxQueries];
  Index begin[kMaxQueries];  // first position it sees
  Index end[kMaxQueries];    // one after the last
  float largest[kMaxQueries];
  float total[kMaxQueries];
  float rescale[kMaxQueries];
  alignas(64) float scores[kMaxQueries][kKeyChunk];
  const std::byte* keys[kKeyChunk];  // rows of the chunk
  const std::byte* values[kKeyChunk];
};

template <bool kBf16>
inline Vec load_cached(const std::byte* row, Index at, Index count) {
  if constexpr (kBf16) {
    return count == 16 ? load_bf16(row + 2 * at) : load_bf16_part(row + 2 * at, count);
  } else {
    return load_count(reinterpret_cast<const float*>(row) + at, count);
  }
}

// Scores of kQueries queries with the chunk's keys [low, high).
template <bool kBf16, int kQueries>
inline void score_keys(QueryState& state, Index first, Index low, Index high, Index head_dim) {
  constexpr int kKeys = 16 / kQueries;
  for (Index j = low / kKeys * kKeys; j < high; j += kKeys) {
    const std::byte* rows[kKeys];
    for (int k = 0; k < kKeys; ++k) {
      const Index key = j + k < low ? low : j + k >= high ? high - 1 : j + k;
      rows[k] = state.keys[key];
    }
    Vec sums[16];
    for (Vec& sum : sums) sum = zero();
    const auto step = [&](Index e, Index count) {
      Vec q[kQueries];
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) q[i] = load_count(state.query[first + i] + e, count);
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
}

// Turns the scores of one query into probabilities relative to the largest score so far.
inline void soften(QueryState& state, Index query, Index chunk_begin, float scale) {
  float* scores = state.scores[query];
  const float minus_infinity = -__builtin_inff();
  const Vec low = splat(
      static_cast<float>(state.begin[query] > chunk_begin ? state.begin[query] - chunk_begin : 0));
  const Index beyond = state.end[query] - chunk_begin;
  const Vec high = splat(static_cast<float>(beyond < 0           ? 0
                                            : beyond > kKeyChunk ? kKeyChunk
                                                                 : beyond));
  Vec s[kKeyChunk / 16];
  Vec largest = splat(minus_infinity);
  for (int j = 0; j < kKeyChunk / 16; ++j) {
    const Vec key = add(lane_numbers(), splat(16.0F * static_cast<float>(j)));
    s[j] = mul(load(scores + 16 * j), splat(scale));
    s[j] = select_less(key, high, s[j], splat(minus_infinity));
    s[j] = select_less(key, low, splat(minus_infinity), s[j]);
    largest = max(largest, s[j]);
  }
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

// out = out * rescale + probabilities times values, for kQueries queries and kVectors vectors of
// the head from element e on.
template <bool kBf16, int kQueries, int kVectors>
inline void add_values(
    QueryState& state, Index first, Index low, Index high, Index e, Index count) {
  Vec sums[kQueries][kVectors];
  for (int i = 0; i < kQueries; ++i) {
    const Vec rescale = splat(state.rescale[first + i]);
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = mul(load_count(state.out[first + i] + e + 16 * v, count), rescale);
    }
  }
  for (Index j = low; j < high; ++j) {
    Vec value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      value[v] = load_cached<kBf16>(state.values[j], e + 16 * v, count);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const Vec p = splat(state.scores[first + i][j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = multiply_add(p, value[v], sums[i][v]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      store_count(state.out[first + i] + e + 16 * v, sums[i][v], count);
    }
  }
}

template <bool kBf16, int kQueries>
inline void attend_chunk(QueryState& state,
                         Index first,
                         Index low,
                         Index high,
                         Index chunk_begin,
                         const Attention& attention) {
  score_keys<kBf16, kQueries>(state, first, low, high, attention.head_dim);
  for (int i = 0; i < kQueries; ++i) soften(state, first + i, chunk_begin, attention.scale);
  Index e = 0;
  for (; e + 64 <= attention.head_dim; e += 64) {
    add_values<kBf16, kQueries, 4>(state, first, low, high, e, 16);
  }
  for (; e + 16 <= attention.head_dim; e += 16) {
    add_values<kBf16, kQueries, 1>(state, first, low, high, e, 16);
  }
  if (e < attention.head_dim) {
    add_values<kBf16, kQueries, 1>(state, first, low, high, e, attention.head_dim - e);
  }
}

// The first position that a query at `position` sees.
inline Index first_seen(const Attention& attention, Index position) {
  const Index begin = attention.window == 0 ? 0 : position - attention.window + 1;
  return begin < 0 ? 0 : begin;
}

inline Index begin_queries(QueryState& state,
                           const Attention& attention,
                           const AttentionPart& part) {
  Index count = 0;
  for (Index row = part.first_row; row < part.first_row + part.rows; ++row) {
    for (Index head = part.first_head; head < part.first_head + part.heads; ++head) {
      const Index offset = row * attention.stride + head * attention.head_dim;
      const Index position = attention.first_position + row;
      state.query[count] = attention.queries + offset;
      state.out[count] = attention.out + offset;
      state.begin[count] = first_seen(attention, position);
      state.end[count] = position + 1;
      state.largest[count] = -__builtin_inff();
      state.total[count] = 0.0F;
      for (Index e = 0; e < attention.head_dim; ++e) state.out[count][e] = 0.0F;
      ++count;
    }
  }
  return count;
}

// Addresses of the chunk's keys and values [low, high); the chunk may straddle the ring's end.
inline void find_rows(QueryState& state,
                      const Attention& attention,
                      Index kv_head,
                      Index chunk_begin,
                      Index low,
                      Index high) {
  const Index element = attention.bf16 ? 2 : 4;
  Index slot = (chunk_begin + low) % attention.capacity;
  for (Index j = low; j < high; ++j) {
    const Index offset = (slot * attention.slot_width + kv_head * attention.head_dim) * element;
    state.keys[j] = attention.keys + offset;
    state.values[j] = attention.values + offset;
    slot = slot + 1 == attention.capacity ? 0 : slot + 1;
  }
}

template <bool kBf16>
void attend_typed(const Attention& attention, const AttentionPart& part) {
  QueryState state;
  const Index count = begin_queries(state, attention, part);
  const Index first_position = attention.first_position + part.first_row;
  const Index begin = first_seen(attention, first_position);
  const Index end = first_position + part.rows;
  for (Index chunk = begin / kKeyChunk * kKeyChunk; chunk < end; chunk += kKeyChunk) {
    const Index low = begin > chunk ? begin - chunk : 0;
    const Index high = end - chunk < kKeyChunk ? end - chunk : kKeyChunk;
    find_rows(state, attention, part.kv_head, chunk, low, high);
    Index query = 0;
    for (; query + 4 <= count; query += 4) {
      attend_chunk<kBf16, 4>(state, query, low, high, chunk, attention);
    }
    for (; query + 2 <= count; query += 2) {
      attend_chunk<kBf16, 2>(state, query, low, high, chunk, attention);
    }
    for (; query < count; ++query) {
      attend_chunk<kBf16, 1>(state, query, low, high, chunk, attention);
    }
  }
  for (Index query = 0; query < count; ++query) {
    const Vec total = splat(state.total[query]);
    map_row(state.out[query], attention.head_dim, state.out[query],
            [&](Vec v, Index, Index) { return div(v, total); });
  }
}

inline void attend(const Attention& attention, const AttentionPart& part) {
  if (attention.bf16) {
    attend_typed<true>(attention, part);
  } else {
    attend_typed<false>(attention, part);
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
