// Attention on AMX tiles over rows of bf16: queries, derived keys and probabilities are rounded to
// bf16, sums are f32. Included after tile_rows.h.
//
// Chunks of kTileChunk keys that start at multiples of it in absolute position are merged in order
// with the online softmax. Scores are tiles of 16 keys by 16 queries, so that rows of the cache are
// loaded as they lie; each query is a lane of them, and a row of the tiles of sums. Lanes and rows
// do not meet, and a key that a query does not see has probability exactly 0: neither neighbours
// nor the ring's wrap change a bit.
//
// Where keys are not stored, key = RoPE_p(k_norm * value): only the steps of 32 elements in which
// some pair rotates are made for each key; for the others k_norm is multiplied into the queries.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

// True if tiles suit the layer. Only the layer decides, so that a row meets the same arithmetic in
// any company (batch invariance). Both halves of a head that rotates are whole steps; narrow heads
// have little to gain from tiles.
inline bool fits_tiles(const Attention& attention) {
  return attention.fast && attention.format == KvFormat::kBf16 && attention.restored == nullptr &&
         attention.coded == nullptr && attention.head_dim >= 128 &&
         attention.head_dim % (2 * kStep) == 0;
}

// Tiles 2, 3 and 7 hold as many rows as there are queries, if those are one tile.
inline void configure_attention(Index queries) {
  alignas(64) TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = kTile;
  }
  if (queries < kTile) {
    config.rows[2] = config.rows[3] = config.rows[7] = static_cast<std::uint8_t>(queries);
  }
  finish_writes(&config);
  _tile_loadconfig(&config);
}

