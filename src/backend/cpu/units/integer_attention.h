// Fast attention in integers over rows of one vector, for units with VNNI: products of int16, added
// up exactly in int32. Included after restored.h and rows_ahead.h.
//
// Rows of bf16 become codes with a scale of their own: code = round(x kLargestCode / largest |x|).
// A query's codes are so small that no sum of its products can pass int32 (Cauchy-Schwarz), and the
// probabilities of a chunk, times the scales of the values, are codes whose sum cannot either. Sums
// of integers do not depend on their order; scales are those of a key, of a query, or of a query's
// chunk: neither neighbours nor the ring's wrap change a bit.
//
// key = RoPE_p(k_norm * value): only steps of 32 elements in which some pair rotates are made for
// each key; for the others k_norm is multiplied into the queries and the codes are the values'.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/units/rows_ahead.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline constexpr Index kSharedQueries = 64;  // query vectors of one call
inline constexpr Index kStepBytes = 64;
inline constexpr Index kTurned = 16;  // keys that are turned at once
inline constexpr float kLargestCode = 4096.0F;
inline constexpr float kLargestWord = 32767.0F;
// Rows, and queries, whose numbers are all smaller are zero.
inline constexpr float kSmallestRow = 1e-30F;
inline constexpr float kSmallestQuery = 1e-37F;

// True if integers suit the layer. Only the layer decides, so that a row meets the same arithmetic
// in any company (batch invariance). Where fewer heads share keys, heads are narrower or keys are
// stored, one row would lose more by the codes than blocks of rows win.
inline bool fits_integers(const Attention& attention) {
  return attention.fast && attention.format == KvFormat::kBf16 && attention.restored == nullptr &&
         attention.coded == nullptr && attention.keys == nullptr && attention.heads_per_kv >= 8 &&
         attention.head_dim >= 256 && attention.head_dim % (2 * kStep) == 0;
}

// About 360 KiB of stack, of which most calls touch a part.
struct IntegerState : RowsAhead<kKeyChunk> {
  explicit IntegerState(const Attention& attention)
      : made(round_up(attention.rotated_pairs, kStep)), angles(attention, made) {}

  Index made;  // pairs of a key's elements that are made of its value
  KeyAngles angles;
  float made_norm;  // largest |k_norm| of those
  Index count;      // queries, rounded up to a whole tile with zeros
  Index head_dim;
  Index steps;  // of a head
  SeenByQuery seen[kSharedQueries];
  float largest[kSharedQueries];
  float total[kSharedQueries];
  float query_scale[kSharedQueries];  // of a query's codes, times attention.scale
  // The factors of the sums so far, and of those of this chunk.
  float rescale[kSharedQueries];
  float weight[kSharedQueries];
  alignas(64) float scales[kKeyChunk];  // of the codes of its keys and values
  alignas(64) float scores[kSharedQueries][kKeyChunk];
  // Codes, as round_to_words gives them.
  alignas(64) std::byte queries[kSharedQueries * kMaxSteps * kStepBytes];
  alignas(64) std::byte probabilities[kSharedQueries][kKeyChunk * 2];
  // Keys of a step. A line of padding keeps them apart in the first-level cache, as below.
  alignas(64) std::byte rows[kStep / kTurned][kTurned][(kMaxSteps + 1) * kStepBytes];
  // Pairs of elements of kTurned keys: [step][16][kTurned]; those of the next keys follow.
  alignas(64) std::byte turned[kStep / kTurned][kMaxSteps][16][kStepBytes];
  // Values of two keys in turn: [step][pair_place][32 elements].
  alignas(64) std::byte pairs[kMaxSteps][kKeyChunk / 2 + 1][2 * kStepBytes];
  alignas(64) float sums[kSharedQueries * kMaxHeadDim];

  float* sum(Index i) { return sums + i * head_dim; }
  std::byte* query(Index i) { return queries + i * head_dim * 2; }
};

// Where round_to_words puts keys j and j + 1 of a chunk, as a pair.
inline Index pair_place(Index j) {
  const Index in_half = j % 16;
  return j / kStep * 16 + in_half / 4 * 4 + j % kStep / 16 * 2 + in_half % 4 / 2;
}

// The largest |x| of a row of bf16, NaN if any is. A loop that the compiler makes vectors of.
inline float largest_of(const std::byte* row, Index count) {
  std::uint16_t largest = 0;
  for (Index i = 0; i < count; ++i) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, row + 2 * i, sizeof(bits));
    bits &= 0x7fff;
    largest = bits > largest ? bits : largest;
  }
  const std::uint32_t wide = static_cast<std::uint32_t>(largest) << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof(value));
  return value;
}

