#include "tensor/random_weights.h"

#include <algorithm>
#include <cstring>

namespace kakeya {

namespace {

// The scales that a block needs beside random bits. With random codes q and random small scales s
// and t a value is d * f(q, s) - m * g(t), m = minimum * d; `deviation` is that of the values where
// d is 1.
struct BlockScales {
  QuantizedFormat format;
  std::size_t d_offset;
  float deviation;
  float minimum = 0.0F;  // 0: there is none; it stands right behind d
};

// Codes and small scales are uniform over what their bits can say. Of Q4_0, for one: 16 codes with
// deviation sqrt((16^2 - 1) / 12). Of the K formats with minima: 4-bit codes (mean 7.5) and 6-bit
// scales make sqrt(E[s^2] var(q) + 7.5^2 (var(s) + var(t))).
constexpr BlockScales kBlockScales[] = {
    {.format = QuantizedFormat::kQ40, .d_offset = 0, .deviation = 4.61F},
    {.format = QuantizedFormat::kQ41, .d_offset = 0, .deviation = 4.61F, .minimum = -7.5F},
    {.format = QuantizedFormat::kQ50, .d_offset = 0, .deviation = 9.23F},
    {.format = QuantizedFormat::kQ51, .d_offset = 0, .deviation = 9.23F, .minimum = -15.5F},
    {.format = QuantizedFormat::kQ80, .d_offset = 0, .deviation = 73.9F},
    {.format = QuantizedFormat::kQ2K, .d_offset = 80, .deviation = 13.9F, .minimum = 1.5F},
    {.format = QuantizedFormat::kQ3K, .d_offset = 108, .deviation = 43.3F},
    {.format = QuantizedFormat::kQ4K, .d_offset = 0, .deviation = 258.0F, .minimum = 7.5F},
    {.format = QuantizedFormat::kQ5K, .d_offset = 0, .deviation = 528.0F, .minimum = 15.5F},
    {.format = QuantizedFormat::kQ6K, .d_offset = 208, .deviation = 1366.0F},
    {.format = QuantizedFormat::kIq4Nl, .d_offset = 0, .deviation = 70.0F},
    {.format = QuantizedFormat::kIq4Xs, .d_offset = 0, .deviation = 1294.0F},
};

const BlockScales* find_scales(QuantizedFormat format) {
  for (const BlockScales& scales : kBlockScales) {
    if (scales.format == format) return &scales;
  }
  return nullptr;
}

template <typename T>
void put(std::span<std::byte> bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

void fill_random_bytes(SequenceRng& rng, std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = rng.next();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), bytes.size() - at));
  }
}

}  // namespace

void fill_random_numbers(DType dtype,
                         const RandomSpread& spread,
                         SequenceRng& rng,
                         std::span<std::byte> out) {
  const std::size_t bytes = dtype_bytes(dtype);
  for (std::size_t at = 0; at < out.size(); at += bytes) {
    const float value = spread.center + spread.width * rng.symmetric();
    if (dtype == DType::kF32) put(out, at, value);
    if (dtype == DType::kF16) put(out, at, float_to_half(value));
    if (dtype == DType::kBF16) put(out, at, to_bfloat16(value).bits);
  }
}

bool has_random_blocks(QuantizedFormat format) {
  return find_scales(format) != nullptr;
}

void fill_random_blocks(QuantizedFormat format,
                        float deviation,
                        SequenceRng& rng,
                        std::span<std::byte> out) {
  const BlockScales& scales = *find_scales(format);
  fill_random_bytes(rng, out);
  const auto block_bytes = static_cast<std::size_t>(quantized_block_bytes(format));
  for (std::size_t at = 0; at < out.size(); at += block_bytes) {
    // Not the same in all blocks, as kernels may look at scales.
    const float d = deviation / scales.deviation * (1.0F + 0.25F * rng.symmetric());
    put(out, at + scales.d_offset, float_to_half(d));
    if (scales.minimum == 0.0F) continue;
    put(out, at + scales.d_offset + sizeof(std::uint16_t), float_to_half(d * scales.minimum));
  }
}

}  // namespace kakeya
