// Attention over rows of bf16 on tensor cores. A block takes 16 queries, of one kv head: those of
// its heads for a row, then of the next row. Queries are rounded to bf16, and so are keys that are
// made of values, and powers where they meet values.
//
// The order of sums: a score is the sum of the products of the first half of both vectors, sixteen
// after sixteen, plus that of the second half. Powers of a chunk of 64 keys are relative to its
// largest score, and are added up four by four, then pairs of lanes; values times powers sixteen
// keys after sixteen. How chunks come together: attention_parts.h. A key that a query does not see
// has the power 0, and products of zero and something finite change no sum. So what a query sees
// decides its sums, alone and beside others.
#pragma once

#include "backend/cuda/device/attention_tile.h"

namespace kakeya::cuda::device {

// Rows of a chunk that were stored before the pass, those of the pass, or both.
enum class ChunkRows { kOld = 1, kNew = 2, kAll = 3 };

template <bool kOneVector, int kMostElements>
class AttentionTile {
 public:
  KAKEYA_DEVICE AttentionTile(const AttentionParams& p, const QueryTile& tile)
      : p_(p),
        tile_(tile),
        words_{static_cast<int>(p.cache.head_dim), kOneVector},
        seen_(tile.seen_by_some()),
        own_seen_(tile.seen(own_query())) {}

  KAKEYA_DEVICE const SeenBy<int>& seen() const { return seen_; }

  // Before the first chunk. A warp has two queries.
  KAKEYA_DEVICE void load_queries() const {
    const dev::Global<const FourFloats> q(reinterpret_cast<const FourFloats*>(p_.queries));
    const dev::Shared<std::uint32_t> shared(0);
    const std::int64_t at[2] = {first_four(dev::warp()), first_four(dev::warp() + kAttentionWarps)};
    KAKEYA_NO_UNROLL
    for (int piece = dev::lane(); piece < words_.head_dim / 8; piece += dev::kWarp) {
      FourFloats fours[2][2] = {};
      KAKEYA_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (!tile_.has(dev::warp() + kAttentionWarps * half)) continue;
        fours[half][0] = q.load(at[half] + 2 * piece);
        fours[half][1] = q.load(at[half] + 2 * piece + 1);
      }
      KAKEYA_UNROLL
      for (int half = 0; half < 2; ++half) {
        float values[8];
        KAKEYA_UNROLL
        for (int j = 0; j < 8; ++j) values[j] = fours[half][j / 4].at[j % 4];
        FourWords pairs;
        dev::bf16_pairs(values, pairs.at);
        const int i = dev::warp() + kAttentionWarps * half;
        shared.store_as(i * words_.stride() + 4 * piece, pairs);
      }
    }
    if constexpr (kOneVector) load_derivation();
  }

  // Begins to bring rows of the chunk of 64 keys from `position` on that have been there since
  // before the pass.
  KAKEYA_DEVICE void begin_early(int position) const {
    share_addresses(position, true);
    dev::sync_block();
    copy_first_rows(ChunkRows::kOld);
  }
  // Those of the pass, behind the wait for the launches before.
  KAKEYA_DEVICE void begin_others() const { copy_first_rows(ChunkRows::kNew); }

  // Adds the chunk from `position` on, of which some query sees some, to a span. `begun`: its rows
  // are on their way.
  KAKEYA_DEVICE void add_chunk(int position, bool begun) {
    if (!begun) {
      share_addresses(position, false);
      dev::sync_block();
      copy_first_rows(ChunkRows::kAll);
    }
    dev::await_copies<0>();
    dev::sync_block();
    share_scores(position);
    dev::sync_block();
    if (!kOneVector && !words_.has_room_for_both()) {
      copy_rows(words_.addresses() + 2 * kChunk, words_.values(), kChunk, ChunkRows::kAll);
    }
    share_powers(position);
    dev::await_copies<0>();
    dev::sync_block();
    add_values();
    dev::sync_block();
  }

