// Rows into the cache: the bytes of encode_kv() in tensor/kv_format.h.
#pragma once

#include "backend/cuda/device/stored_vector.h"

namespace kakeya::cuda::device {

// Shared words of rotated formats: the rotated vector, and numbers to be added in their order.
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
  RowFormat format;
  int size;
  dev::Shared<float> elements;
  dev::Shared<float> terms;

  KAKEYA_DEVICE int blocks() const { return size / block_elements(format); }

  // Elements `block` + blocks() * i, in steps.
  template <int kSize>
  KAKEYA_DEVICE void load_block(int block, float step, float (&z)[kSize]) const {
    KAKEYA_UNROLL
    for (int i = 0; i < kSize; ++i) z[i] = elements.load(size / kSize * i + block) / step;
  }

  KAKEYA_DEVICE BlockCode encode(int block, float step) const {
    if (format == RowFormat::kE8) {
      float z[8];
      load_block(block, step, z);
      return e8_block(z);
    }
    if (format == RowFormat::kD4) {
      float z[4];
      load_block(block, step, z);
      return d4_block(z);
    }
    float z[2];
    load_block(block, step, z);
    return int4_block(z);
  }

  // The squared error of codes with this step.
  KAKEYA_DEVICE float error(float step) const {
    for (int block = dev::lane(); block < blocks(); block += dev::kWarp) {
      terms.store(block, encode(block, step).distance);
    }
    return sum_in_order(terms, blocks()) * step * step;
  }
};

KAKEYA_DEVICE void store_code(RowFormat format,
                              std::uint64_t address,
                              int block,
                              std::uint32_t code) {
  if (format == RowFormat::kE8) {
    dev::Global<std::uint32_t>(reinterpret_cast<std::uint32_t*>(address)).store(1 + block, code);
  } else if (format == RowFormat::kD4) {
    dev::Global<std::uint16_t>(reinterpret_cast<std::uint16_t*>(address))
        .store(2 + block, static_cast<std::uint16_t>(code));
  } else {
    dev::Global<std::uint8_t>(reinterpret_cast<std::uint8_t*>(address))
        .store(4 + block, static_cast<std::uint8_t>(code));
  }
}

// Stores a rotated vector with the better of two steps, the one that has the smaller error: one
// suits a normal distribution, at the other nothing is out of range.
KAKEYA_DEVICE void store_rotated(RowFormat format,
                                 const dev::Global<const float>& x,
                                 std::int64_t from,
                                 int size,
                                 std::uint64_t address) {
  const RotatedVector y = {format, size, dev::Shared<float>(0), dev::Shared<float>(kMaxHeadDim)};
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
    const float covering = dev::warp_max(most) / reach(format);
    const float squares = sum_in_order(y.terms, size);
    const float normal = normal_step(format) * dev::sqrt(squares / static_cast<float>(size));
    const float normal_error = y.error(normal);
    step = y.error(covering) < normal_error ? covering : normal;
  }
  for (int block = dev::lane(); block < y.blocks(); block += dev::kWarp) {
    store_code(format, address, block, has_codes ? y.encode(block, step).code : 0);
  }
  if (dev::lane() != 0) return;
  dev::Global<std::uint32_t>(reinterpret_cast<std::uint32_t*>(address))
      .store(0, dev::bits_of(has_codes ? step * largest : largest));
}

// A warp a vector. Grid: kv heads, rows.
KAKEYA_DEVICE void store(const StoreParams& p) {
  const CachedRows& cache = p.to.cache;
  const std::int64_t head_dim = cache.head_dim;
  const std::int64_t from = (dev::block_y() * cache.num_kv_heads + dev::block_x()) * head_dim;
  const std::uint64_t address = stored_address(p.to, p.are_keys, dev::block_y(), dev::block_x());
  const dev::Global<const float> x(p.rows);
  const dev::Global<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(address));
  if (is_rotated(cache.format)) {
    store_rotated(cache.format, x, from, static_cast<int>(head_dim), address);
  } else if (cache.format == RowFormat::kInt8) {
    store_int8(x, from, head_dim, bytes);
  } else if (cache.format == RowFormat::kInt4) {
    for (std::int64_t group = dev::lane(); group < head_dim / 32; group += dev::kWarp) {
      store_int4_group(x, from + group * 32, bytes, group * 18);
    }
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
