// Rows of the cache, and attention over them. The order of attention's sums: chunks of 64 keys that
// begin at multiples of 64 positions, each by itself, merged into what came before it. A chunk of
// which a query sees nothing is left out, and what it does not see of others counts for nothing, so
// its sums are the same alone and beside other rows.
#pragma once

#include "backend/cuda/device/math.h"
#include "backend/cuda/device/params.h"

namespace kakeya::cuda::device {

inline constexpr int kChunk = 64;  // keys, and threads of a block
inline constexpr int kMaxHeadDim = 512;
inline constexpr int kOwnElements = kMaxHeadDim / kChunk;
// Shared words: probabilities, addresses of rows in two halves, two largest scores, two sums.
inline constexpr int kAttentionWords = 3 * kChunk + 4;

// Where the vector of a kv head lies in the row of a position.
KAKEYA_DEVICE std::uint64_t vector_address(const CachedRows& rows,
                                           const std::uint64_t* blocks,
                                           std::int64_t position,
                                           std::int64_t head) {
  const std::int64_t slot = position < rows.sink
                                ? position
                                : rows.sink + (position - rows.sink) % (rows.capacity - rows.sink);
  const std::uint64_t block =
      dev::Global<const std::uint64_t>(blocks).load(slot / rows.block_slots);
  return block + static_cast<std::uint64_t>((slot % rows.block_slots * rows.num_kv_heads + head) *
                                            rows.vector_bytes);
}

// A stored vector, read element by element. Formats as in tensor/kv_format.h.
class StoredVector {
 public:
  KAKEYA_DEVICE StoredVector(RowFormat format, std::uint64_t address)
      : format_(format),
        bytes_(reinterpret_cast<const std::uint8_t*>(address)),
        halves_(reinterpret_cast<const std::uint16_t*>(address)),
        floats_(reinterpret_cast<const float*>(address)) {
    if (format != RowFormat::kInt8) return;
    // Not aligned where heads have an odd size.
    std::uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(bytes_.load(i)) << (8 * i);
    scale_ = dev::float_of(bits);
  }

  KAKEYA_DEVICE float load(std::int64_t e) const {
    switch (format_) {
      case RowFormat::kF32:
        return floats_.load(e);
      case RowFormat::kBf16:
        return bf16_to_float(halves_.load(e));
      case RowFormat::kInt8:
        return scale_ * static_cast<float>(static_cast<std::int8_t>(bytes_.load(4 + e)));
      case RowFormat::kInt4:
        break;
    }
    const std::int64_t group = e / 32 * 18;
    const std::int64_t i = e % 32;
    const unsigned fields = bytes_.load(group + 2 + i % 16);
    const int code = static_cast<int>(i < 16 ? fields & 15U : fields >> 4) - 8;
    return bf16_to_float(halves_.load(group / 2)) * static_cast<float>(code);
  }

