// Attention in which evicted rows are read from calibrated codes (CodedRows of the seam): first all
// coded rows, a chunk at a time, then the exact ones, as ever. Included after restored.h.
//
// Key of position p = R(p) k = R(c) R(p - c) k, c being where its chunk begins: queries are turned
// back by c, once a chunk, and keys by p - c, for which there is a table. Where values have codes
// of their own, a sum of them is
//
//   H (step sum(w code) + base / step sum(w) + mean sum(p)),  w = p scale step,
//
// H being the Hadamard matrix, with which sums are multiplied once.
//
// Chunks start at multiples of kKeyChunk in absolute position, a key that a query sees exactly, or
// not at all, has probability 0 in a chunk of codes, and few queries are summed as many are:
// neighbours do not change a bit.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/units/restored.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

// The rows of a chunk as they are read. About 400 KiB of stack, of which most calls touch a part.
struct CodedState {
  const std::byte* keys[kKeyChunk];  // coded rows
  const std::byte* values[kKeyChunk];
  alignas(64) float queries[kMaxQueryFloats];  // before they are turned back
  alignas(64) float cos[kMaxHeadDim / 2];      // of where the chunk begins
  alignas(64) float sin[kMaxHeadDim / 2];
  alignas(64) float scales[kKeyChunk];  // of a block of values
  alignas(64) float probabilities[kMaxQueries][kKeyChunk];
  alignas(64) float weight_sums[kMaxQueries];
  DecodedChunk rows;
};

inline float load_code_scale(const std::byte* bytes, Index block) {
  std::uint16_t upper;
  __builtin_memcpy(&upper, bytes + 2 * block, sizeof(upper));
  const std::uint32_t bits = static_cast<std::uint32_t>(upper) << 16;
  float scale;
  __builtin_memcpy(&scale, &bits, sizeof(scale));
  return scale;
}

// The address of rows [low, high) of a chunk.
inline void find_coded_rows(
    const Slots& slots, Index offset, Index chunk, Index low, Index high, const std::byte** rows) {
  for (Index j = low; j < high; ++j) {
    const Index position = chunk + j;
    const Index block = position / slots.block_slots;  // they keep every position
    const std::byte* row =
        slots.blocks[block] + (position - block * slots.block_slots) * slots.slot_bytes + offset;
    rows[j] = row;
    prefetch_row(row, kCodeWindow);
  }
}

// The 16 elements of a head from `begin` on, of whichever row.
struct ElementReader {
  Unpacker unpack;
  Index first;
  Vec step;
  Vec base;
  Vec mean;

  ElementReader(const CodeView& code, Index begin)
      : unpack(code.groups[begin / kCodeGroup]),
        first(code.groups[begin / kCodeGroup].first),
        step(load(code.step + begin)),
        base(load(code.base + begin)),
        mean(load(code.mean + begin)) {}

  Vec operator()(const std::byte* row, Vec scale) const {
    return multiply_add(multiply_add(unpack(row + first), step, base), scale, mean);
  }
};

// Rotates the first `turned` pairs of a head.
inline void rotate_part(float* head, const float* cos, const float* sin, Index turned, Index half) {
  for (Index i = 0; i < turned; i += 16) {
    const Index count = turned - i < 16 ? turned - i : 16;
    const Vec a = load_count(head + i, count);
    const Vec b = load_count(head + half + i, count);
    const Vec c = load_count(cos + i, count);
    const Vec s = load_count(sin + i, count);
    store_count(head + i, negative_multiply_add(b, s, mul(a, c)), count);
    store_count(head + half + i, multiply_add(a, s, mul(b, c)), count);
  }
}

