// Pieces of the attention on tiles: its state, where rows lie, packed queries and keys that are
// made. Included after tiles.h and rows_ahead.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline constexpr Index kTileChunk = 128;   // keys of one step of the online softmax
inline constexpr Index kTileQueries = 64;  // query vectors of one call
inline constexpr Index kTile = 16;         // queries of one tile; keys of one tile of scores
inline constexpr Index kTileBytes = 1024;

struct Lanes {
  Index begin[kTile];       // first position it sees
  Index end[kTile];         // one after the last
  Index sink_begin[kTile];  // it sees these as well; begin = end if none
  Index sink_end[kTile];
  Index latest_begin;  // from here on, to the earliest end, every lane sees every position
  Index earliest_end;
};

// Where 16 rows are that lie `stride` bytes apart.
struct EvenRows {
  const std::byte* first;
  Index stride;
};

// About 520 KiB of stack, of which most calls touch a part.
struct TileState : RowsAhead<kTileChunk> {
  Index count;  // queries
  Index tiles;  // of queries; lanes beyond the count hold zeros
  Index steps;  // of a head
  Lanes lanes[kTileQueries / kTile];
  // Where the made elements of step s are in `made`, or -1: as they lie in the cache.
  Index made_step[kMaxSteps];
  Index made_steps;
  bool has_keys;  // beside the values
  Index asked;    // how many rows of the next chunk are under way
  alignas(64) float largest[kTileQueries];
  alignas(64) float total[kTileQueries];
  alignas(64) float rescale[kTileQueries];
  alignas(64) float scores[kTileQueries / kTile][kTileChunk][kTile];
  // Tiles: [tile][step] pairs of elements by queries.
  alignas(64) std::byte queries[kTileQueries * kMaxHeadDim * 2];
  // [tile][step of keys] queries by keys.
  alignas(64) std::byte probabilities[kTileQueries * kTileChunk * 2];
  // [tile][block of 16 elements] queries by elements, which are in the order that
  // interleave_values leaves them in.
  alignas(64) float sums[kTileQueries * kMaxHeadDim];
  // [made step][tile of 16 keys] keys by elements
  alignas(64) std::byte made[kTileChunk * kMaxHeadDim * 2];
  alignas(64) std::byte copies[kTileChunk * kMaxHeadDim * 2];  // keys that do not lie evenly
  alignas(64) std::byte pairs[kTileChunk * kStep * 2];  // [step of keys][2] pairs by elements
  EvenRows rows[kTileChunk / kTile];                    // the chunk's keys

  std::byte* query_tile(Index tile, Index step) {
    return queries + (tile * steps + step) * kTileBytes;
  }
  std::byte* probability_tile(Index tile, Index step) {
    return probabilities + (tile * (kTileChunk / kStep) + step) * kTileBytes;
  }
  float* sum_tile(Index tile, Index block) {
    return sums + (tile * 2 * steps + block) * kTile * kTile;
  }
};

inline void begin_lane(Lanes& lanes, Index lane, const Attention& attention, Index position) {
  lanes.begin[lane] = first_seen(attention, position);
  lanes.end[lane] = end_seen(attention, position);
  lanes.sink_begin[lane] = window_begin(position, attention.window);
  lanes.sink_end[lane] = sink_end_seen(attention, position);
  if (lane == 0 || lanes.begin[lane] > lanes.latest_begin) lanes.latest_begin = lanes.begin[lane];
  if (lane == 0 || lanes.end[lane] < lanes.earliest_end) lanes.earliest_end = lanes.end[lane];
}

// Rounds one tile of queries and brings it into the form of the second operand.
inline void pack_queries(TileState& state,
                         const Attention& attention,
                         const AttentionPart& part,
                         Index tile) {
  alignas(64) std::byte rows[kTile * kMaxHeadDim * 2] = {};
  const Index row_bytes = attention.head_dim * 2;
  for (Index lane = 0; lane < kTile && tile * kTile + lane < state.count; ++lane) {
    const Index query = tile * kTile + lane;
    const float* x = attention.queries + (part.first_row + query / part.heads) * attention.stride +
                     (part.first_head + query % part.heads) * attention.head_dim;
    for (Index e = 0; e < attention.head_dim; e += 16) {
      Vec v = load(x + e);
      if (attention.keys == nullptr && state.made_step[e / kStep] < 0) {
        v = mul(v, load(attention.k_norm + e));
      }
      store_bf16(rows + lane * row_bytes + 2 * e, v);
    }
  }
  for (Index step = 0; step < state.steps; ++step) {
    transpose_32(rows + step * 64, row_bytes, state.query_tile(tile, step));
  }
}