  // Adds the span to all before it, whose sums lie where the results will, and begins another one.
  KAKEYA_DEVICE void finish_span(Powers& all, bool is_first, bool is_last) {
    const dev::Shared<float> divisors(words_.factors() + 4 * kTileQueries);
    share_factors(2, all.join(span_));
    if (dev::lane() % 16 == 0) divisors.store(own_query(), all.total);
    span_ = {};
    dev::sync_block();
    const dev::Global<TwoFloats> out(reinterpret_cast<TwoFloats*>(p_.out));
    for_each_sum([&](int query, int column, const TwoFloats& sums) {
      const std::int64_t at = (tile_.vector(query) * words_.head_dim + column) / 2;
      const JoinFactors factors = query_factors(2, query);
      const TwoFloats before = is_first ? TwoFloats{} : out.load(at);
      TwoFloats joined;
      KAKEYA_UNROLL
      for (int i = 0; i < 2; ++i) {
        joined.at[i] = factors.join(before.at[i], sums.at[i]);
        if (is_last) joined.at[i] = joined.at[i] / divisors.load(query);
      }
      out.store(at, joined);
    });
  }

  // Writes the span's sums as those of a part.
  KAKEYA_DEVICE void write_part(int part) const {
    const dev::Global<float> partials(p_.partials);
    const auto place = [&](int i) { return part_place(p_, tile_.row(i), tile_.head(i), part); };
    if (dev::lane() % 16 == 0 && tile_.has(own_query())) {
      partials.store(place(own_query()), span_.largest);
      partials.store(place(own_query()) + 1, span_.total);
    }
    const dev::Global<TwoFloats> sums_of(reinterpret_cast<TwoFloats*>(p_.partials));
    for_each_sum([&](int query, int column, const TwoFloats& sums) {
      sums_of.store((place(query) + 2 + column) / 2, sums);
    });
  }

 private:
  // Where a query begins; 0, where there is none.
  KAKEYA_DEVICE std::int64_t first_four(int i) const {
    return tile_.has(i) ? tile_.vector(i) * words_.head_dim / 4 : 0;
  }

  // The query whose powers the lane makes, with 15 others.
  static KAKEYA_DEVICE int own_query() { return 2 * dev::warp() + dev::lane() / 16; }

  KAKEYA_DEVICE void load_derivation() const {
    const dev::Global<const float> norm(p_.k_norm);
    const dev::Global<const float> frequency(p_.frequencies);
    const dev::Shared<float> norms(words_.norms());
    const dev::Shared<float> frequencies(words_.frequencies());
    for (int i = dev::thread(); i < words_.head_dim; i += kAttentionThreads) {
      norms.store(i, norm.load(fragment_element(i)));
    }
    for (int i = dev::thread(); i < words_.head_dim / 2; i += kAttentionThreads) {
      const int e = fragment_element(i);
      frequencies.store(i, e < p_.num_frequencies ? frequency.load(e) : 0.0F);
    }
  }

  // For a key that nobody sees the last one that somebody sees: it is finite. The lowest bit of an
  // address says that the pass stores there.
  KAKEYA_DEVICE void share_addresses(int chunk, bool early) const {
    const int vectors = kOneVector ? kChunk : 2 * kChunk;
    const dev::Shared<std::uint32_t> addresses(words_.addresses());
    const int i = dev::thread();
    if (i >= vectors) return;
    const int own = chunk + i % kChunk;
    const int position = seen_.holds(own) ? own : seen_.end - 1;
    const bool is_key = !kOneVector && i < kChunk;
    const std::uint64_t address = vector_address(p_.cache, is_key ? p_.cache.keys : p_.cache.values,
                                                 position, tile_.kv_head, early);
    const std::uint32_t is_new = position < tile_.at.stored_end ? 0 : 1;
    addresses.store(2 * i, static_cast<std::uint32_t>(address) | is_new);
    addresses.store(2 * i + 1, static_cast<std::uint32_t>(address >> 32));
  }

  // Begins to copy what scores need, and values where there is room for both.
  KAKEYA_DEVICE void copy_first_rows(ChunkRows wanted) const {
    copy_rows(words_.addresses(), words_.rows(), words_.has_room_for_both() ? 2 * kChunk : kChunk,
              wanted);
  }
  // Begins to copy those that are wanted of `count` vectors, whose addresses are at a word, to
  // another word. A warp takes each eighth.
  KAKEYA_DEVICE void copy_rows(int from, int to, int count, ChunkRows wanted) const {
    const dev::Shared<std::uint32_t> addresses(from);
    const dev::CopyPolicy policy(false);
    KAKEYA_NO_UNROLL
    for (int row = dev::warp(); row < count; row += kAttentionWarps) {
      const std::uint32_t low = addresses.load(2 * row);
      if ((static_cast<std::uint32_t>(wanted) >> (low & 1U) & 1U) == 0) continue;
      const std::uint64_t address =
          (low & ~1U) | static_cast<std::uint64_t>(addresses.load(2 * row + 1)) << 32;
      KAKEYA_NO_UNROLL
      for (int piece = dev::lane(); piece < words_.head_dim / 8; piece += dev::kWarp) {
        dev::begin_copy(to + row * words_.stride() + 4 * piece,
                        reinterpret_cast<const FourWords*>(address), piece, policy);
      }
    }
    dev::end_copies();
  }