// Decodes the keys [low, high) and turns them by their offsets in the chunk.
inline void make_coded_keys(CodedState& coded,
                            const Attention& attention,
                            const CodeView& code,
                            Index padded,
                            Index low,
                            Index high) {
  const Index half = attention.head_dim / 2;
  const float* turns = attention.coded->turns;
  const Index pairs = attention.coded->turned_pairs;
  if (half % 16 != 0) {
    for (Index begin = 0; begin < attention.head_dim; begin += 16) {
      const ElementReader read(code, begin);
      for (Index j = low; j < high; ++j) {
        const Vec scale = splat(load_code_scale(coded.keys[j], 0));
        store(coded.rows.keys + j * padded + begin, read(coded.keys[j], scale));
      }
    }
    for (Index j = low; j < high; ++j) {
      const float* cos = turns + j * 2 * pairs;
      rotate_part(coded.rows.keys + j * padded, cos, cos + pairs, half, half);
    }
    return;
  }
  for (Index i = 0; i < half; i += 16) {
    const ElementReader read_low(code, i);
    const ElementReader read_high(code, half + i);
    for (Index j = low; j < high; ++j) {
      const Vec scale = splat(load_code_scale(coded.keys[j], 0));
      const Vec a = read_low(coded.keys[j], scale);
      const Vec b = read_high(coded.keys[j], scale);
      float* key = coded.rows.keys + j * padded + i;
      const Vec cos = load(turns + j * 2 * pairs + i);
      const Vec sin = load(turns + j * 2 * pairs + pairs + i);
      store(key, negative_multiply_add(b, sin, mul(a, cos)));
      store(key + half, multiply_add(a, sin, mul(b, cos)));
    }
  }
}

// Decodes the vectors [low, high) that are keys and values, and makes keys of them.
inline void make_coded_pairs(CodedState& coded,
                             const Attention& attention,
                             const CodeView& code,
                             Index padded,
                             Index low,
                             Index high) {
  const Index head_dim = attention.head_dim;
  const Index half = head_dim / 2;
  const float* turns = attention.coded->turns;
  const Index pairs = attention.coded->turned_pairs;
  for (Index begin = 0; begin < head_dim; begin += 16) {
    const ElementReader read(code, begin);
    const Vec norm = load(attention.k_norm + begin);
    for (Index j = low; j < high; ++j) {
      const Vec value = read(coded.keys[j], splat(load_code_scale(coded.keys[j], 0)));
      store(coded.rows.values + j * padded + begin, value);
      store(coded.rows.keys + j * padded + begin, mul(value, norm));
    }
  }
  for (Index j = low; j < high; ++j) {
    float* key = coded.rows.keys + j * padded;
    const float* cos = turns + j * 2 * pairs;
    rotate_part(key, cos, cos + pairs, attention.rotated_pairs, half);
  }
}

// Turns the queries back by the position at which the chunk begins.
inline void turn_queries_back(QueryState& state,
                              CodedState& coded,
                              const Attention& attention,
                              Index chunk) {
  turn_angles<AngleOf::kExact>(attention.inverse_frequencies, attention.rotated_pairs, chunk,
                               coded.cos, coded.sin);
  const Index half = attention.head_dim / 2;
  for (Index i = attention.rotated_pairs; i < round_up(half, 16); ++i) {
    coded.cos[i] = 1.0F;
    coded.sin[i] = 0.0F;
  }
  for (Index q = 0; q < state.count; ++q) {
    const float* from = coded.queries + q * state.head_dim;
    float* to = state.query(q);
    for (Index i = 0; i < half; i += 16) {
      const Index count = half - i < 16 ? half - i : 16;
      const Vec a = load_count(from + i, count);
      const Vec b = load_count(from + half + i, count);
      const Vec cos = load_count(coded.cos + i, count);
      const Vec sin = load_count(coded.sin + i, count);
      store_count(to + i, multiply_add(b, sin, mul(a, cos)), count);
      store_count(to + half + i, negative_multiply_add(a, sin, mul(b, cos)), count);
    }
  }
}

