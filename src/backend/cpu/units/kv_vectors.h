// Decodes stored vectors of keys and values (tensor/kv_format.h says what the formats mean). Plain
// loops over whole vectors, which the compiler turns into the unit's instructions. Included after
// rows.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline constexpr Index kScaleBytes = 4;

inline float load_scale(const std::byte* bytes) {
  float scale;
  __builtin_memcpy(&scale, bytes, sizeof(scale));
  return scale;
}

inline void decode_bf16(const std::byte* bytes, Index size, float* out) {
  for (Index i = 0; i < size; ++i) {
    std::uint16_t upper;
    __builtin_memcpy(&upper, bytes + 2 * i, sizeof(upper));
    const std::uint32_t bits = static_cast<std::uint32_t>(upper) << 16;
    __builtin_memcpy(out + i, &bits, sizeof(bits));
  }
}

inline void decode_int8(const std::byte* bytes, Index size, float* out) {
  const float scale = load_scale(bytes);
  const auto* codes = reinterpret_cast<const std::int8_t*>(bytes + kScaleBytes);
  for (Index i = 0; i < size; ++i) out[i] = scale * static_cast<float>(codes[i]);
}

inline void decode_e8(const std::byte* bytes, Index size, float* out) {
  const Index blocks = size / 8;
  for (Index b = 0; b < blocks; ++b) {
    std::uint32_t code;  // byte i: elements i (lower half) and i + 4
    __builtin_memcpy(&code, bytes + 4 * b, sizeof(code));
    // The parity of the lowest bits of the first seven fields.
    std::uint32_t parity = code & 0x01111111U;
    parity ^= parity >> 16;
    parity ^= parity >> 8;
    parity ^= parity >> 4;
    const float offset = (code >> 28 & 1) != 0 ? -7.5F : -8.0F;
    code = (code & 0xefffffffU) | (parity & 1U) << 28;
    for (Index i = 0; i < 4; ++i) {
      out[i * blocks + b] = static_cast<float>(static_cast<int>(code >> (8 * i) & 15)) + offset;
      out[(i + 4) * blocks + b] =
          static_cast<float>(static_cast<int>(code >> (8 * i + 4) & 15)) + offset;
    }
  }
}

// One stage of the Hadamard transform: sums and differences of elements kHalf apart.
template <Index kHalf>
inline void butterfly(float* x, Index size) {
  for (Index begin = 0; begin < size; begin += 2 * kHalf) {
    for (Index i = begin; i < begin + kHalf; ++i) {
      const float a = x[i];
      const float b = x[i + kHalf];
      x[i] = a + b;
      x[i + kHalf] = a - b;
    }
  }
}

// x [size] times scale times the Hadamard matrix of +1 and -1; size is a power of two, 8 to 512.
inline void rotate_back(float* x, Index size, float scale) {
  butterfly<1>(x, size);
  butterfly<2>(x, size);
  butterfly<4>(x, size);
  if (size > 8) butterfly<8>(x, size);
  for (Index half = 16; half < size; half *= 2) {
    for (Index begin = 0; begin < size; begin += 2 * half) {
      for (Index i = begin; i < begin + half; i += 16) {
        const Vec a = load(x + i);
        const Vec b = load(x + i + half);
        store(x + i, add(a, b));
        store(x + i + half, sub(a, b));
      }
    }
  }
  for (Index i = 0; i < size; ++i) x[i] *= scale;
}

// One vector to out [padded], zeros behind its `size` elements.
inline void decode_vector(
    KvFormat format, const std::byte* bytes, Index size, Index padded, float* out) {
  switch (format) {
    case KvFormat::kF32:
      __builtin_memcpy(out, bytes, static_cast<std::size_t>(size) * sizeof(float));
      break;
    case KvFormat::kBf16:
      decode_bf16(bytes, size, out);
      break;
    case KvFormat::kInt8:
      decode_int8(bytes, size, out);
      break;
    case KvFormat::kE8:
      decode_e8(bytes + kScaleBytes, size, out);
      rotate_back(out, size, load_scale(bytes) / __builtin_sqrtf(static_cast<float>(size)));
      break;
  }
  for (Index i = size; i < padded; ++i) out[i] = 0.0F;
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
