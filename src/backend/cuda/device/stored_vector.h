// Rows of the cache as kernels read them. Formats as in tensor/kv_format.h.
#pragma once

#include "backend/cuda/device/head_vector.h"
#include "backend/cuda/device/lattice.h"
#include "backend/cuda/device/params.h"

namespace kakeya::cuda::device {

// Where the vector of a kv head lies in the row of a position. Tables of blocks are there before a
// pass begins.
KAKEYA_DEVICE std::uint64_t vector_address(const CachedRows& rows,
                                           const std::uint64_t* blocks,
                                           std::int64_t position,
                                           std::int64_t head,
                                           bool early = false) {
  // In 32 bits: a card divides 64 bits in a hundred steps.
  const auto at = static_cast<std::uint32_t>(position);
  const auto sink = static_cast<std::uint32_t>(rows.sink);
  const auto ring = static_cast<std::uint32_t>(rows.capacity) - sink;
  const std::uint32_t slot = at < sink ? at : sink + (at - sink) % ring;
  const auto slots = static_cast<std::uint32_t>(rows.block_slots);
  const dev::Global<const std::uint64_t> table(blocks);
  const std::uint64_t block = early ? table.load_fresh(slot / slots) : table.load(slot / slots);
  const std::int64_t vector = slot % slots * rows.num_kv_heads + head;
  return block + static_cast<std::uint64_t>(vector * rows.vector_bytes);
}

// Where a row of several sequences stores the vector of a kv head; also before a launch has waited
// for the previous one.
KAKEYA_DEVICE std::uint64_t stored_address(const CachePlaces& to,
                                           bool are_keys,
                                           std::int64_t row,
                                           std::int64_t head) {
  const std::int64_t position = dev::Global<const std::int64_t>(to.positions).load_fresh(row);
  int s = 0;
  while (s + 1 < to.num_sequences && row >= to.sequences[s].end) ++s;
  const SequenceRows& own = to.sequences[s];
  CachedRows cache = to.cache;
  cache.capacity = own.capacity;
  return vector_address(cache, are_keys ? own.keys : own.values, position, head, /*early=*/true);
}

// A stored vector, read element by element.
class StoredVector {
 public:
  KAKEYA_DEVICE StoredVector(RowFormat format, int size, std::uint64_t address)
      : format_(format),
        size_(size),
        bytes_(reinterpret_cast<const std::uint8_t*>(address)),
        halves_(reinterpret_cast<const std::uint16_t*>(address)),
        words_(reinterpret_cast<const std::uint32_t*>(address)) {
    if (format == RowFormat::kE8) scale_ = dev::float_of(words_.load(0));
    if (format != RowFormat::kInt8) return;
    // Not aligned where heads have an odd size.
    std::uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(bytes_.load(i)) << (8 * i);
    scale_ = dev::float_of(bits);
  }

  // The factor of all elements of a rotated vector, once it is rotated back.
  KAKEYA_DEVICE float scale() const { return scale_; }

  // Element e; of a rotated vector, before hadamard() and scale() are applied.
  KAKEYA_DEVICE float load(int e) const {
    switch (format_) {
      case RowFormat::kF32:
        return dev::float_of(words_.load(e));
      case RowFormat::kBf16:
        return bf16_to_float(halves_.load(e));
      case RowFormat::kInt8:
        return scale_ * static_cast<float>(static_cast<std::int8_t>(bytes_.load(4 + e)));
      case RowFormat::kE8:
        break;
    }
    const int blocks = size_ / kE8Block;
    return e8_coordinate(words_.load(1 + e % blocks), e / blocks);
  }

 private:
  RowFormat format_;
  int size_;
  dev::Global<const std::uint8_t> bytes_;
  dev::Global<const std::uint16_t> halves_;
  dev::Global<const std::uint32_t> words_;
  float scale_ = 0.0F;
};

// The vector at `address`, by a warp. Rotated ones are rotated back, or stay as they are.
KAKEYA_DEVICE void load_vector(const Held& held,
                               const CachedRows& rows,
                               std::uint64_t address,
                               bool stays_rotated,
                               float (&x)[kHeld]) {
  const StoredVector stored(rows.format, held.size(), address);
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    if (!held.uses(k)) continue;
    const int e = held.element(k);
    x[k] = e < 0 ? 0.0F : stored.load(e);
  }
  if (rows.format != RowFormat::kE8) return;
  if (!stays_rotated) hadamard(held, x);
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    if (held.uses(k)) x[k] = x[k] * stored.scale();
  }
}

// Several vectors. Those of bf16 are all read before the first is used.
template <bool kBf16, int kCount>
KAKEYA_DEVICE void load_vectors(const Held& held,
                                const CachedRows& rows,
                                const std::uint64_t (&addresses)[kCount],
                                bool stay_rotated,
                                float (&x)[kCount][kHeld]) {
  if constexpr (!kBf16) {
    KAKEYA_UNROLL
    for (int j = 0; j < kCount; ++j) load_vector(held, rows, addresses[j], stay_rotated, x[j]);
  } else {
    std::uint16_t halves[kCount][kHeld] = {};
    KAKEYA_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const dev::Global<const std::uint16_t> stored(
          reinterpret_cast<const std::uint16_t*>(addresses[j]));
      KAKEYA_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        const int e = held.element(k);
        if (e >= 0) halves[j][k] = stored.load(e);
      }
    }
    KAKEYA_UNROLL
    for (int j = 0; j < kCount; ++j) {
      KAKEYA_UNROLL
      for (int k = 0; k < kHeld; ++k) x[j][k] = bf16_to_float(halves[j][k]);
    }
  }
}

}  // namespace kakeya::cuda::device
