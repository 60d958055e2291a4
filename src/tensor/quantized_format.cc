#include "tensor/quantized_format.h"

#include <array>
#include <bit>

#include "tensor/quantized_layout.h"

namespace kakeya {

namespace {

// A decoder below reads one block; the comment above it lists the block's fields with their sizes
// in bytes.
using Decoder = void (*)(const std::uint8_t* block, float* out);

// d 2, codes 16
void decode_q4_0(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble_at(block + 2, 16, i) - 8);
}

// d 2, m 2, codes 16
void decode_q4_1(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble_at(block + 4, 16, i)) + m;
}

// d 2, fifth bits 4, low four bits 16
void decode_q5_0(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) {
    const int code = nibble_at(block + 6, 16, i) + 16 * bit_at(block + 2, i);
    out[i] = d * static_cast<float>(code - 16);
  }
}

// d 2, m 2, fifth bits 4, low four bits 16
void decode_q5_1(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (int i = 0; i < 32; ++i) {
    const int code = nibble_at(block + 8, 16, i) + 16 * bit_at(block + 4, i);
    out[i] = d * static_cast<float>(code) + m;
  }
}

// d 2, codes 32
void decode_q8_0(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

// scales 16 (low nibbles s, high nibbles t), codes 64, d 2, m 2
void decode_q2_k(const std::uint8_t* block, float* out) {
  const std::uint8_t* codes = block + 16;
  const float d = half_at(block + 80);
  const float m = half_at(block + 82);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(bits_at(block[i / 16], 0, 4));
    const float minimum = m * static_cast<float>(bits_at(block[i / 16], 4, 4));
    out[i] = scale * static_cast<float>(pair_at(codes, i)) - minimum;
  }
}

// third bits 32, low two bits 64, scales 12, d 2
void decode_q3_k(const std::uint8_t* block, float* out) {
  const std::uint8_t* scales = block + 96;
  const float d = half_at(block + 108);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(q3_k_scale(scales, i / 16) - 32);
    const int code = pair_at(block + 32, i) + 4 * strided_bit_at(block, i);
    out[i] = scale * static_cast<float>(code - 4);
  }
}

// Element i of Q4_K and Q5_K.
float k_value(const std::uint8_t* block, int i, int code) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const ScaleAndMinimum group = k_scales(block + 4, i / 32);
  return (d * static_cast<float>(group.scale)) * static_cast<float>(code) -
         m * static_cast<float>(group.minimum);
}

// d 2, m 2, scales 12, codes 128
void decode_q4_k(const std::uint8_t* block, float* out) {
  for (int i = 0; i < 256; ++i) {
    out[i] = k_value(block, i, nibble_at(block + 16 + 32 * (i / 64), 32, i % 64));
  }
}

// d 2, m 2, scales 12, fifth bits 32, low four bits 128
void decode_q5_k(const std::uint8_t* block, float* out) {
  for (int i = 0; i < 256; ++i) {
    const int low = nibble_at(block + 48 + 32 * (i / 64), 32, i % 64);
    out[i] = k_value(block, i, low + 16 * strided_bit_at(block + 16, i));
  }
}

// low four bits 128, high two bits 64, scales 16, d 2
void decode_q6_k(const std::uint8_t* block, float* out) {
  const float d = half_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(static_cast<std::int8_t>(block[192 + i / 16]));
    const int low = nibble_at(block + 64 * (i / 128), 64, i % 128);
    const int code = low + 16 * pair_at(block + 128, i);
    out[i] = scale * static_cast<float>(code - 32);
  }
}

float non_linear(int code) {
  return static_cast<float>(kNonLinear[static_cast<std::size_t>(code)]);
}

// d 2, codes 16
void decode_iq4_nl(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = d * non_linear(nibble_at(block + 2, 16, i));
}

// d 2, high two bits of the scales 2, low four bits of the scales 4, codes 128
void decode_iq4_xs(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 256; ++i) {
    const int g = i / 32;
    const float scale = d * static_cast<float>(iq4_xs_scale(block, g));
    out[i] = scale * non_linear(nibble_at(block + 8 + 16 * g, 16, i % 32));
  }
}

float twice_e2m1(int code) {
  return static_cast<float>(kTwiceE2m1[static_cast<std::size_t>(code)]);
}

// e 1, codes 16
void decode_mxfp4(const std::uint8_t* block, float* out) {
  const float scale = half_of_e8m0(block[0]);
  for (int i = 0; i < 32; ++i) out[i] = scale * twice_e2m1(nibble_at(block + 1, 16, i));
}

