// Attention of queries that see evicted rows, restored from codes. Meaning: RestoredRows in
// backend/batch.h. Each query restores the rows that it sees by itself.
#pragma once

#include "backend/cuda/device/attention.h"
#include "backend/cuda/device/norm.h"

namespace kakeya::cuda::device {

// Shared words of each warp, behind what attention has: a vector, or a code.
KAKEYA_DEVICE int restoring_words(std::int64_t rank) {
  return rank > kMaxHeadDim ? static_cast<int>(rank) : kMaxHeadDim;
}

// The keys and values of one head: those of positions [begin, end) are restored.
struct RestoringRows {
  static constexpr int kTogether = 1;
  using Places = StoredRows<Stored::kAnyType>::Places;
  const RestoredAttentionParams& p;
  StoredRows<Stored::kAnyType> stored;
  std::int64_t begin;
  std::int64_t end;
  dev::Shared<float> words;  // the warp's own

  // Restored rows are not rotated, so that none stays so.
  KAKEYA_DEVICE bool keys_stay_rotated() const { return false; }
  KAKEYA_DEVICE bool values_stay_rotated() const { return false; }

  // The places of a position; for one that is restored those of one that is kept, which nobody
  // looks at.
  KAKEYA_DEVICE Places places(std::int64_t position) const {
    return stored.places(is_restored(position) ? end : position);
  }

  KAKEYA_DEVICE void load_keys(const Places& own,
                               int first,
                               const std::int64_t (&positions)[1],
                               float (&x)[1][kHeld]) const {
    const std::int64_t position = positions[0];
    if (!is_restored(position)) return stored.load_keys(own, first, positions, false, x);
    restore(position, p.codes.keys, p.key_decoder, x[0]);
    const bool are_normed = p.attention.k_norm != nullptr;
    if (are_normed) norm(x[0]);
    if (stored.makes_keys()) round_as_stored(x[0]);
    if (are_normed) stored.multiply_by_norm(x[0]);
    stored.turn_key(position, x[0]);
    if (!stored.makes_keys()) round_as_stored(x[0]);
  }

  KAKEYA_DEVICE void load_values(const Places& own,
                                 int first,
                                 const std::int64_t (&positions)[1],
                                 float (&x)[1][kHeld]) const {
    const std::int64_t position = positions[0];
    if (!is_restored(position)) return stored.load_values(own, first, positions, false, x);
    restore(position, p.codes.values, p.value_decoder, x[0]);
    if (p.normalise_values) norm(x[0]);
    round_as_stored(x[0]);
  }

 private:
  KAKEYA_DEVICE bool is_restored(std::int64_t position) const {
    return position >= begin && position < end;
  }

  // The code at a position, into `words`.
  KAKEYA_DEVICE void load_code(std::int64_t position, const std::uint64_t* blocks) const {
    const std::uint64_t address = vector_address(p.codes, blocks, position, 0);
    const int rank = static_cast<int>(p.codes.head_dim);
    if (p.codes.format == RowFormat::kE8) {
      const Held held(rank);
      float code[kHeld] = {};
      load_vector(held, p.codes, address, false, code);
      KAKEYA_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const int r = held.element(k);
        if (r >= 0) words.store(r, code[k]);
      }
    } else {
      const StoredVector code(p.codes.format, rank, address);
      for (int r = dev::lane(); r < rank; r += dev::kWarp) words.store(r, code.load(r));
    }
    dev::sync_warp();
  }

  // Restores to `x`, about, what the projection would have given: fma by fma, as the rank ascends.
  KAKEYA_DEVICE void restore(std::int64_t position,
                             const std::uint64_t* codes,
                             const float* decoder,
                             float (&x)[kHeld]) const {
    load_code(position, codes);
    const Held& held = stored.held;
    const std::int64_t stride = p.attention.cache.num_kv_heads * held.size();
    const dev::Global<const float> rows(decoder + stored.head * held.size());
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) x[k] = 0.0F;
    for (int r = 0; r < static_cast<int>(p.codes.head_dim); ++r) {
      const float code = words.load(r);
      KAKEYA_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const int e = held.element(k);
        if (e >= 0) x[k] = dev::fma(code, rows.load(r * stride + e), x[k]);
      }
    }
    dev::sync_warp();
  }

  KAKEYA_DEVICE void norm(float (&x)[kHeld]) const {
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const int e = stored.held.element(k);
      if (e >= 0) words.store(e, x[k]);
    }
    dev::sync_warp();
    const float factor = norm_factor(
        [&](std::int64_t e) { return words.load(static_cast<int>(e)); }, stored.held.size(), p.eps);
    dev::sync_warp();
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) x[k] = x[k] * factor;
  }

  // Restored rows are as exact as stored ones where those are bf16.
  KAKEYA_DEVICE void round_as_stored(float (&x)[kHeld]) const {
    if (p.attention.cache.format != RowFormat::kBf16) return;
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) x[k] = bf16_to_float(float_to_bf16(x[k]));
  }
};

// A query also sees what is restored: all between the sinks and the kept rows.
KAKEYA_DEVICE Seen with_restored(Seen seen) {
  seen.sink_end = seen.begin;
  return seen;
}

KAKEYA_DEVICE RestoringRows restoring_rows(const RestoredAttentionParams& p, const Seen& seen) {
  return {p, stored_rows<Stored::kAnyType>(p.attention), seen.sink_end, seen.begin,
          dev::Shared<float>(kAttentionWords + dev::warp() * restoring_words(p.codes.head_dim))};
}

// Grid: heads, rows * spans.
KAKEYA_DEVICE void restored_attention(const RestoredAttentionParams& p) {
  const std::int64_t row = dev::block_y() / p.attention.spans;
  const auto at = row_positions<std::int64_t>(p.attention);
  const Seen seen = seen_by(p.attention, at, at.first + row);
  attend(p.attention, restoring_rows(p, seen), with_restored(seen), row);
}

// Joins the spans behind restored_attention() with more than one span. Grid: heads, rows.
KAKEYA_DEVICE void restored_attention_spans(const RestoredAttentionParams& p) {
  const auto at = row_positions<std::int64_t>(p.attention);
  const Seen seen = seen_by(p.attention, at, at.first + dev::block_y());
  add_spans(p.attention, restoring_rows(p, seen), with_restored(seen));
}

}  // namespace kakeya::cuda::device