  // Each warp of eight keys.
  KAKEYA_DEVICE void share_scores(int chunk) const {
    const int first_key = 8 * dev::warp();
    float low[4] = {};
    float high[4] = {};
    if (seen_.meets(chunk + first_key, chunk + first_key + 8)) {
      const int own = chunk + first_key + dev::lane() / 4;
      const auto position = static_cast<float>(own);
      const int steps = words_.head_dim / 32;
      if constexpr (kOneVector) {
        KAKEYA_NO_UNROLL
        for (int step = 0; step < steps; ++step) add_scores(step, first_key, position, low, high);
      } else {
        KAKEYA_UNROLL_SOME
        for (int step = 0; step < steps; ++step) add_scores(step, first_key, position, low, high);
      }
    }
    const dev::Shared<float> scores(words_.scores());
    KAKEYA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int query = dev::lane() / 4 + i / 2 * 8;
      const int key = first_key + dev::lane() % 4 * 2 + i % 2;
      scores.store(query * kScoreStride + key, (low[i] + high[i]) * p_.scale);
    }
  }

  // Adds the products of sixteen elements of either half.
  KAKEYA_DEVICE void add_scores(
      int step, int first_key, float position, float (&low)[4], float (&high)[4]) const {
    const int half = words_.head_dim / 4;  // words
    const int matrix = dev::lane() / 8;
    const int query = dev::lane() % 16 * words_.stride() + dev::lane() / 16 * 4 + 8 * step;
    const int key = words_.rows() + (first_key + dev::lane() % 8) * words_.stride() +
                    matrix / 2 * half + matrix % 2 * 4 + 8 * step;
    std::uint32_t queries[2][4];
    std::uint32_t keys[4];
    dev::load_matrices(query, queries[0]);
    dev::load_matrices(query + half, queries[1]);
    dev::load_matrices(key, keys);
    if constexpr (kOneVector) make_keys(step, position, keys);
    const std::uint32_t pairs[2][2] = {{keys[0], keys[1]}, {keys[2], keys[3]}};
    dev::mma(low, queries[0], pairs[0]);
    dev::mma(high, queries[1], pairs[1]);
  }

  // Makes keys of values: a fragment of 16 elements of the first half and the 16 that are paired
  // with them.
  KAKEYA_DEVICE void make_keys(int step, float position, std::uint32_t (&pairs)[4]) const {
    const int at = 16 * step + dev::lane() % 4 * 4;
    const dev::Shared<float> norms(words_.norms());
    const FourFloats weights[2] = {norms.load_as<FourFloats>(at),
                                   norms.load_as<FourFloats>(at + words_.head_dim / 2)};
    float keys[8];
    KAKEYA_UNROLL
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t pair = pairs[i / 2];
      const float value = dev::float_of(i % 2 == 0 ? pair << 16 : pair & 0xffff0000U);
      keys[i] = value * weights[i / 4].at[i % 4];
    }
    if (16 * step < p_.num_frequencies) {
      const dev::Shared<float> shared(words_.frequencies());
      const auto frequencies = shared.load_as<FourFloats>(at);
      KAKEYA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const Turn by = near_turn_by(position * frequencies.at[i]);
        const float first = keys[i];
        const float second = keys[i + 4];
        keys[i] = first * by.cos - second * by.sin;
        keys[i + 4] = second * by.cos + first * by.sin;
      }
    }
    dev::bf16_pairs(keys, pairs);
  }

  // Each lane four keys of a query.
  KAKEYA_DEVICE void share_powers(int chunk) {
    const int key = dev::lane() % 16 * 4;
    const dev::Shared<float> scores(words_.scores());
    const auto own = scores.load_as<FourFloats>(own_query() * kScoreStride + key);
    float powers[4];
    Powers added;
    KAKEYA_UNROLL
    for (int i = 0; i < 4; ++i) {
      powers[i] = own_seen_.holds(chunk + key + i) ? own.at[i] : minus_infinity();
      if (powers[i] > added.largest) added.largest = powers[i];
    }
    KAKEYA_UNROLL
    for (int apart = 1; apart < 16; apart *= 2) {
      float other[1] = {added.largest};
      dev::warp_swap(other, apart);
      if (other[0] > added.largest) added.largest = other[0];
    }
    KAKEYA_UNROLL
    for (int i = 0; i < 4; ++i) powers[i] = near_power(powers[i], added.largest);
    added.total = (powers[0] + powers[1]) + (powers[2] + powers[3]);
    KAKEYA_UNROLL
    for (int apart = 1; apart < 16; apart *= 2) {
      float other[1] = {added.total};
      dev::warp_swap(other, apart);
      added.total = added.total + other[0];
    }
    // A score that is NaN has to show, however small its chunk is.
    if (added.total != added.total) added.largest = added.total;
    std::uint32_t pairs[2];
    dev::bf16_pairs(powers, pairs);
    const dev::Shared<std::uint32_t> shared(words_.powers());
    KAKEYA_UNROLL
    for (int i = 0; i < 2; ++i) {
      shared.store(own_query() * kPowerStride + key / 2 + i, pairs[i]);
    }
    share_factors(0, span_.join(added));
  }

  KAKEYA_DEVICE void share_factors(int place, const JoinFactors& factors) const {
    const dev::Shared<float> shared(words_.factors() + place * kTileQueries);
    if (dev::lane() % 16 != 0) return;
    shared.store(own_query(), factors.before);
    shared.store(own_query() + kTileQueries, factors.added);
  }
  KAKEYA_DEVICE JoinFactors query_factors(int place, int query) const {
    const dev::Shared<float> shared(words_.factors() + place * kTileQueries);
    return {shared.load(query), shared.load(query + kTileQueries)};
  }

  // Each warp every eighth sixteen columns.
  KAKEYA_DEVICE void add_values() {
    constexpr int kSteps = kChunk / 16;
    const int row = dev::lane() % 16;
    const int column = dev::lane() / 16 * 4;
    std::uint32_t powers[kSteps][4];
    // Not in a loop, which the compiler does not always unroll.
    const int own = words_.powers() + row * kPowerStride + column;
    dev::load_matrices(own, powers[0]);
    dev::load_matrices(own + 8, powers[1]);
    dev::load_matrices(own + 16, powers[2]);
    dev::load_matrices(own + 24, powers[3]);
    const JoinFactors factors[2] = {query_factors(0, dev::lane() / 4),
                                    query_factors(0, dev::lane() / 4 + 8)};
    KAKEYA_UNROLL
    for (int i = 0; i < kTurns; ++i) {
      const int pair = dev::warp() + kAttentionWarps * i;
      if (pair >= words_.head_dim / 16) continue;
      float added[2][4] = {};
      KAKEYA_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        std::uint32_t values[4];
        dev::load_matrices_turned(
            words_.values() + (16 * step + row) * words_.stride() + 8 * pair + column, values);
        const std::uint32_t pairs[2][2] = {{values[0], values[1]}, {values[2], values[3]}};
        dev::mma(added[0], powers[step], pairs[0]);
        dev::mma(added[1], powers[step], pairs[1]);
      }
      KAKEYA_UNROLL
      for (int j = 0; j < 8; ++j) {
        sums_[i][j] = factors[j / 2 % 2].join(sums_[i][j], added[j / 4][j % 4]);
      }
    }
  }

  // The lane's sums: of two queries, two columns each, in both halves of sixteen columns.
  template <typename Visit>
  KAKEYA_DEVICE void for_each_sum(const Visit& visit) const {
    KAKEYA_UNROLL
    for (int row = 0; row < 2; ++row) {
      const int query = dev::lane() / 4 + 8 * row;
      if (!tile_.has(query)) continue;
      KAKEYA_UNROLL
      for (int i = 0; i < kTurns; ++i) {
        const int pair = dev::warp() + kAttentionWarps * i;
        if (pair >= words_.head_dim / 16) continue;
        KAKEYA_UNROLL
        for (int half = 0; half < 2; ++half) {
          const TwoFloats sums = {{sums_[i][4 * half + 2 * row], sums_[i][4 * half + 2 * row + 1]}};
          visit(query, 16 * pair + 8 * half + dev::lane() % 4 * 2, sums);
        }
      }
    }
  }

  // How often a warp takes 16 columns of values.
  static constexpr int kTurns = kMostElements / 16 / kAttentionWarps;

  const AttentionParams& p_;
  QueryTile tile_;
  TileWords words_;
  SeenBy<int> seen_;      // by some query
  SeenBy<int> own_seen_;  // by own_query()
  Powers span_;           // of own_query()
  float sums_[kTurns][8] = {};
};