// The scale that a row's numbers are divided by to be codes, and its inverse.
struct CodeScale {
  float scale;
  float inverse;
};
inline CodeScale code_scale(float largest) {
  if (largest < kSmallestRow) return {0.0F, 0.0F};
  return {largest / kLargestCode, kLargestCode / largest};
}

inline Ints code_step(const std::byte* row, Index step, Vec inverse) {
  return round_to_words(mul(load_bf16(row + step * kStepBytes), inverse),
                        mul(load_bf16(row + step * kStepBytes + kStepBytes / 2), inverse));
}

// The codes of the made elements of the key at `position`, to their places in `to`.
inline void code_made(IntegerState& state,
                      const Attention& attention,
                      Index position,
                      const std::byte* value,
                      float inverse,
                      std::byte* to) {
  state.angles.turn_to(position);
  const Vec factor = splat(inverse / state.made_norm);
  const Index half = state.head_dim / 2;
  for (Index e = 0; e < state.made; e += kStep) {
    Vec low[2];
    Vec high[2];
    for (int v = 0; v < 2; ++v) {
      const Index at = e + 16 * v;
      const Vec c = load(state.angles.cos() + at);
      const Vec s = load(state.angles.sin() + at);
      const auto normed = [&](Index i) {
        return mul(mul(load_bf16(value + 2 * i), load(attention.k_norm + i)), factor);
      };
      const Vec a = normed(at);
      const Vec b = normed(half + at);
      low[v] = negative_multiply_add(b, s, mul(a, c));
      high[v] = multiply_add(a, s, mul(b, c));
    }
    store_ints(to + 2 * e, round_to_words(low[0], low[1]));
    store_ints(to + 2 * (half + e), round_to_words(high[0], high[1]));
  }
}

// Asks for one line of rows j and j + 1 of the next chunk. Lines are asked for one by one, between
// pieces of work: the memory's queues never fill.
inline void ask_lines(const IntegerState& state, Index j, Index step) {
  if (j + 1 >= state.next_rows) return;
  prefetch_far(state.next->values[j] + step * kStepBytes);
  prefetch_far(state.next->values[j + 1] + step * kStepBytes);
}

// Codes of keys j and j + 1 of the chunk, and of their values.
inline void code_pair(IntegerState& state, const Attention& attention, Index chunk, Index j) {
  const std::byte* const* values = state.now->values + j;
  std::byte* const first = state.rows[j % kStep / kTurned][j % kTurned];
  std::byte* const second = state.rows[j % kStep / kTurned][j % kTurned + 1];
  const CodeScale first_scale = code_scale(largest_of(values[0], state.head_dim));
  const CodeScale second_scale = code_scale(largest_of(values[1], state.head_dim));
  state.scales[j] = first_scale.scale;
  state.scales[j + 1] = second_scale.scale;
  const Index place = pair_place(j);
  for (Index step = 0; step < state.steps; ++step) {
    ask_lines(state, j, step);
    const Ints a = code_step(values[0], step, splat(first_scale.inverse));
    const Ints b = code_step(values[1], step, splat(second_scale.inverse));
    store_ints(first + step * kStepBytes, a);
    store_ints(second + step * kStepBytes, b);
    std::byte* const to = state.pairs[step][place];
    store_ints(to, interleave_first(a, b));
    store_ints(to + kStepBytes, interleave_second(a, b));
  }
  code_made(state, attention, chunk + j, values[0], first_scale.inverse, first);
  code_made(state, attention, chunk + j + 1, values[1], second_scale.inverse, second);
}

// Turns the keys of a step, so that each is a lane.
inline void turn_codes(IntegerState& state) {
  for (Index part = 0; part < kStep / kTurned; ++part) {
    for (Index step = 0; step < state.steps; ++step) {
      transpose_32(state.rows[part][0] + step * kStepBytes, sizeof(state.rows[part][0]),
                   state.turned[part][step][0]);
    }
  }
}