// Half of a float of four exponent bits (bias 7) and three mantissa bits, again since the codes are
// doubled. The top bit is not looked at, and 0x7f, which would be NaN, stands for 0.
float half_of_e4m3(std::uint8_t bits) {
  if (bits == 0x7f) return 0.0F;
  const int exponent = bits_at(bits, 3, 4);
  const auto mantissa = static_cast<float>(bits_at(bits, 0, 3));
  if (exponent == 0) return mantissa * 0x1p-10F;
  const auto power = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - 8 + 127) << 23);
  return (1.0F + mantissa / 8.0F) * power;
}

// scales 4, codes 32
void decode_nvfp4(const std::uint8_t* block, float* out) {
  for (int i = 0; i < 64; ++i) {
    const int g = i / 16;
    const int code = nibble_at(block + 4 + 8 * g, 8, i % 16);
    out[i] = half_of_e4m3(block[g]) * twice_e2m1(code);
  }
}

struct Description {
  QuantizedFormat format;
  std::string_view name;
  std::int64_t elements;
  std::int64_t bytes;
  Decoder decode;
};

// The descriptions in the order of the enumerators.
constexpr std::array kDescriptions = {
    Description{QuantizedFormat::kQ40, "Q4_0", 32, 18, decode_q4_0},
    Description{QuantizedFormat::kQ41, "Q4_1", 32, 20, decode_q4_1},
    Description{QuantizedFormat::kQ50, "Q5_0", 32, 22, decode_q5_0},
    Description{QuantizedFormat::kQ51, "Q5_1", 32, 24, decode_q5_1},
    Description{QuantizedFormat::kQ80, "Q8_0", 32, 34, decode_q8_0},
    Description{QuantizedFormat::kQ2K, "Q2_K", 256, 84, decode_q2_k},
    Description{QuantizedFormat::kQ3K, "Q3_K", 256, 110, decode_q3_k},
    Description{QuantizedFormat::kQ4K, "Q4_K", 256, 144, decode_q4_k},
    Description{QuantizedFormat::kQ5K, "Q5_K", 256, 176, decode_q5_k},
    Description{QuantizedFormat::kQ6K, "Q6_K", 256, 210, decode_q6_k},
    Description{QuantizedFormat::kIq4Nl, "IQ4_NL", 32, 18, decode_iq4_nl},
    Description{QuantizedFormat::kIq4Xs, "IQ4_XS", 256, 136, decode_iq4_xs},
    Description{QuantizedFormat::kMxfp4, "MXFP4", 32, 17, decode_mxfp4},
    Description{QuantizedFormat::kNvfp4, "NVFP4", 64, 36, decode_nvfp4},
};

constexpr auto kFormats = [] {
  std::array<QuantizedFormat, kDescriptions.size()> formats{};
  for (std::size_t i = 0; i < formats.size(); ++i) formats[i] = kDescriptions[i].format;
  return formats;
}();

constexpr bool in_order() {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (static_cast<std::size_t>(kFormats[i]) != i) return false;
  }
  return true;
}
static_assert(in_order());

const Description& description_of(QuantizedFormat format) {
  return kDescriptions[static_cast<std::size_t>(format)];
}

}  // namespace

std::span<const QuantizedFormat> all_quantized_formats() {
  return kFormats;
}

std::string_view quantized_format_name(QuantizedFormat format) {
  return description_of(format).name;
}

std::optional<QuantizedFormat> parse_quantized_format(std::string_view name) {
  for (const Description& description : kDescriptions) {
    if (description.name == name) return description.format;
  }
  return std::nullopt;
}

std::int64_t quantized_block_elements(QuantizedFormat format) {
  return description_of(format).elements;
}

std::int64_t quantized_block_bytes(QuantizedFormat format) {
  return description_of(format).bytes;
}

std::int64_t quantized_row_bytes(QuantizedFormat format, std::int64_t columns) {
  const Description& description = description_of(format);
  return columns / description.elements * description.bytes;
}

void dequantize_row(QuantizedFormat format,
                    const std::byte* blocks,
                    std::int64_t columns,
                    float* out) {
  const Description& description = description_of(format);
  const auto* block = reinterpret_cast<const std::uint8_t*>(blocks);
  for (std::int64_t begin = 0; begin < columns; begin += description.elements) {
    description.decode(block, out + begin);
    block += description.bytes;
  }
}

}  // namespace kakeya
