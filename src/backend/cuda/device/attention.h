// Attention over rows of the cache. The order of its sums: chunks of 64 keys that begin at
// multiples of 64 positions, each by itself, merged into what came before it; of the keys of a
// chunk each of two warps adds up its half. A chunk of which a query sees nothing is left out, and
// what it does not see of others counts for nothing, so its sums are the same alone and beside
// other rows.
//
// Products of rotated vectors are those of the vectors themselves. So a query meets rotated keys
// rotated, and sums of rotated values are rotated back once, at the end.
#pragma once

#include "backend/cuda/device/stored_vector.h"

namespace kakeya::cuda::device {

inline constexpr int kChunk = 64;  // keys, and threads of a block
// Shared words: probabilities; two largest scores; two sums; a vector.
inline constexpr int kWarpsWord = kChunk;
inline constexpr int kVectorWord = kWarpsWord + 4;
inline constexpr int kAttentionWords = kVectorWord + kMaxHeadDim;

// What a query sees, as AttentionInput::seen() says.
struct Seen {
  std::int64_t sink_begin;
  std::int64_t sink_end;
  std::int64_t begin;
  std::int64_t end;

  KAKEYA_DEVICE bool holds(std::int64_t position) const {
    return (position >= sink_begin && position < sink_end) || (position >= begin && position < end);
  }
  KAKEYA_DEVICE bool meets(std::int64_t first, std::int64_t last) const {
    return (sink_begin < sink_end && first < sink_end && last > sink_begin) ||
           (first < end && last > begin);
  }
};

KAKEYA_DEVICE std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

KAKEYA_DEVICE Seen seen_by(const AttentionParams& p, std::int64_t position) {
  const std::int64_t first = p.window == 0 ? 0 : larger(0, position - p.window + 1);
  const std::int64_t begin = p.kept == 0 ? first : larger(first, position - p.kept + 1);
  const std::int64_t sink = p.cache.sink < begin ? p.cache.sink : begin;
  return {first, larger(first, sink), begin, larger(position + 1, p.block_end)};
}

// The keys and values of one head that were stored.
struct StoredRows {
  const AttentionParams& p;
  std::int64_t head;
  Held held;

  KAKEYA_DEVICE bool makes_keys() const { return p.cache.keys == nullptr; }
  KAKEYA_DEVICE bool keys_stay_rotated() const {
    return is_rotated(p.cache.format) && !makes_keys();
  }
  KAKEYA_DEVICE bool values_stay_rotated() const { return is_rotated(p.cache.format); }

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