// sums = sums * rescale + weights times codes, for kQueries queries and the elements of `unpack`.
template <int kQueries>
inline void add_codes(QueryState& state,
                      const CodedState& coded,
                      const CodeGroup& group,
                      Index begin,
                      Index low,
                      Index high) {
  const Unpacker unpack(group);
  Vec sums[kQueries];
  for (int q = 0; q < kQueries; ++q) {
    sums[q] = mul(load(state.sum(q) + begin), splat(state.rescale[q]));
  }
  for (Index j = low; j < high; ++j) {
    const Vec code = unpack(coded.values[j] + group.first);
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
      sums[q] = multiply_add(splat(state.scores[q][j]), code, sums[q]);
    }
  }
  for (int q = 0; q < kQueries; ++q) store(state.sum(q) + begin, sums[q]);
}

// Adds the elements of a block to the sums of all queries, whose weights are in place of scores.
inline void add_code_block(QueryState& state,
                           CodedState& coded,
                           const CodeView& code,
                           Index first,
                           Index last,
                           Index low,
                           Index high) {
  for (Index begin = first; begin < last; begin += kCodeGroup) {
    const CodeGroup& group = code.groups[begin / kCodeGroup];
    if (state.count == 1) {
      add_codes<1>(state, coded, group, begin, low, high);
    } else if (state.count == 2) {
      add_codes<2>(state, coded, group, begin, low, high);
    } else if (state.count == kQueryTile) {
      add_codes<kQueryTile>(state, coded, group, begin, low, high);
    } else {
      const Unpacker unpack(group);
      const std::byte* rows[kKeyChunk];
      for (Index j = low; j < high; ++j) {
        float* read = state.staged + j * kCodeGroup;
        store(read, unpack(coded.values[j] + group.first));
        rows[j] = reinterpret_cast<const std::byte*>(read);
      }
      for (Index q = 0; q < state.count; q += kQueryTile) {
        add_values<false, kQueryTile, 1>(state, q, low, high, begin, rows, 0, 16);
      }
    }
  }
}

// Adds the values [low, high) of a chunk, by codes of their own, to the sums of all queries.
inline void add_coded_values(QueryState& state,
                             CodedState& coded,
                             const CodeView& code,
                             Index head_dim,
                             Index low,
                             Index high) {
  __builtin_memcpy(coded.probabilities, state.scores, sizeof(coded.probabilities));
  const float step = code.step[0];  // all elements are alike
  const float bias = code.base[0] / step;
  for (Index j = 0; j < kKeyChunk; ++j) coded.scales[j] = 0.0F;
  for (Index block = 0; block < head_dim / code.block; ++block) {
    for (Index j = low; j < high; ++j) {
      coded.scales[j] = load_code_scale(coded.values[j], block) * step;
    }
    for (Index q = 0; q < state.count; ++q) {
      Vec sum = zero();
      for (Index j = 0; j < kKeyChunk; j += 16) {
        const Vec weight = mul(load(coded.probabilities[q] + j), load(coded.scales + j));
        store(state.scores[q] + j, weight);
        sum = add(sum, weight);
      }
      coded.weight_sums[q] = reduce_add(sum);
    }
    const Index first = block * code.block;
    add_code_block(state, coded, code, first, first + code.block, low, high);
    for (Index q = 0; q < state.count; ++q) {
      const Vec offset = splat(bias * coded.weight_sums[q]);
      for (Index e = first; e < first + code.block; e += 16) {
        store(state.sum(q) + e, add(load(state.sum(q) + e), offset));
      }
    }
  }
}

// Adds the values' mean to the sums of coded rows, and multiplies them with the Hadamard matrix, in
// pieces of the largest power of two that divides the head.
inline void turn_sums_back(QueryState& state, const CodeView& code, Index head_dim) {
  const Index piece = head_dim & -head_dim;
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(piece));
  for (Index q = 0; q < state.count; ++q) {
    float* sum = state.sum(q);
    const Vec total = splat(state.total[q]);
    for (Index e = 0; e < head_dim; e += 16) {
      store(sum + e, multiply_add(load(code.mean + e), total, load(sum + e)));
    }
    for (Index begin = 0; begin < head_dim; begin += piece) rotate_back(sum + begin, piece, scale);
  }
}

