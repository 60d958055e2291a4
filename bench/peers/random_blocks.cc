#include "random_blocks.h"

#include <algorithm>
#include <cstring>

#include "tensor/dtype.h"

namespace kakeya::peers {

namespace {

// What a block needs beside random bits. Of random codes q and random small scales s and t a value
// is d * f(q, s) - m * g(t), m = minimum * d; `deviation` is that of the values where d is 1.
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
    {.format = QuantizedFormat::kQ4K, .d_offset = 0, .deviation = 258.0F, .minimum = 7.5F},
    {.format = QuantizedFormat::kQ5K, .d_offset = 0, .deviation = 528.0F, .minimum = 15.5F},
    {.format = QuantizedFormat::kQ6K, .d_offset = 208, .deviation = 1366.0F},
    {.format = QuantizedFormat::kIq4Nl, .d_offset = 0, .deviation = 70.0F},
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

void fill_blocks(const BlockScales& scales,
                 float deviation,
                 SequenceRng& rng,
                 std::span<std::byte> row) {
  fill_random_bytes(rng, row);
  const auto block_bytes = static_cast<std::size_t>(quantized_block_bytes(scales.format));
  for (std::size_t at = 0; at < row.size(); at += block_bytes) {
    // Not the same in all blocks, as kernels may look at scales.
    const float d = deviation / scales.deviation * (1.0F + 0.25F * rng.symmetric());
    put(row, at + scales.d_offset, float_to_half(d));
    if (scales.minimum == 0.0F) continue;
    put(row, at + scales.d_offset + sizeof(std::uint16_t), float_to_half(d * scales.minimum));
  }
}

void fill_numbers(DType dtype, float deviation, SequenceRng& rng, std::span<std::byte> row) {
  constexpr float kUniformDeviation = 0.57735F;  // of numbers between -1 and 1
  const std::size_t bytes = dtype_bytes(dtype);
  for (std::size_t at = 0; at < row.size(); at += bytes) {
    const float value = deviation / kUniformDeviation * rng.symmetric();
    if (dtype == DType::kF32) put(row, at, value);
    if (dtype == DType::kF16) put(row, at, float_to_half(value));
    if (dtype == DType::kBF16) put(row, at, to_bfloat16(value).bits);
  }
}

}  // namespace

bool has_random_rows(GgufEncoding encoding) {
  if (const auto* format = std::get_if<QuantizedFormat>(&encoding)) {
    return find_scales(*format) != nullptr;
  }
  const DType dtype = std::get<DType>(encoding);
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

void fill_random_row(GgufEncoding encoding,
                     float deviation,
                     SequenceRng& rng,
                     std::span<std::byte> row) {
  if (const auto* format = std::get_if<QuantizedFormat>(&encoding)) {
    fill_blocks(*find_scales(*format), deviation, rng, row);
  } else {
    fill_numbers(std::get<DType>(encoding), deviation, rng, row);
  }
}

}  // namespace kakeya::peers
