#include "tensor/block_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/k_block_encoder.h"

namespace kakeya {

namespace {

constexpr int kElements = 32;
using Block = std::span<const float, kElements>;

void put_half(float value, std::uint8_t* out) {
  const std::uint16_t bits = float_to_half(value);
  out[0] = static_cast<std::uint8_t>(bits & 0xffU);
  out[1] = static_cast<std::uint8_t>(bits >> 8);
}

// 0 where the inverse is not a number to calculate with: the codes are then those of zero.
float inverse(float scale) {
  const float result = 1.0F / scale;
  return std::isfinite(result) ? result : 0.0F;
}

// x * factor + offset towards zero, at most `most`. Product and sum are rounded each, as numpy
// does: a fused multiply-add, which the build forbids, would give other codes.
std::uint8_t truncated(float x, float factor, float offset, int most) {
  const int code = static_cast<int>(x * factor + offset);
  return static_cast<std::uint8_t>(std::clamp(code, 0, most));
}

// The low nibbles of 16 bytes are the first half of the codes.
void put_nibbles(const std::array<std::uint8_t, kElements>& codes, std::uint8_t* out) {
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = static_cast<std::uint8_t>((codes[i] & 15U) | ((codes[16 + i] & 15U) << 4));
  }
}

void put_fifth_bits(const std::array<std::uint8_t, kElements>& codes, std::uint8_t* out) {
  std::fill_n(out, 4, std::uint8_t{0});
  for (std::size_t i = 0; i < kElements; ++i) {
    out[i / 8] = static_cast<std::uint8_t>(out[i / 8] | ((codes[i] >> 4) << (i % 8)));
  }
}

// The first element of the largest magnitude gets the lowest code, whichever sign it has: one more
// step is on that side.
void encode_symmetric(Block x, int bits, std::uint8_t* out) {
  const float edge = *std::max_element(
      x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const int zero = 1 << (bits - 1);
  const float scale = edge / static_cast<float>(-zero);
  const float factor = inverse(scale);
  std::array<std::uint8_t, kElements> codes;
  for (std::size_t i = 0; i < kElements; ++i) {
    codes[i] = truncated(x[i], factor, static_cast<float>(zero) + 0.5F, 2 * zero - 1);
  }
  put_half(scale, out);
  if (bits == 5) put_fifth_bits(codes, out + 2);
  put_nibbles(codes, out + (bits == 5 ? 6 : 2));
}

void encode_with_minimum(Block x, int bits, std::uint8_t* out) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const int most = (1 << bits) - 1;
  const float scale = (*high - *low) / static_cast<float>(most);
  const float factor = inverse(scale);
  std::array<std::uint8_t, kElements> codes;
  for (std::size_t i = 0; i < kElements; ++i) {
    codes[i] = truncated(x[i] - *low, factor, 0.5F, most);
  }
  put_half(scale, out);
  put_half(*low, out + 2);
  if (bits == 5) put_fifth_bits(codes, out + 4);
  put_nibbles(codes, out + (bits == 5 ? 8 : 4));
}

void encode_q8_0(Block x, std::uint8_t* out) {
  float largest = 0.0F;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  const float scale = largest / 127.0F;
  const float factor = inverse(scale);
  put_half(scale, out);
  for (std::size_t i = 0; i < kElements; ++i) {
    // Halves away from zero.
    const auto code = static_cast<std::int8_t>(std::round(x[i] * factor));
    out[2 + i] = static_cast<std::uint8_t>(code);
  }
}

void encode_block(QuantizedFormat format,
                  const float* x,
                  const float* importance,
                  std::uint8_t* out) {
  switch (format) {
    case QuantizedFormat::kQ40:
      return encode_symmetric(Block(x, kElements), 4, out);
    case QuantizedFormat::kQ41:
      return encode_with_minimum(Block(x, kElements), 4, out);
    case QuantizedFormat::kQ50:
      return encode_symmetric(Block(x, kElements), 5, out);
    case QuantizedFormat::kQ51:
      return encode_with_minimum(Block(x, kElements), 5, out);
    case QuantizedFormat::kQ80:
      return encode_q8_0(Block(x, kElements), out);
    case QuantizedFormat::kQ4K:
      return encode_q4_k(x, importance, out);
    case QuantizedFormat::kQ5K:
      return encode_q5_k(x, importance, out);
    case QuantizedFormat::kQ6K:
      return encode_q6_k(x, importance, out);
    default:
      KAKEYA_CHECK(can_quantize(format));
  }
}

}  // namespace

bool can_quantize(QuantizedFormat format) {
  constexpr std::array kFormats = {
      QuantizedFormat::kQ40, QuantizedFormat::kQ41, QuantizedFormat::kQ50, QuantizedFormat::kQ51,
      QuantizedFormat::kQ80, QuantizedFormat::kQ4K, QuantizedFormat::kQ5K, QuantizedFormat::kQ6K};
  return std::find(kFormats.begin(), kFormats.end(), format) != kFormats.end();
}

void quantize_row(QuantizedFormat format,
                  const float* x,
                  std::int64_t columns,
                  const float* importance,
                  std::byte* out) {
  const std::int64_t elements = quantized_block_elements(format);
  const std::int64_t bytes = quantized_block_bytes(format);
  auto* block = reinterpret_cast<std::uint8_t*>(out);
  for (std::int64_t begin = 0; begin < columns; begin += elements, block += bytes) {
    encode_block(format, x + begin, importance == nullptr ? nullptr : importance + begin, block);
  }
}

}  // namespace kakeya