inline void begin_tiles(TileState& state, const Attention& attention, const AttentionPart& part) {
  state.count = part.rows * part.heads;
  state.tiles = (state.count + kTile - 1) / kTile;
  state.steps = attention.head_dim / kStep;
  state.made_steps = 0;
  state.has_keys = attention.keys != nullptr;
  const Index rotating =
      attention.keys == nullptr ? (attention.rotated_pairs + kStep - 1) / kStep : 0;
  for (Index step = 0; step < state.steps; ++step) {
    const bool made = step % (state.steps / 2) < rotating;
    state.made_step[step] = made ? state.made_steps++ : -1;
  }
  for (Index tile = 0; tile < state.tiles; ++tile) {
    for (Index lane = 0; lane < kTile; ++lane) {
      const Index query = tile * kTile + lane;
      const Index row = part.first_row + (query < state.count ? query / part.heads : 0);
      begin_lane(state.lanes[tile], lane, attention, attention.first_position + row);
      state.largest[query] = -__builtin_inff();
      state.total[query] = 0.0F;
    }
    pack_queries(state, attention, part, tile);
  }
  for (Index i = 0; i < state.tiles * kTile * attention.head_dim; i += 16) {
    store(state.sums + i, zero());
  }
}

// Sine and cosine of angle + rest, rest being small: reduced by multiples of pi / 2 in two parts,
// then polynomials whose remainder on [-pi/4, pi/4] is below 4e-7.
inline void turn(Vec angle, Vec rest, Vec& sine, Vec& cosine) {
  const Vec turns = round_nearest(mul(angle, splat(0.636619772F)));
  Vec r = negative_multiply_add(turns, splat(1.57079637F), angle);
  r = add(negative_multiply_add(turns, splat(-4.37113883e-8F), r), rest);
  const Vec s = mul(r, r);
  Vec a = multiply_add(s, splat(-1.0F / 5040.0F), splat(1.0F / 120.0F));
  a = multiply_add(s, a, splat(-1.0F / 6.0F));
  a = multiply_add(mul(s, r), a, r);
  Vec b = multiply_add(s, splat(1.0F / 40320.0F), splat(-1.0F / 720.0F));
  b = multiply_add(s, b, splat(1.0F / 24.0F));
  b = multiply_add(s, b, splat(-0.5F));
  b = multiply_add(s, b, splat(1.0F));
  const __m512i quadrant = _mm512_cvtps_epi32(turns);
  const __mmask16 odd = _mm512_test_epi32_mask(quadrant, _mm512_set1_epi32(1));
  const __m512i two = _mm512_set1_epi32(2);
  const __m512i next = _mm512_add_epi32(quadrant, _mm512_set1_epi32(1));
  const auto with_sign = [](Vec x, __m512i bit_one) {
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(x), _mm512_slli_epi32(bit_one, 30)));
  };
  sine = with_sign(_mm512_mask_blend_ps(odd, a, b), _mm512_and_si512(quadrant, two));
  cosine = with_sign(_mm512_mask_blend_ps(odd, b, a), _mm512_and_si512(next, two));
}

inline void round_to_bf16(std::byte* to, Vec x) {
  const __m256bh rounded = _mm512_cvtneps_pbh(x);
  __builtin_memcpy(to, &rounded, sizeof(rounded));
}

// Asks for one more row of the next chunk. Rows are asked for one by one, in order, between pieces
// of work: the memory's queues never fill, and the hardware knows the pattern.
inline void ask_row(TileState& state) {
  if (state.asked >= state.next_rows) return;
  const Index row_bytes = state.steps * 64;
  const std::byte* const value = state.next->values[state.asked];
  for (Index at = 0; at < row_bytes; at += 64) prefetch_far(value + at);
  if (state.has_keys) {
    const std::byte* const key = state.next->keys[state.asked];
    for (Index at = 0; at < row_bytes; at += 64) prefetch_far(key + at);
  }
  ++state.asked;
}

