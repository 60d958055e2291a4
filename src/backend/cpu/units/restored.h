// Attention in which evicted rows are restored from low-rank codes: backend/backend.h says what
// RestoredRows are. Included after attention.h.
//
// A chunk may hold keys that one query sees as they were and another one restored: those before
// and after the queries' first kept positions. Such a chunk is scored twice, each query takes the
// scores of its own side, and its sums get zeros from the other. A query's result is therefore that
// of attention over its own rows in order of position, whatever else is in the pass.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/units/attention.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline constexpr Index kExpandedKeys = 4;  // codes that share a pass over the decoder

// out [kExpandedKeys, head_dim] = codes [kExpandedKeys, rank] times decoder [rank, ...]; sums over
// the rank in order.
template <int kVectors>
inline void expand_slice(const float* codes,
                         Index rank,
                         const float* decoder,
                         Index stride,
                         Index count,
                         float* out,
                         Index out_stride) {
  Vec sums[kExpandedKeys][kVectors];
  for (auto& row : sums) {
    for (Vec& sum : row) sum = zero();
  }
  for (Index r = 0; r < rank; ++r) {
    Vec weights[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = load_count(decoder + r * stride + 16 * v, count);
    }
#pragma GCC unroll 4
    for (Index k = 0; k < kExpandedKeys; ++k) {
      const Vec code = splat(codes[k * rank + r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[k][v] = multiply_add(code, weights[v], sums[k][v]);
    }
  }
  for (Index k = 0; k < kExpandedKeys; ++k) {
    for (int v = 0; v < kVectors; ++v) {
      store_count(out + k * out_stride + 16 * v, sums[k][v], count);
    }
  }
}

inline void expand(const float* codes,
                   const Restored& restored,
                   const float* decoder,
                   Index head_dim,
                   float* out,
                   Index out_stride) {
  Index e = 0;
  for (; e + 64 <= head_dim; e += 64) {
    expand_slice<4>(codes, restored.rank, decoder + e, restored.decoder_stride, 16, out + e,
                    out_stride);
  }
  for (; e < head_dim; e += 16) {
    expand_slice<1>(codes, restored.rank, decoder + e, restored.decoder_stride,
                    head_dim - e < 16 ? head_dim - e : 16, out + e, out_stride);
  }
}

// Rounds a row as it would be read back in the layer's format, for formats that are not coded.
inline void round_as_stored(KvFormat format, Index head_dim, float* row) {
  if (format != KvFormat::kBf16) return;
  alignas(64) std::byte rounded[2 * kMaxHeadDim];
  to_bf16(row, head_dim, rounded);
  stage_row<true>(rounded, 0, head_dim, head_dim, row);
}

// The rotation of apply_rope; pairs beyond the given frequencies do not turn.
inline void turn_key(const Attention& attention, Index position, float* row) {
  alignas(64) float cos[kMaxHeadDim / 2];
  alignas(64) float sin[kMaxHeadDim / 2];
  turn_angles<AngleOf::kTable>(attention.inverse_frequencies, attention.rotated_pairs, position,
                               cos, sin);
  const Index half = attention.head_dim / 2;
  for (Index i = attention.rotated_pairs; i < half; ++i) {
    cos[i] = 1.0F;
    sin[i] = 0.0F;
  }
  rotate(row, cos, sin, half);
}

// The row of a position.
inline const std::byte* find_slot(const Slots& slots, Index position) {
  const Index slot = position % slots.capacity;
  return slots.blocks[slot / slots.block_slots] + slot % slots.block_slots * slots.slot_bytes;
}

// Zeros behind the row, up to the padded width.
inline void pad_row(float* row, Index head_dim, Index padded) {
  for (Index e = head_dim; e < padded; ++e) row[e] = 0.0F;
}

// Makes the key of a restored row.
inline void make_key(
    const Attention& attention, KeyAngles& angles, Index position, const float* raw, float* key) {
  const Index head_dim = attention.head_dim;
  const float eps = attention.restored->eps;
  if (attention.keys == nullptr) {
    rms_norm(raw, nullptr, head_dim, eps, key);
    round_as_stored(attention.format, head_dim, key);
    return derive_key(attention, angles, position, key);
  }
  if (attention.k_norm != nullptr) {
    rms_norm(raw, attention.k_norm, head_dim, eps, key);
  } else {
    __builtin_memcpy(key, raw, static_cast<std::size_t>(head_dim) * sizeof(float));
  }
  turn_key(attention, position, key);
  round_as_stored(attention.format, head_dim, key);
}

// Restores keys and values of positions [first, last), at most kExpandedKeys of them, to rows
// `padded` apart.
inline void restore_rows(const Attention& attention,
                         KeyAngles& angles,
                         Index kv_head,
                         Index first,
                         Index last,
                         Index padded,
                         float* keys,
                         float* values) {
  const Restored& restored = *attention.restored;
  const Index head_dim = attention.head_dim;
  alignas(64) float codes[kExpandedKeys * kMaxRank];
  alignas(64) float rows[kExpandedKeys * kMaxHeadDim];
  // Restores to `rows` what k_proj or v_proj would have given, about. A group that is not full
  // repeats its last code; the copies go nowhere.
  const auto restore_raw = [&](const Slots& side, const float* decoder) {
    for (Index k = 0; k < kExpandedKeys; ++k) {
      const Index position = first + k < last ? first + k : last - 1;
      decode_vector(restored.code_format, find_slot(side, position), restored.rank, restored.rank,
                    codes + k * restored.rank);
    }
    expand(codes, restored, decoder + kv_head * head_dim, head_dim, rows, head_dim);
  };
  restore_raw(restored.key_codes, restored.key_decoder);
  for (Index position = first; position < last; ++position) {
    float* key = keys + (position - first) * padded;
    make_key(attention, angles, position, rows + (position - first) * head_dim, key);
    pad_row(key, head_dim, padded);
  }
  restore_raw(restored.value_codes, restored.value_decoder);
  for (Index position = first; position < last; ++position) {
    const float* raw = rows + (position - first) * head_dim;
    float* value = values + (position - first) * padded;
    if (restored.normalise_values) {
      rms_norm(raw, nullptr, head_dim, restored.eps, value);
    } else {
      __builtin_memcpy(value, raw, static_cast<std::size_t>(head_dim) * sizeof(float));
    }
    round_as_stored(attention.format, head_dim, value);
    pad_row(value, head_dim, padded);
  }
}

// One chunk of keys in both forms, and which of its lanes some query sees in which.
struct RestoredChunk {
  DecodedChunk stored;
  DecodedChunk restored;
  Index restored_low;  // lanes [low, high) that are restored for some query
  Index restored_high;
  Index kept_low;  // lanes from here on are stored for some query; those of the sink are as well
  alignas(64) float scores[kMaxQueries][kKeyChunk];
};

// Reads lane j as it is stored, with its key made if it is not.
inline void read_stored(
    QueryState& state, const Attention& attention, Index position, Index j, DecodedChunk& to) {
  float* value = to.values + j * state.head_dim;
  float* key = to.keys + j * state.head_dim;
  decode_vector(attention.format, state.values[j], attention.head_dim, state.head_dim, value);
  if (attention.keys != nullptr) {
    decode_vector(attention.format, state.keys[j], attention.head_dim, state.head_dim, key);
  } else {
    __builtin_memcpy(key, value, static_cast<std::size_t>(state.head_dim) * sizeof(float));
    derive_key(attention, state.angles, position, key);
  }
}

// Lets the state point to lane j of a decoded chunk.
inline void point_to(QueryState& state, const DecodedChunk& chunk, Index j) {
  state.keys[j] = reinterpret_cast<const std::byte*>(chunk.keys + j * state.head_dim);
  state.values[j] = reinterpret_cast<const std::byte*>(chunk.values + j * state.head_dim);
}

// Scores of lanes [low, high), whose rows are f32.
inline void score_rows(QueryState& state, Index low, Index high) {
  const Index head_dim = state.head_dim;
  if (state.count == 1) {
    score_directly<false, 1>(state, low, high, head_dim);
  } else if (state.count == 2) {
    score_directly<false, 2>(state, low, high, head_dim);
  } else {
    for (Index j = low / 4 * 4; j < high; j += 4) {
      const std::byte* rows[4];
      for (Index k = 0; k < 4; ++k) {
        const Index key = j + k < low ? low : j + k >= high ? high - 1 : j + k;
        rows[k] = state.keys[key];
      }
      for (Index first = 0; first < state.count; first += kQueryTile) {
        score_tile<false, kQueryTile>(state, first, j, rows, head_dim);
      }
    }
  }
}

// The lane from which on query i sees rows as they are stored.
inline Index first_stored_lane(const Attention& attention,
                               const AttentionPart& part,
                               Index i,
                               Index chunk) {
  const Index count = part.rows * part.heads;
  const Index row = part.first_row + (i < count ? i / part.heads : 0);
  const Index lane = first_seen(attention, attention.first_position + row) - chunk;
  return lane < 0 ? 0 : lane > kKeyChunk ? kKeyChunk : lane;
}

// Keeps the probabilities of one side of `lane` and puts zeros in place of the others.
inline void keep_side(const float* from, Index lane, bool restored_side, float* to) {
  for (Index j = 0; j < kKeyChunk; ++j) to[j] = (j < lane) == restored_side ? from[j] : 0.0F;
}

// Scores, softens and adds up a chunk some of whose lanes are restored. state.keys and .values
// point to what is stored.
inline void attend_restored_chunk(QueryState& state,
                                  const Attention& attention,
                                  const AttentionPart& part,
                                  Index low,
                                  Index high,
                                  Index chunk,
                                  RestoredChunk& rows) {
  const bool mixed = rows.kept_low < rows.restored_high;
  for (Index j = low; j < high; ++j) {
    const bool restored = j >= rows.restored_low && j < rows.restored_high;
    if (!restored || j >= rows.kept_low) {
      read_stored(state, attention, chunk + j, j, rows.stored);
    }
  }
  for (Index j = rows.restored_low; j < rows.restored_high; j += kExpandedKeys) {
    const Index end =
        j + kExpandedKeys < rows.restored_high ? j + kExpandedKeys : rows.restored_high;
    restore_rows(attention, state.angles, part.kv_head, chunk + j, chunk + end, state.head_dim,
                 rows.restored.keys + j * state.head_dim,
                 rows.restored.values + j * state.head_dim);
  }
  const auto choose_rows = [&](Index restored_high) {
    for (Index j = low; j < high; ++j) {
      point_to(state, j >= rows.restored_low && j < restored_high ? rows.restored : rows.stored, j);
    }
  };
  choose_rows(rows.restored_high);
  score_rows(state, low, high);
  if (mixed) {
    __builtin_memcpy(rows.scores, state.scores, sizeof(rows.scores));
    choose_rows(rows.kept_low);
    score_rows(state, low, high);
    for (Index i = 0; i < state.count; ++i) {
      const Index lane = first_stored_lane(attention, part, i, chunk);
      __builtin_memcpy(state.scores[i], rows.scores[i],
                       static_cast<std::size_t>(lane) * sizeof(float));
    }
  }
  for (Index i = 0; i < state.count; ++i) soften(state, i, chunk, attention.scale, false);
  if (!mixed) {
    add_chunk<false>(state, low, high, state.head_dim);
    return;
  }
  __builtin_memcpy(rows.scores, state.scores, sizeof(rows.scores));
  for (const bool restored_side : {true, false}) {
    choose_rows(restored_side ? rows.restored_high : rows.kept_low);
    for (Index i = 0; i < state.count; ++i) {
      const Index lane = first_stored_lane(attention, part, i, chunk);
      keep_side(rows.scores[i], lane, restored_side, state.scores[i]);
      if (!restored_side) state.rescale[i] = 1.0F;
    }
    add_chunk<false>(state, low, high, state.head_dim);
  }
}

inline void attend_restored(const Attention& attention, const AttentionPart& part) {
  QueryState state(attention);
  RestoredChunk rows;
  begin_queries(state, attention, part);
  const Index first = attention.first_position + part.first_row;
  const SeenByPart stored = seen_by_part(attention, part);
  const Index begin = window_begin(first, attention.window);
  for (Index i = 0; i < state.count; ++i) {
    // Each query sees all of its window, in one form or the other.
    state.seen[i].begin = state.seen[i].sink_begin;
    state.seen[i].sink_end = state.seen[i].sink_begin;
  }
  const Index restored_begin = begin > attention.sink ? begin : attention.sink;
  // Rows beyond belong to this pass, or are of no query's window: they have no codes yet.
  const bool restores = attention.window == 0 || attention.kept < attention.window;
  const Index restored_end =
      restores ? window_begin(first + part.rows - 1, attention.kept) : restored_begin;
  const Index kept_begin = first_seen(attention, first);
  const auto lane = [](Index position, Index chunk) {
    const Index j = position - chunk;
    return j < 0 ? 0 : j > kKeyChunk ? kKeyChunk : j;
  };
  for (Index chunk = begin / kKeyChunk * kKeyChunk; chunk < stored.end; chunk += kKeyChunk) {
    const Index low = lane(begin, chunk);
    const Index high = lane(stored.end, chunk);
    rows.restored_low = lane(restored_begin, chunk);
    rows.restored_high = lane(restored_end, chunk);
    if (rows.restored_high < rows.restored_low) rows.restored_high = rows.restored_low;
    rows.kept_low = lane(kept_begin, chunk);
    if (rows.kept_low < rows.restored_low) rows.kept_low = rows.restored_low;
    find_rows(attention, part.kv_head, stored, chunk, low, high, state.keys, state.values);
    attend_restored_chunk(state, attention, part, low, high, chunk, rows);
  }
  finish_queries(state, attention, part);
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