 private:
  RowFormat format_;
  dev::Global<const std::uint8_t> bytes_;
  dev::Global<const std::uint16_t> halves_;
  dev::Global<const float> floats_;
  float scale_ = 0.0F;
};

KAKEYA_DEVICE bool is_finite(float x) {
  return magnitude(x) < dev::float_of(0x7f800000U);
}

KAKEYA_DEVICE float rounded_within(float x, float low, float high) {
  const float rounded = dev::round_even(x);
  return rounded < low ? low : rounded > high ? high : rounded;
}

KAKEYA_DEVICE void store_int8(const dev::Global<const float>& x,
                              std::int64_t from,
                              std::int64_t head_dim,
                              const dev::Global<std::uint8_t>& out) {
  const float not_a_number = dev::float_of(0x7fc00000U);
  float largest = 0.0F;
  float odd = 0.0F;  // 1 where some element is not finite
  for (std::int64_t e = dev::lane(); e < head_dim; e += dev::kWarp) {
    const float size = magnitude(x.load(from + e));
    if (size > largest) largest = size;
    if (!is_finite(size)) odd = 1.0F;
  }
  largest = dev::warp_max(largest);
  if (dev::warp_max(odd) > 0.0F) largest = not_a_number;
  const bool codes = largest > 0.0F;
  for (std::int64_t e = dev::lane(); e < head_dim; e += dev::kWarp) {
    const float code =
        codes ? rounded_within(x.load(from + e) / largest * 127.0F, -127.0F, 127.0F) : 0.0F;
    out.store(4 + e, static_cast<std::uint8_t>(static_cast<std::int8_t>(code)));
  }
  if (dev::lane() >= 4) return;
  const std::uint32_t scale = dev::bits_of(largest / 127.0F);
  out.store(dev::lane(), static_cast<std::uint8_t>(scale >> (8 * dev::lane())));
}

// A group of 32: the element of the largest magnitude, the first of equal ones, becomes -8.
KAKEYA_DEVICE void store_int4_group(const dev::Global<const float>& x,
                                    std::int64_t from,
                                    const dev::Global<std::uint8_t>& out,
                                    std::int64_t to) {
  float extreme = 0.0F;
  for (int i = 0; i < 32; ++i) {
    const float value = x.load(from + i);
    if (!is_finite(value)) extreme = dev::float_of(0x7fc00000U);
    if (magnitude(value) > magnitude(extreme)) extreme = value;
  }
  const std::uint16_t stored = float_to_bf16(extreme / -8.0F);
  const float scale = bf16_to_float(stored);
  const bool codes = is_finite(scale) && scale != 0.0F;
  out.store(to, static_cast<std::uint8_t>(stored));
  out.store(to + 1, static_cast<std::uint8_t>(stored >> 8));
  for (int i = 0; i < 16; ++i) {
    const auto field = [&](int index) {
      const float code = codes ? rounded_within(x.load(from + index) / scale, -8.0F, 7.0F) : 0.0F;
      return static_cast<unsigned>(static_cast<int>(code) + 8);
    };
    out.store(to + 2 + i, static_cast<std::uint8_t>(field(i) | field(i + 16) << 4));
  }
}

// A warp a vector. Grid: kv heads, rows.
KAKEYA_DEVICE void store(const StoreParams& p) {
  const std::int64_t head_dim = p.cache.head_dim;
  const std::int64_t from = (dev::block_y() * p.cache.num_kv_heads + dev::block_x()) * head_dim;
  const std::uint64_t address =
      vector_address(p.cache, p.blocks, p.first_position + dev::block_y(), dev::block_x());
  const dev::Global<const float> x(p.rows);
  const dev::Global<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(address));
  if (p.cache.format == RowFormat::kInt8) {
    store_int8(x, from, head_dim, bytes);
  } else if (p.cache.format == RowFormat::kInt4) {
    for (std::int64_t group = dev::lane(); group < head_dim / 32; group += dev::kWarp) {
      store_int4_group(x, from + group * 32, bytes, group * 18);
    }
  } else if (p.cache.format == RowFormat::kBf16) {
    const dev::Global<std::uint16_t> out(reinterpret_cast<std::uint16_t*>(address));
    for (std::int64_t e = dev::lane(); e < head_dim; e += dev::kWarp) {
      out.store(e, float_to_bf16(x.load(from + e)));
    }
  } else {
    const dev::Global<float> out(reinterpret_cast<float*>(address));
    for (std::int64_t e = dev::lane(); e < head_dim; e += dev::kWarp) {
      out.store(e, x.load(from + e));
    }
  }
}

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

// The product of a query [E] with a key, pair after pair of elements that rotate together.
KAKEYA_DEVICE float score_of(const AttentionParams& p,
                             const dev::Global<const float>& q,
                             std::int64_t query,
                             std::int64_t position,
                             std::int64_t head) {
  const bool stored = p.cache.keys != nullptr;
  const StoredVector key(
      p.cache.format,
      vector_address(p.cache, stored ? p.cache.keys : p.cache.values, position, head));
  const std::int64_t head_dim = p.cache.head_dim;
  const dev::Global<const float> norm(p.k_norm);
  const dev::Global<const float> frequencies(p.frequencies);
  const std::int64_t half = head_dim / 2;
  float score = 0.0F;
  for (std::int64_t i = 0; i < half; ++i) {
    float low = key.load(i);
    float high = key.load(i + half);
    if (!stored) {
      low = low * norm.load(i);
      high = high * norm.load(i + half);
      if (i < p.num_frequencies) {
        const Turn turn = turn_by(static_cast<float>(position) * frequencies.load(i));
        const float turned = low * turn.cos - high * turn.sin;
        high = high * turn.cos + low * turn.sin;
        low = turned;
      }
    }
    score = dev::fma(q.load(query + i), low, score);
    score = dev::fma(q.load(query + i + half), high, score);
  }
  if (head_dim % 2 != 0) {
    const std::int64_t e = head_dim - 1;
    score = dev::fma(q.load(query + e), stored ? key.load(e) : key.load(e) * norm.load(e), score);
  }
  return score * p.scale;
}