// Turns elements e ... e + 15 and those half a head on, of 32 keys from number j of the chunk on.
//
// The published angle is fl(p f), rounded to f32. From key to key the exact angle p f grows by f:
// sine and cosine follow by rotation, from exact ones at the first key. What fl() adds to the angle
// is then put back to first order: its square is below what bf16 rounds off up to position 2^20.
inline void turn_keys(
    TileState& state, const Attention& attention, Index j, Index position, Index e) {
  const Index half = attention.head_dim / 2;
  const Index left = attention.rotated_pairs - e;
  const Vec frequency = left >= 16  ? load(attention.inverse_frequencies + e)
                        : left <= 0 ? zero()
                                    : load_part(attention.inverse_frequencies + e, left);
  const auto rest_of = [&](Vec place, Vec angle) {
    return _mm512_fmsub_ps(place, frequency, angle);
  };
  const Vec first = splat(static_cast<float>(position));
  const Vec first_angle = mul(first, frequency);
  Vec sine;
  Vec cosine;
  turn(first_angle, rest_of(first, first_angle), sine, cosine);
  Vec step_sine;
  Vec step_cosine;
  turn(frequency, zero(), step_sine, step_cosine);
  const Vec low_norm = load(attention.k_norm + e);
  const Vec high_norm = load(attention.k_norm + half + e);
  constexpr Index kStepBytes = kTileChunk / kTile * kTileBytes;
  std::byte* to = state.made + e / kStep * kStepBytes + j * 64 + e % kStep * 2;
  const Index to_high = state.made_steps / 2 * kStepBytes;
  for (Index key = 0; key < kStep; ++key, to += 64) {
    if (key % kTile == 0) ask_row(state);
    const std::byte* value = state.now->values[j + key];
    const Vec place = splat(static_cast<float>(position + key));
    const Vec rest = rest_of(place, mul(place, frequency));  // p f - fl(p f)
    const Vec c = multiply_add(rest, sine, cosine);
    const Vec s = negative_multiply_add(rest, cosine, sine);
    const Vec low = mul(load_bf16(value + 2 * e), low_norm);
    const Vec high = mul(load_bf16(value + 2 * (half + e)), high_norm);
    round_to_bf16(to, negative_multiply_add(high, s, mul(low, c)));
    round_to_bf16(to + to_high, multiply_add(low, s, mul(high, c)));
    const Vec next = negative_multiply_add(sine, step_sine, mul(cosine, step_cosine));
    sine = multiply_add(cosine, step_sine, mul(sine, step_cosine));
    cosine = next;
  }
}

// Makes the steps in which pairs rotate, for keys [low, high) of the chunk.
inline void make_keys(
    TileState& state, const Attention& attention, Index chunk, Index low, Index high) {
  for (Index j = low; j < high; j += kStep) {
    for (Index e = 0; e < state.made_steps / 2 * kStep; e += 16) {
      turn_keys(state, attention, j, chunk + j, e);
    }
  }
}

// Finds the keys [low, high) of the chunk: as they lie in the cache if 16 lie evenly, else a copy.
inline void find_even_rows(TileState& state, const Attention& attention, Index low, Index high) {
  const Index row_bytes = attention.head_dim * 2;
  for (Index j = low; j < high; j += kTile) {
    const std::byte* const* keys = state.now->keys + j;
    bool even = true;
    for (Index i = 1; i < kTile; ++i) even = even && keys[i] == keys[i - 1] + attention.slot_bytes;
    state.rows[j / kTile] = {keys[0], attention.slot_bytes};
    if (even) continue;
    std::byte* const copy = state.copies + j * row_bytes;
    for (Index i = 0; i < kTile; ++i) {
      __builtin_memcpy(copy + i * row_bytes, keys[i], static_cast<std::size_t>(row_bytes));
    }
    state.rows[j / kTile] = {copy, row_bytes};
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