// Scores of kQueries queries from `first` on with the kStep keys of state.turned, which are keys
// j ... of the chunk.
template <int kQueries>
inline void score_codes(IntegerState& state, Index first, Index j) {
  constexpr int kHalves = kStep / kTurned;
  Ints sums[kQueries][kHalves];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    for (int h = 0; h < kHalves; ++h) sums[i][h] = splat_int(0);
  }
  const std::byte* const keys = state.turned[0][0][0];
  constexpr Index kHalfBytes = sizeof(state.turned[0]);
  const std::byte* const query = state.query(first);
  const Index query_bytes = state.head_dim * 2;
  const Index pairs = state.head_dim / 2;
  for (Index pair = 0; pair < pairs; ++pair) {
    const Ints low = load_codes(keys + pair * kStepBytes);
    const Ints high = load_codes(keys + kHalfBytes + pair * kStepBytes);
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      const Ints q = splat_words(query + i * query_bytes + 4 * pair);
      sums[i][0] = dot_words(sums[i][0], low, q);
      sums[i][1] = dot_words(sums[i][1], high, q);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    const Vec scale = splat(state.query_scale[first + i]);
    for (int h = 0; h < kHalves; ++h) {
      const Index at = j + 16 * h;
      store(state.scores[first + i] + at,
            mul(to_float(sums[i][h]), mul(load(state.scales + at), scale)));
    }
  }
}

// Turns the scores of a query into codes of probabilities relative to the chunk's largest score,
// times the values' scales.
inline void soften_codes(IntegerState& state, Index query, Index chunk_begin, bool has_sink) {
  Vec s[kKeyChunk / 16];
  for (int j = 0; j < kKeyChunk / 16; ++j) s[j] = load(state.scores[query] + 16 * j);
  hide_unseen(state.seen[query], chunk_begin, has_sink, s);
  const float here = reduce_max(max(max(s[0], s[1]), max(s[2], s[3])));
  if (here == -__builtin_inff()) {  // it sees nothing of this chunk
    __builtin_memset(state.probabilities[query], 0, sizeof(state.probabilities[query]));
    state.rescale[query] = 1.0F;
    state.weight[query] = 0.0F;
    return;
  }
  const float before = state.largest[query];
  const float now = here > before ? here : before;
  Vec total = zero();
  Vec sum = zero();
  Vec most = zero();
  for (int j = 0; j < kKeyChunk / 16; ++j) {
    const Vec p = exp(sub(s[j], splat(here)));
    total = add(total, p);
    // A key that is hidden may have any scale, or none.
    const Vec scaled = mul(p, load(state.scales + 16 * j));
    s[j] = select_less(zero(), p, scaled, zero());
    sum = add(sum, s[j]);
    most = max(s[j], most);
  }
  // Their sum times kLargestCode stays below 2^31, also when each is rounded up.
  constexpr float kLargestSum = 2147483648.0F / kLargestCode - kKeyChunk;
  const float by_sum = kLargestSum / reduce_add(sum);  // NaN if a scale is
  const float by_largest = kLargestWord / reduce_max(most);
  // Infinite where values are zero: whatever the codes then are, they have no weight.
  const float factor = by_largest < by_sum ? by_largest : by_sum;
  const Vec factors = splat(factor);
  for (int step = 0; step < kKeyChunk / kStep; ++step) {
    store_ints(state.probabilities[query] + step * kStepBytes,
               round_to_words(mul(s[2 * step], factors), mul(s[2 * step + 1], factors)));
  }
  alignas(64) float change[16] = {before - now, here - now};
  store(change, exp(load(change)));
  state.rescale[query] = change[0];
  state.weight[query] = change[1] / factor;
  state.largest[query] = now;
  state.total[query] = state.total[query] * change[0] + change[1] * reduce_add(total);
}

// Adds the products of kQueries queries' probabilities with the values of keys [low, high) to one
// step of elements of their sums.
template <int kQueries>
inline void add_codes(IntegerState& state, Index first, Index step, Index low, Index high) {
  Ints sums[kQueries][2];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) sums[i][0] = sums[i][1] = splat_int(0);
  for (Index pair = low / 2; pair < high / 2; ++pair) {
    const Ints even = load_codes(state.pairs[step][pair]);
    const Ints odd = load_codes(state.pairs[step][pair] + kStepBytes);
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      const Ints p = splat_words(state.probabilities[first + i] + 4 * pair);
      sums[i][0] = dot_words(sums[i][0], even, p);
      sums[i][1] = dot_words(sums[i][1], odd, p);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    const Vec rescale = splat(state.rescale[first + i]);
    const Vec weight = splat(state.weight[first + i]);
    float* const to = state.sum(first + i) + step * kStep;
    for (int v = 0; v < 2; ++v) {
      store(to + 16 * v,
            multiply_add(to_float(sums[i][v]), weight, mul(load(to + 16 * v), rescale)));
    }
  }
}