// Where the first span begins of which some keys are seen, and the one behind another one, if that
// is before the end.
KAKEYA_DEVICE int first_span(const SeenBy<int>& seen) {
  const int first = seen.sink_begin < seen.sink_end ? seen.sink_begin : seen.begin;
  return first / kTensorSpan * kTensorSpan;
}
KAKEYA_DEVICE int span_behind(const SeenBy<int>& seen, int span) {
  const int next = span + kTensorSpan;
  return next >= seen.end || seen.meets(next, next + kTensorSpan)
             ? next
             : seen.begin / kTensorSpan * kTensorSpan;
}

// The first chunk from `position` on of which some query sees some keys; `end`: there is none.
KAKEYA_DEVICE int first_chunk(const SeenBy<int>& seen, int position, int end) {
  int chunk = position;
  while (chunk < end && !seen.meets(chunk, chunk + kChunk)) chunk += kChunk;
  return chunk;
}
// Those of a part or a span that are from `position` on. `begun`: one whose rows are on their way.
template <typename Tile>
KAKEYA_DEVICE void add_chunks(Tile& tile, int position, int end, int begun = -1) {
  KAKEYA_NO_UNROLL
  for (int chunk = position; chunk < end; chunk += kChunk) {
    if (tile.seen().meets(chunk, chunk + kChunk)) tile.add_chunk(chunk, chunk == begun);
  }
}