  KAKEYA_DEVICE void load_key(std::int64_t position, bool stays_rotated, float (&x)[kHeld]) const {
    const std::uint64_t* const blocks = makes_keys() ? p.cache.values : p.cache.keys;
    load_vector(held, p.cache, vector_address(p.cache, blocks, position, head), stays_rotated, x);
    if (!makes_keys()) return;
    multiply_by_norm(x);
    turn_key(position, x);
  }
  KAKEYA_DEVICE void load_key(std::int64_t position, float (&x)[kHeld]) const {
    load_key(position, keys_stay_rotated(), x);
  }
  KAKEYA_DEVICE void load_value(std::int64_t position,
                                bool stays_rotated,
                                float (&x)[kHeld]) const {
    load_vector(held, p.cache, vector_address(p.cache, p.cache.values, position, head),
                stays_rotated, x);
  }
  KAKEYA_DEVICE void load_value(std::int64_t position, float (&x)[kHeld]) const {
    load_value(position, values_stay_rotated(), x);
  }
};

// A query of one head, as the threads of its block know it, and where it finds keys and values.
template <typename Rows>
struct Query {
  const Rows& rows;
  Seen seen;
  Held held;
  float scale;
  float elements[kHeld];
};

// What was seen so far: the largest score and the sum of powers, the same in all threads, and
// values weighted by them, of the keys of the own warp.
struct Attended {
  float largest;
  float total;
  float values[kHeld];
};

// The first of a warp's keys in the chunk that begins at `first`.
KAKEYA_DEVICE std::int64_t first_key(std::int64_t first) {
  return first + dev::kWarp * dev::warp();
}

// The score of each thread's key in a chunk; minus infinity where the query does not see it.
template <typename Rows>
KAKEYA_DEVICE float own_score(const Query<Rows>& query, std::int64_t first) {
  float score = dev::float_of(0xff800000U);
  for (int j = 0; j < dev::kWarp; ++j) {
    const std::int64_t position = first_key(first) + j;
    if (!query.seen.holds(position)) continue;
    float key[kHeld] = {};
    query.rows.load_key(position, key);
    const float product = dot(query.held, query.elements, key);
    if (dev::lane() == j) score = product * query.scale;
  }
  return score;
}

// Adds the chunk that begins at `first`, of which the query sees some keys.
template <typename Rows>
KAKEYA_DEVICE void attend_chunk(const Query<Rows>& query, std::int64_t first, Attended& all) {
  const dev::Shared<float> powers(0);
  const dev::Shared<float> of_warps(kWarpsWord);
  const float score = own_score(query, first);
  const float warp_largest = dev::warp_max(score);
  if (dev::lane() == 0) of_warps.store(dev::warp(), warp_largest);
  dev::sync_block();
  const float one = of_warps.load(0);
  const float other = of_warps.load(1);
  const float largest = one > other ? one : other;
  // Of a score that is minus infinity: 0.
  float power[1] = {static_cast<float>(device::exp(static_cast<double>(score) - largest))};
  powers.store(dev::thread(), power[0]);
  dev::warp_sums(power);
  if (dev::lane() == 0) of_warps.store(2 + dev::warp(), power[0]);
  dev::sync_block();
  const float total = of_warps.load(2) + of_warps.load(3);
  float sums[kHeld] = {};
  for (int j = 0; j < dev::kWarp; ++j) {
    const std::int64_t position = first_key(first) + j;
    if (!query.seen.holds(position)) continue;
    float value[kHeld] = {};
    query.rows.load_value(position, value);
    const float weight = powers.load(dev::kWarp * dev::warp() + j);
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      if (query.held.uses(k)) sums[k] = dev::fma(weight, value[k], sums[k]);
    }
  }
  const float both = largest > all.largest ? largest : all.largest;
  const auto before = static_cast<float>(device::exp(static_cast<double>(all.largest) - both));
  const auto now = static_cast<float>(device::exp(static_cast<double>(largest) - both));
  all.largest = both;
  all.total = dev::fma(total, now, all.total * before);
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    if (query.held.uses(k)) all.values[k] = dev::fma(sums[k], now, all.values[k] * before);
  }
  dev::sync_block();  // before the next chunk's scores
}

// By a block, one query of a head.
template <typename Rows>
KAKEYA_DEVICE void attend(const AttentionParams& p, const Rows& rows, const Seen& seen) {
  const Held held(static_cast<int>(p.cache.head_dim));
  const std::int64_t at = (dev::block_y() * p.num_heads + dev::block_x()) * p.cache.head_dim;
  Query<Rows> query = {rows, seen, held, p.scale, {}};
  const dev::Global<const float> q(p.queries);
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int e = held.element(k);
    if (e >= 0) query.elements[k] = q.load(at + e);
  }
  if (rows.keys_stay_rotated()) hadamard(held, query.elements);
  Attended all = {dev::float_of(0xff800000U), 0.0F, {}};
  for (std::int64_t first = seen.sink_begin / kChunk * kChunk; first < seen.end; first += kChunk) {
    if (seen.meets(first, first + kChunk)) attend_chunk(query, first, all);
  }
  // The second warp hands its sums to the first.
  const dev::Shared<float> others(kVectorWord);
  if (dev::warp() == 1) {
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      if (held.uses(k)) others.store(dev::kWarp * k + dev::lane(), all.values[k]);
    }
  }
  dev::sync_block();
  if (dev::warp() == 1) return;
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    if (!held.uses(k)) continue;
    all.values[k] = (all.values[k] + others.load(dev::kWarp * k + dev::lane())) / all.total;
  }
  if (rows.values_stay_rotated()) hadamard(held, all.values);
  const dev::Global<float> out(p.out);
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int e = held.element(k);
    if (e >= 0) out.store(at + e, all.values[k]);
  }
}

// The kv head of the block's query.
KAKEYA_DEVICE std::int64_t own_kv_head(const AttentionParams& p) {
  return dev::block_x() / (p.num_heads / p.cache.num_kv_heads);
}

// Grid: heads, rows.
KAKEYA_DEVICE void attention(const AttentionParams& p) {
  const StoredRows rows = {p, own_kv_head(p), Held(static_cast<int>(p.cache.head_dim))};
  attend(p, rows, seen_by(p, p.first_position + dev::block_y()));
}

}  // namespace kakeya::cuda::device
