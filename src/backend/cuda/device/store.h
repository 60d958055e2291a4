// Rows into the cache: the bytes of encode_kv() in tensor/kv_format.h.
#pragma once

#include "backend/cuda/device/stored_vector.h"

namespace kakeya::cuda::device {

// Shared words of e8: the rotated vector, and numbers to be added in their order.
inline constexpr int kStoreWords = 2 * kMaxHeadDim + 1;

KAKEYA_DEVICE bool is_finite(float x) {
  return magnitude(x) < dev::float_of(0x7f800000U);
}

// The largest magnitude of a vector's elements, in all lanes; not a number if one of them is not
// finite.
KAKEYA_DEVICE float largest_magnitude(const dev::Global<const float>& x,
                                      std::int64_t from,
                                      std::int64_t head_dim) {
  float largest = 0.0F;
  float odd = 0.0F;  // 1 where some element is not finite
  for (std::int64_t e = dev::lane(); e < head_dim; e += dev::kWarp) {
    const float size = magnitude(x.load(from + e));
    if (size > largest) largest = size;
    if (!is_finite(size)) odd = 1.0F;
  }
  largest = dev::warp_max(largest);
  return dev::warp_max(odd) > 0.0F ? dev::float_of(0x7fc00000U) : largest;
}

KAKEYA_DEVICE void store_int8(const dev::Global<const float>& x,
                              std::int64_t from,
                              std::int64_t head_dim,
                              const dev::Global<std::uint8_t>& out) {
  const float largest = largest_magnitude(x, from, head_dim);
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

// terms[0] + terms[1] + ..., ascending as on the host, in all lanes.
KAKEYA_DEVICE float sum_in_order(const dev::Shared<float>& terms, int count) {
  dev::sync_warp();
  if (dev::lane() == 0) {
    float sum = 0.0F;
    for (int i = 0; i < count; ++i) sum = sum + terms.load(i);
    terms.store(kMaxHeadDim, sum);
  }
  dev::sync_warp();
  const float sum = terms.load(kMaxHeadDim);
  dev::sync_warp();  // before the next terms
  return sum;
}

// A vector of `size`, rotated, in shared memory.
struct RotatedVector {
  int size;
  dev::Shared<float> elements;
  dev::Shared<float> terms;

  KAKEYA_DEVICE int blocks() const { return size / kE8Block; }

  KAKEYA_DEVICE BlockCode encode(int block, float step) const {
    float z[kE8Block];
    KAKEYA_UNROLL
    for (int i = 0; i < kE8Block; ++i) z[i] = elements.load(blocks() * i + block) / step;
    return e8_block(z);
  }

  // The squared error of codes with this step.
  KAKEYA_DEVICE float error(float step) const {
    for (int block = dev::lane(); block < blocks(); block += dev::kWarp) {
      terms.store(block, encode(block, step).distance);
    }
    return sum_in_order(terms, blocks()) * step * step;
  }
};

// Stores a vector as e8 with the better of two steps, the one that has the smaller error: one
// suits a normal distribution, at the other nothing is out of range.
KAKEYA_DEVICE void store_e8(const dev::Global<const float>& x,
                            std::int64_t from,
                            int size,
                            std::uint64_t address) {
  const RotatedVector y = {size, dev::Shared<float>(0), dev::Shared<float>(kMaxHeadDim)};
  const float largest = largest_magnitude(x, from, size);
  const bool has_codes = largest > 0.0F;  // not of zeros, and not of what is not a number
  float step = 1.0F;
  if (has_codes) {
    const Held held(size);
    float scaled[kHeld] = {};
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const int e = held.element(k);
      if (e >= 0) scaled[k] = x.load(from + e) / largest;
    }
    hadamard(held, scaled);
    float most = 0.0F;
    KAKEYA_UNROLL
    for (int k = 0; k < kHeld; ++k) {
      const int e = held.element(k);
      if (e < 0) continue;
      y.elements.store(e, scaled[k]);
      y.terms.store(e, scaled[k] * scaled[k]);
      if (magnitude(scaled[k]) > most) most = magnitude(scaled[k]);
    }
    const float covering = dev::warp_max(most) / kE8Reach;
    const float squares = sum_in_order(y.terms, size);
    const float normal = kE8NormalStep * dev::sqrt(squares / static_cast<float>(size));
    const float normal_error = y.error(normal);
    step = y.error(covering) < normal_error ? covering : normal;
  }
  const dev::Global<std::uint32_t> words(reinterpret_cast<std::uint32_t*>(address));
  for (int block = dev::lane(); block < y.blocks(); block += dev::kWarp) {
    words.store(1 + block, has_codes ? y.encode(block, step).code : 0);
  }
  if (dev::lane() == 0) words.store(0, dev::bits_of(has_codes ? step * largest : largest));
}

// A warp a vector. Grid: kv heads, rows.
KAKEYA_DEVICE void store(const StoreParams& p) {
  const CachedRows& cache = p.to.cache;
  const std::int64_t head_dim = cache.head_dim;
  const std::int64_t from = (dev::block_y() * cache.num_kv_heads + dev::block_x()) * head_dim;
  const std::uint64_t address = stored_address(p.to, p.are_keys, dev::block_y(), dev::block_x());
  const dev::Global<const float> x(p.rows);
  const dev::Global<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(address));
  if (cache.format == RowFormat::kE8) {
    store_e8(x, from, static_cast<int>(head_dim), address);
  } else if (cache.format == RowFormat::kInt8) {
    store_int8(x, from, head_dim, bytes);
  } else if (cache.format == RowFormat::kBf16) {
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

}  // namespace kakeya::cuda::device