// Scores of kTiles tiles of queries from `tile` on with 32 keys from number j of the chunk on.
template <int kTiles>
inline void score_step(TileState& state, Index tile, Index j) {
  const EvenRows* const rows = state.rows + j / kTile;
  zero_sums();
  for (Index step = 0; step < state.steps; ++step) {
    ask_row(state);
    const Index made = state.made_step[step];
    if (made < 0) {
      _tile_loadd(4, rows[0].first + step * 64, rows[0].stride);
      _tile_loadd(5, rows[1].first + step * 64, rows[1].stride);
    } else {
      const std::byte* const keys = state.made + made * (kTileChunk / kTile) * kTileBytes + j * 64;
      _tile_loadd(4, keys, 64);
      _tile_loadd(5, keys + kTileBytes, 64);
    }
    _tile_loadd(6, state.query_tile(tile, step), 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (kTiles > 1) {
      _tile_loadd(7, state.query_tile(tile + 1, step), 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, state.scores[tile][j], 64);
  _tile_stored(1, state.scores[tile][j + kTile], 64);
  if constexpr (kTiles > 1) {
    _tile_stored(2, state.scores[tile + 1][j], 64);
    _tile_stored(3, state.scores[tile + 1][j + kTile], 64);
  }
}

// Hides what lanes do not see of the chunk's keys [low, high).
inline void hide_keys(TileState& state, Index tile, Index chunk, Index low, Index high) {
  const Lanes& lanes = state.lanes[tile];
  if (lanes.latest_begin <= chunk + low && chunk + high <= lanes.earliest_end) return;
  alignas(64) float bounds[4][kTile];
  const auto within = [&](Index position) {
    const Index key = position - chunk;
    return static_cast<float>(key < 0 ? 0 : key > kTileChunk ? kTileChunk : key);
  };
  for (Index lane = 0; lane < kTile; ++lane) {
    bounds[0][lane] = within(lanes.begin[lane]);
    bounds[1][lane] = within(lanes.end[lane]);
    bounds[2][lane] = within(lanes.sink_begin[lane]);
    bounds[3][lane] = within(lanes.sink_end[lane]);
  }
  for (Index j = low; j < high; ++j) {
    const Vec key = splat(static_cast<float>(j));
    const Vec score = load(state.scores[tile][j]);
    const Vec hidden = splat(-__builtin_inff());
    const Vec outside =
        select_less(key, load(bounds[2]), hidden, select_less(key, load(bounds[3]), score, hidden));
    store(state.scores[tile][j], select_less(key, load(bounds[0]), outside,
                                             select_less(key, load(bounds[1]), score, outside)));
  }
}

// Two probabilities of each lane as a pair of bf16, rounded to nearest (half up).
inline void store_pair(std::byte* to, Vec even, Vec odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_add_epi32(_mm512_castps_si512(even), half);
  const __m512i high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
  _mm512_storeu_si512(to, _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(low, 16), high));
}

// Turns the scores of a tile of queries with the keys [low, high), whole steps of the chunk, into
// probabilities relative to the largest score so far.
inline void soften_tile(TileState& state, Index tile, Index low, Index high, float scale) {
  const Vec factor = splat(scale);
  const auto score = [&](Index j) { return mul(load(state.scores[tile][j]), factor); };
  Vec most[4];
  for (Vec& m : most) m = splat(-__builtin_inff());
  for (Index j = low; j < high; j += 4) {
#pragma GCC unroll 4
    for (Index i = 0; i < 4; ++i) most[i] = max(most[i], score(j + i));
  }
  const Vec before = load(state.largest + tile * kTile);
  const Vec now = max(max(max(most[0], most[1]), max(most[2], most[3])), before);
  store(state.largest + tile * kTile, now);
  // A lane that has seen nothing yet: all its exponentials are 0, from any finite place.
  const Vec from = max(now, splat(-3e38F));
  const Vec rescale = exp(sub(before, from));
  Vec total[4];
  for (Vec& t : total) t = zero();
  for (Index step = low / kStep; step < high / kStep; ++step) {
    alignas(64) std::byte turned[kTileBytes];
#pragma GCC unroll 2
    for (Index pair = 0; pair < kStep / 2; ++pair) {
      const Index j = step * kStep + 2 * pair;
      const Vec even = exp(sub(score(j), from));
      const Vec odd = exp(sub(score(j + 1), from));
      total[pair % 2 * 2] = add(total[pair % 2 * 2], even);
      total[pair % 2 * 2 + 1] = add(total[pair % 2 * 2 + 1], odd);
      store_pair(turned + pair * 64, even, odd);
    }
    transpose_32(turned, 64, state.probability_tile(tile, step));
  }
  const Vec here = add(add(total[0], total[1]), add(total[2], total[3]));
  store(state.total + tile * kTile, multiply_add(load(state.total + tile * kTile), rescale, here));
  store(state.rescale + tile * kTile, rescale);
}

// sums *= rescale, unless all are 1 as for most chunks.
inline void rescale_sums(TileState& state, Index tile) {
  const Vec factors = load(state.rescale + tile * kTile);
  if (_mm512_cmp_ps_mask(factors, splat(1.0F), _CMP_NEQ_UQ) == 0) return;
  for (Index block = 0; block < 2 * state.steps; ++block) {
    float* sums = state.sum_tile(tile, block);
    for (Index lane = 0; lane < kTile; ++lane) {
      const Vec factor = splat(state.rescale[tile * kTile + lane]);
      store(sums + lane * kTile, mul(load(sums + lane * kTile), factor));
    }
  }
}

// Interleaves 32 elements, those of `step`, of the values of keys [low, high) pair by pair, as the
// second operand of a product wants them.
inline void interleave_values(TileState& state, Index step, Index low, Index high) {
  for (Index j = low; j < high; j += 2) {
    if (j % 8 == 0) ask_row(state);
    const __m512i a = _mm512_loadu_si512(state.now->values[j] + 64 * step);
    const __m512i b = _mm512_loadu_si512(state.now->values[j + 1] + 64 * step);
    std::byte* const to = state.pairs + j / kStep * 2 * kTileBytes + j % kStep / 2 * 64;
    _mm512_store_si512(to, _mm512_unpacklo_epi16(a, b));
    _mm512_store_si512(to + kTileBytes, _mm512_unpackhi_epi16(a, b));
  }
}

// Adds the products of kTiles tiles of probabilities with interleaved values to the sums of two
// blocks of elements.
template <int kTiles>
inline void add_step(TileState& state, Index tile, Index block, Index low, Index high) {
  float* const sums[2] = {state.sum_tile(tile, block), state.sum_tile(tile + kTiles - 1, block)};
  constexpr Index kBlock = kTile * kTile;
  _tile_loadd(2, sums[0], 64);
  _tile_loadd(3, sums[0] + kBlock, 64);
  if constexpr (kTiles > 1) {
    _tile_loadd(0, sums[1], 64);
    _tile_loadd(1, sums[1] + kBlock, 64);
  }
  for (Index step = low / kStep; step < high / kStep; ++step) {
    const std::byte* const pairs = state.pairs + step * 2 * kTileBytes;
    _tile_loadd(7, state.probability_tile(tile, step), 64);
    _tile_loadd(5, pairs, 64);
    _tile_dpbf16ps(2, 7, 5);
    _tile_loadd(6, pairs + kTileBytes, 64);
    _tile_dpbf16ps(3, 7, 6);
    if constexpr (kTiles > 1) {
      _tile_loadd(4, state.probability_tile(tile + 1, step), 64);
      _tile_dpbf16ps(0, 4, 5);
      _tile_dpbf16ps(1, 4, 6);
    }
  }
  _tile_stored(2, sums[0], 64);
  _tile_stored(3, sums[0] + kBlock, 64);
  if constexpr (kTiles > 1) {
    _tile_stored(0, sums[1], 64);
    _tile_stored(1, sums[1] + kBlock, 64);
  }
}

// The keys [low, high) of one chunk, whole steps.
inline void attend_tile_chunk(
    TileState& state, const Attention& attention, Index chunk, Index low, Index high) {
  state.asked = 0;
  find_even_rows(state, attention, low, high);
  if (state.made_steps > 0) make_keys(state, attention, chunk, low, high);
  finish_writes(&state);
  for_groups<1>(state.tiles, [&]<int kTiles>(Index tile) {
    for (Index j = low; j < high; j += kStep) {
      score_step<kTiles>(state, tile, j);
    }
  });
  for (Index tile = 0; tile < state.tiles; ++tile) {
    hide_keys(state, tile, chunk, low, high);
    soften_tile(state, tile, low, high, attention.scale);
    rescale_sums(state, tile);
  }
  for (Index step = 0; step < state.steps; ++step) {
    interleave_values(state, step, low, high);
    finish_writes(&state);
    for_groups<1>(state.tiles, [&]<int kTiles>(Index tile) {
      add_step<kTiles>(state, tile, 2 * step, low, high);
    });
  }
}

inline void finish_tiles(TileState& state, const Attention& attention, const AttentionPart& part) {
  // One of a step's two blocks has elements 0-3, 8-11, 16-19, 24-27, the other those between.
  const __m512i low_half =
      _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i high_half =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  for (Index query = 0; query < state.count; ++query) {
    const Vec total = splat(state.total[query]);
    float* out = attention.out + (part.first_row + query / part.heads) * attention.stride +
                 (part.first_head + query % part.heads) * attention.head_dim;
    for (Index step = 0; step < state.steps; ++step) {
      const float* sums = state.sum_tile(query / kTile, 2 * step) + query % kTile * kTile;
      const Vec even = load(sums);
      const Vec odd = load(sums + kTile * kTile);
      store(out + step * kStep, div(_mm512_permutex2var_ps(even, low_half, odd), total));
      store(out + step * kStep + 16, div(_mm512_permutex2var_ps(even, high_half, odd), total));
    }
  }
}

inline void attend_tiles(const Attention& attention, const AttentionPart& part) {
  TileState state;
  begin_tiles(state, attention, part);
  configure_attention(state.count);
  for_chunks_ahead(attention, part, state, [&](Index chunk, Index low, Index high) {
    attend_tile_chunk(state, attention, chunk, low, high);
  });
  _tile_release();
  finish_tiles(state, attention, part);
}

inline Index max_queries(const Attention& attention) {
  return fits_tiles(attention) ? kTileQueries : kMaxQueries;
}

inline void attend_fast(const Attention& attention, const AttentionPart& part) {
  if (fits_tiles(attention)) return attend_tiles(attention, part);
  attend_in_vectors(attention, part);
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