template <bool kOneVector, int kMostElements>
KAKEYA_DEVICE void attend_in_tiles(const AttentionParams& p) {
  const QueryTile queries =
      query_tile(p, row_positions<int>(p), 1, static_cast<int>(dev::block_y()));
  AttentionTile<kOneVector, kMostElements> tile(p, queries);
  const SeenBy<int>& seen = tile.seen();
  tile.load_queries();
  Powers all;
  const int first = first_span(seen);
  KAKEYA_NO_UNROLL
  for (int span = first; span < seen.end;) {
    const int next = span_behind(seen, span);
    add_chunks(tile, span, span + kTensorSpan);
    tile.finish_span(all, span == first, next >= seen.end);
    span = next;
  }
}

// Rows of the cache are under way before the launches before have ended.
template <bool kOneVector, int kMostElements>
KAKEYA_DEVICE void attend_to_part(const AttentionParams& p, int block) {
  const auto parts = static_cast<int>(p.spans);
  const int part = block % parts;
  const auto at = row_positions<int>(p);
  const int position = parts_of(p, at).position(part);
  const int end = position + p.part_positions;
  AttentionTile<kOneVector, kMostElements> tile(p, query_tile(p, at, parts, block));
  const int first = first_chunk(tile.seen(), position, end);
  if (first < end) tile.begin_early(first);
  dev::wait_for_previous();
  dev::let_next_start();
  if (first >= end) return;
  tile.begin_others();
  tile.load_queries();
  add_chunks(tile, first, end, first);
  tile.write_part(part);
}

// All that the queries of a tile see, of heads of kNarrowHead elements at most; of more; of one
// vector. Grid: kv heads, tiles.
KAKEYA_DEVICE void tensor_attention(const AttentionParams& p) {
  attend_in_tiles<false, kNarrowHead>(p);
}
KAKEYA_DEVICE void wide_tensor_attention(const AttentionParams& p) {
  attend_in_tiles<false, kMaxHeadDim>(p);
}
KAKEYA_DEVICE void tensor_one_vector_attention(const AttentionParams& p) {
  attend_in_tiles<true, kMaxHeadDim>(p);
}

// A part of it. Grid: kv heads, tiles * parts.
KAKEYA_DEVICE void tensor_attention_part(const AttentionParams& p) {
  attend_to_part<false, kNarrowHead>(p, static_cast<int>(dev::block_y()));
}
KAKEYA_DEVICE void wide_tensor_attention_part(const AttentionParams& p) {
  attend_to_part<false, kMaxHeadDim>(p, static_cast<int>(dev::block_y()));
}
KAKEYA_DEVICE void tensor_one_vector_part(const AttentionParams& p) {
  attend_to_part<true, kMaxHeadDim>(p, static_cast<int>(dev::block_y()));
}

}  // namespace kakeya::cuda::device