// What was seen so far: the largest score, the sum of powers, and weighted values, of which thread
// t has elements t + 64 i. The first two are the same in all threads.
struct Attended {
  float largest;
  float total;
  float values[kOwnElements];
};

// Adds a chunk whose scores the threads have, of keys that the query sees.
KAKEYA_DEVICE void attend_chunk(
    const AttentionParams& p, float score, bool visible, std::uint64_t address, Attended& all) {
  const dev::Shared<float> powers(0);
  const dev::Shared<std::uint32_t> low(kChunk);
  const dev::Shared<std::uint32_t> high(2 * kChunk);
  const dev::Shared<float> of_warps(3 * kChunk);
  const float minus_infinity = dev::float_of(0xff800000U);
  const int own = dev::thread();
  const float warp_largest = dev::warp_max(visible ? score : minus_infinity);
  if (dev::lane() == 0) of_warps.store(dev::warp(), warp_largest);
  low.store(own, static_cast<std::uint32_t>(address));
  high.store(own, static_cast<std::uint32_t>(address >> 32));
  dev::sync_block();
  const float first = of_warps.load(0);
  const float second = of_warps.load(1);
  const float largest = first > second ? first : second;
  float power[1] = {visible ? static_cast<float>(device::exp(static_cast<double>(score) - largest))
                            : 0.0F};
  powers.store(own, power[0]);
  dev::warp_sums(power);
  if (dev::lane() == 0) of_warps.store(2 + dev::warp(), power[0]);
  dev::sync_block();
  const float total = of_warps.load(2) + of_warps.load(3);
  float sums[kOwnElements] = {};
  for (int j = 0; j < kChunk; ++j) {
    const std::uint64_t row = low.load(j) | static_cast<std::uint64_t>(high.load(j)) << 32;
    if (row == 0) continue;  // not seen
    const StoredVector value(p.cache.format, row);
    const float weight = powers.load(j);
    KAKEYA_UNROLL
    for (int i = 0; i < kOwnElements; ++i) {
      const int e = own + kChunk * i;
      if (e < p.cache.head_dim) sums[i] = dev::fma(weight, value.load(e), sums[i]);
    }
  }
  const float both = largest > all.largest ? largest : all.largest;
  const auto before = static_cast<float>(device::exp(static_cast<double>(all.largest) - both));
  const auto now = static_cast<float>(device::exp(static_cast<double>(largest) - both));
  all.largest = both;
  all.total = dev::fma(total, now, all.total * before);
  KAKEYA_UNROLL
  for (int i = 0; i < kOwnElements; ++i) {
    all.values[i] = dev::fma(sums[i], now, all.values[i] * before);
  }
  dev::sync_block();  // before the next chunk's scores
}

// A block a query of one head. Grid: heads, rows.
KAKEYA_DEVICE void attention(const AttentionParams& p) {
  const std::int64_t head = dev::block_x();
  const std::int64_t kv_head = head / (p.num_heads / p.cache.num_kv_heads);
  const std::int64_t query = (dev::block_y() * p.num_heads + head) * p.cache.head_dim;
  const Seen seen = seen_by(p, p.first_position + dev::block_y());
  const dev::Global<const float> q(p.queries);
  Attended all = {dev::float_of(0xff800000U), 0.0F, {}};
  for (std::int64_t first = seen.sink_begin / kChunk * kChunk; first < seen.end; first += kChunk) {
    if (!seen.meets(first, first + kChunk)) continue;
    const std::int64_t position = first + dev::thread();
    const bool visible = seen.holds(position);
    const float score = visible ? score_of(p, q, query, position, kv_head) : 0.0F;
    const std::uint64_t address =
        visible ? vector_address(p.cache, p.cache.values, position, kv_head) : 0;
    attend_chunk(p, score, visible, address, all);
  }
  const dev::Global<float> out(p.out);
  KAKEYA_UNROLL
  for (int i = 0; i < kOwnElements; ++i) {
    const int e = dev::thread() + kChunk * i;
    if (e < p.cache.head_dim) out.store(query + e, all.values[i] / all.total);
  }
}

}  // namespace kakeya::cuda::device