// The keys [low, high) of one chunk, whole steps.
inline void attend_codes(
    IntegerState& state, const Attention& attention, Index chunk, Index low, Index high) {
  for (Index j = low; j < high; j += kStep) {
    for (Index k = 0; k < kStep; k += 2) code_pair(state, attention, chunk, j + k);
    turn_codes(state);
    for_groups<kQueryTile>(
        state.count, [&]<int kQueries>(Index first) { score_codes<kQueries>(state, first, j); });
  }
  for (Index i = 0; i < state.count; ++i) {
    soften_codes(state, i, chunk, attention.sink > 0);
  }
  for (Index step = 0; step < state.steps; ++step) {
    for_groups<kQueryTile>(state.count, [&]<int kQueries>(Index first) {
      add_codes<kQueries>(state, first, step, low, high);
    });
  }
}

// Codes of one query, of which elements that are not made are multiplied by k_norm.
inline void code_query(IntegerState& state, const Attention& attention, Index i, const float* x) {
  alignas(64) float scaled[kMaxHeadDim];
  const Index half = state.head_dim / 2;
  Vec most = zero();
  for (Index e = 0; e < state.head_dim; e += 16) {
    const Vec norm = e % half < state.made ? splat(state.made_norm) : load(attention.k_norm + e);
    const Vec v = mul(load(x + e), norm);
    store(scaled + e, v);
    most = max(absolute(v), most);
  }
  // Smaller ones are zero: what they are divided by has an inverse.
  float largest = reduce_max(most);
  if (!(largest > kSmallestQuery)) largest = kSmallestQuery;
  const Vec unit = splat(1.0F / largest);
  Vec squares = zero();
  for (Index e = 0; e < state.head_dim; e += 16) {
    const Vec v = mul(load(scaled + e), unit);
    squares = multiply_add(v, v, squares);
  }
  // |query codes| |key codes| < 2^31, with half a code of rounding for each element. NaN stays NaN.
  const float root = __builtin_sqrtf(static_cast<float>(state.head_dim));
  const float longest = 2147483648.0F / (kLargestCode * root) - 2.0F * root;
  const float length = __builtin_sqrtf(reduce_add(squares));  // of a query whose largest is 1
  const float by_length = longest / length;
  const float most_codes = by_length > kLargestWord ? kLargestWord : by_length;
  const Vec inverse = splat(most_codes);
  for (Index e = 0; e < state.head_dim; e += kStep) {
    const auto code = [&](Index at) { return mul(mul(load(scaled + at), unit), inverse); };
    store_ints(state.query(i) + 2 * e, round_to_words(code(e), code(e + 16)));
  }
  state.query_scale[i] = largest / most_codes * attention.scale;
}

inline void begin_integers(IntegerState& state,
                           const Attention& attention,
                           const AttentionPart& part) {
  const Index count = part.rows * part.heads;
  state.count = round_up(count, kQueryTile);
  state.head_dim = attention.head_dim;
  state.steps = attention.head_dim / kStep;
  state.made_norm = 0.0F;
  for (Index e = 0; e < state.made; ++e) {
    for (const Index at : {e, attention.head_dim / 2 + e}) {
      const float size = __builtin_fabsf(attention.k_norm[at]);
      if (size > state.made_norm) state.made_norm = size;
    }
  }
  if (state.made_norm < kSmallestRow) state.made_norm = 1.0F;
  alignas(64) const float zeros[kMaxHeadDim] = {};
  for (Index i = 0; i < state.count; ++i) {
    const Index row = part.first_row + (i < count ? i / part.heads : 0);
    const Index head = part.first_head + i % part.heads;
    const float* query = attention.queries + row * attention.stride + head * attention.head_dim;
    code_query(state, attention, i, i < count ? query : zeros);
    state.seen[i] = seen_by_query(attention, attention.first_position + row);
    state.largest[i] = -__builtin_inff();
    state.total[i] = 0.0F;
    for (Index e = 0; e < state.head_dim; e += 16) store(state.sum(i) + e, zero());
  }
}

inline void attend_integers(const Attention& attention, const AttentionPart& part) {
  IntegerState state(attention);
  begin_integers(state, attention, part);
  for_chunks_ahead(attention, part, state, [&](Index chunk, Index low, Index high) {
    attend_codes(state, attention, chunk, low, high);
  });
  finish_queries(state, attention, part);
}

inline Index max_queries(const Attention& attention) {
  return fits_integers(attention) ? kSharedQueries : kMaxQueries;
}

inline void attend_fast(const Attention& attention, const AttentionPart& part) {
  if (fits_integers(attention)) return attend_integers(attention, part);
  attend_in_vectors(attention, part);
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