// Scores, softens and adds up the rows [low, high) of a chunk.
inline void attend_coded_chunk(QueryState& state,
                               CodedState& coded,
                               const Attention& attention,
                               Index kv_head,
                               Index chunk,
                               Index low,
                               Index high) {
  const Coded& codes = *attention.coded;
  const Index padded = state.head_dim;
  const CodeView& key_code = codes.key_codes[kv_head];
  const bool one_vector = codes.value_codes == nullptr;
  find_coded_rows(codes.keys, kv_head * codes.key_bytes, chunk, low, high, coded.keys);
  if (one_vector) {
    make_coded_pairs(coded, attention, key_code, padded, low, high);
  } else {
    find_coded_rows(codes.values, kv_head * codes.value_bytes, chunk, low, high, coded.values);
    make_coded_keys(coded, attention, key_code, padded, low, high);
  }
  for (Index j = low; j < high; ++j) point_to(state, coded.rows, j);
  turn_queries_back(state, coded, attention, chunk);
  score_rows(state, low, high);
  for (Index q = 0; q < state.count; ++q) soften(state, q, chunk, attention.scale, false);
  if (one_vector) return add_chunk<false>(state, low, high, padded);
  add_coded_values(state, coded, codes.value_codes[kv_head], attention.head_dim, low, high);
}

// Attends to all coded rows that some query of the part sees.
inline void attend_codes(QueryState& state, const Attention& attention, const AttentionPart& part) {
  const Index begin = attention.sink;
  const Index end =
      first_seen(attention, attention.first_position + part.first_row + part.rows - 1);
  if (end <= begin) return;
  SeenByQuery exact[kMaxQueries];
  for (Index q = 0; q < state.count; ++q) {
    exact[q] = state.seen[q];
    state.seen[q] = {begin, exact[q].begin > begin ? exact[q].begin : begin, begin, begin};
  }
  CodedState coded;
  __builtin_memcpy(coded.queries, state.queries,
                   static_cast<std::size_t>(state.count * state.head_dim) * sizeof(float));
  for (Index chunk = begin / kKeyChunk * kKeyChunk; chunk < end; chunk += kKeyChunk) {
    const Index low = begin > chunk ? begin - chunk : 0;
    const Index high = end - chunk < kKeyChunk ? end - chunk : kKeyChunk;
    attend_coded_chunk(state, coded, attention, part.kv_head, chunk, low, high);
  }
  if (attention.coded->value_codes != nullptr) {
    turn_sums_back(state, attention.coded->value_codes[part.kv_head], attention.head_dim);
  }
  __builtin_memcpy(state.queries, coded.queries,
                   static_cast<std::size_t>(state.count * state.head_dim) * sizeof(float));
  for (Index q = 0; q < state.count; ++q) state.seen[q] = exact[q];
}

template <bool kBf16>
inline void attend_coded(const Attention& attention, const AttentionPart& part) {
  QueryState state(attention);
  begin_queries(state, attention, part);
  attend_codes(state, attention, part);
  for_chunks<kKeyChunk>(
      attention, part, [&](const SeenByPart& seen, Index chunk, Index low, Index high) {
        find_rows(attention, part.kv_head, seen, chunk, low, high, state.keys, state.values);
        attend_chunk<kBf16>(state, low, high, chunk, attention);
      });
  finish_queries(state, attention, part);
}

inline void attend_in_vectors(const Attention& attention, const AttentionPart& part) {
  if (attention.restored != nullptr) return attend_restored(attention, part);
  if (attention.coded == nullptr) return attend(attention, part);
  if (attention.format == KvFormat::kBf16) return attend_coded<true>(attention, part);
  attend_coded<false>(attention, part);
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
