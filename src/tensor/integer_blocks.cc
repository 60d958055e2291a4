#include "tensor/integer_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "tensor/quantized_layout.h"

namespace kakeya {
namespace {

// Signed codes become unsigned by this.
constexpr int kSignedZero = 128;

using CodeTable = std::array<std::uint8_t, 16>;

constexpr CodeTable unsigned_levels(const std::array<std::int8_t, 16>& levels) {
  CodeTable result{};
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<std::uint8_t>(levels[i] + kSignedZero);
  }
  return result;
}
constexpr CodeTable kNonLinearLevels = unsigned_levels(kNonLinear);
constexpr CodeTable kTwiceE2m1Levels = unsigned_levels(kTwiceE2m1);

void set_scale(IntegerBlock& out, float scale, float minimum = 0.0F) {
  out.scales[0] = out.scales[1] = scale;
  out.minimums[0] = out.minimums[1] = minimum;
}

// Sets the scales of one half of a block in a format whose scales have factors.
void set_scale_codes(IntegerBlock& out, int half, int scale, int minimum = 0) {
  out.scale_codes[half] = static_cast<std::int8_t>(scale);
  out.minimum_codes[half] = static_cast<std::int8_t>(minimum);
  out.scales[half] = out.scale_factor * static_cast<float>(scale);
  out.minimums[half] = out.minimum_factor * static_cast<float>(minimum);
}

void set_factors(IntegerBlock& out, float of_scales, float of_minimums = 0.0F) {
  out.scale_factor = of_scales;
  out.minimum_factor = of_minimums;
}

// eight(i) has the codes of columns i to i + 7 in its bytes, the first one lowest.
template <typename EightCodes>
void set_codes(IntegerBlock& out, EightCodes&& eight) {
  for (int i = 0; i < kIntegerBlock; i += 8) {
    const std::uint64_t codes = eight(i);
    std::memcpy(out.codes + i, &codes, sizeof(codes));
  }
}

void set_slice(IntegerBlock& out, BitSlice slice) {
  set_codes(out, [=](int i) { return slice.eight_from(i); });
}

// Low bits, and high bits above them.
void set_slices(IntegerBlock& out, BitSlice low, BitSlice high) {
  set_codes(out, [=](int i) { return low.eight_from(i) | high.eight_from(i) << low.width; });
}

// Nibbles of 16 bytes.
std::uint64_t eight_nibbles(const std::uint8_t* bytes, int i) {
  return nibbles_from(bytes, 16, i).eight_from(0);
}

void set_nibbles(IntegerBlock& out, const std::uint8_t* bytes) {
  set_codes(out, [=](int i) { return eight_nibbles(bytes, i); });
}

// Nibbles, and a fifth bit for each in a string of bits.
void set_five_bits(IntegerBlock& out, const std::uint8_t* nibbles, const std::uint8_t* bits) {
  set_codes(out,
            [=](int i) { return eight_nibbles(nibbles, i) | eight_codes<1>(bits + i / 8) << 4; });
}

// Sets the codes to the table's level for each nibble.
void set_levels(IntegerBlock& out, const std::uint8_t* bytes, const CodeTable& levels) {
  set_nibbles(out, bytes);
  for (std::uint8_t& code : out.codes) code = levels[code];
}

// Each of the readers below reads columns [32 * part, 32 * part + 32) of a block; the fields of
// blocks are listed in quantized_format.cc.
void read_q4_0(const std::uint8_t* block, int /*part*/, IntegerBlock& out) {
  set_nibbles(out, block + 2);
  set_scale(out, half_at(block));
}

void read_q4_1(const std::uint8_t* block, int /*part*/, IntegerBlock& out) {
  set_nibbles(out, block + 4);
  set_scale(out, half_at(block), half_at(block + 2));
}

void read_q5_0(const std::uint8_t* block, int /*part*/, IntegerBlock& out) {
  set_five_bits(out, block + 6, block + 2);
  set_scale(out, half_at(block));
}

void read_q5_1(const std::uint8_t* block, int /*part*/, IntegerBlock& out) {
  set_five_bits(out, block + 8, block + 4);
  set_scale(out, half_at(block), half_at(block + 2));
}

void read_q8_0(const std::uint8_t* block, int /*part*/, IntegerBlock& out) {
  // A signed byte and 128 more differ in the highest bit.
  set_codes(out, [=](int i) {
    return BitSlice{block + 2, 0, 8}.eight_from(i) ^ eight_times(kSignedZero);
  });
  set_scale(out, half_at(block));
}

void read_q2_k(const std::uint8_t* block, int part, IntegerBlock& out) {
  set_slice(out, pairs_from(block + 16, 32 * part));
  set_factors(out, half_at(block + 80), -half_at(block + 82));
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t scales = block[2 * part + half];
    set_scale_codes(out, half, bits_at(scales, 0, 4), bits_at(scales, 4, 4));
  }
}

void read_q3_k(const std::uint8_t* block, int part, IntegerBlock& out) {
  set_slices(out, pairs_from(block + 32, 32 * part), strided_bits_from(block, 32 * part));
  set_factors(out, half_at(block + 108));
  for (int half = 0; half < 2; ++half) {
    set_scale_codes(out, half, q3_k_scale(block + 96, 2 * part + half) - 32);
  }
}

void set_k_scale(const std::uint8_t* block, int part, IntegerBlock& out) {
  const ScaleAndMinimum group = k_scales(block + 4, part);
  set_factors(out, half_at(block), -half_at(block + 2));
  for (int half = 0; half < 2; ++half) set_scale_codes(out, half, group.scale, group.minimum);
}

// Both have 32 bytes for 64 columns.
BitSlice k_nibbles(const std::uint8_t* codes, int part) {
  return nibbles_from(codes + 32 * (part / 2), 32, 32 * (part % 2));
}

void read_q4_k(const std::uint8_t* block, int part, IntegerBlock& out) {
  set_slice(out, k_nibbles(block + 16, part));
  set_k_scale(block, part, out);
}

void read_q5_k(const std::uint8_t* block, int part, IntegerBlock& out) {
  set_slices(out, k_nibbles(block + 48, part), strided_bits_from(block + 16, 32 * part));
  set_k_scale(block, part, out);
}

void read_q6_k(const std::uint8_t* block, int part, IntegerBlock& out) {
  set_slices(out, nibbles_from(block + 64 * (part / 4), 64, 32 * (part % 4)),
             pairs_from(block + 128, 32 * part));
  set_factors(out, half_at(block + 208));
  for (int half = 0; half < 2; ++half) {
    set_scale_codes(out, half, static_cast<std::int8_t>(block[192 + 2 * part + half]));
  }
}

void read_iq4_nl(const std::uint8_t* block, int /*part*/, IntegerBlock& out) {
  set_levels(out, block + 2, kNonLinearLevels);
  set_scale(out, half_at(block));
}

void read_iq4_xs(const std::uint8_t* block, int part, IntegerBlock& out) {
  set_levels(out, block + 8 + 16 * part, kNonLinearLevels);
  set_factors(out, half_at(block));
  for (int half = 0; half < 2; ++half) set_scale_codes(out, half, iq4_xs_scale(block, part));
}

void read_mxfp4(const std::uint8_t* block, int /*part*/, IntegerBlock& out) {
  set_levels(out, block + 1, kTwiceE2m1Levels);
  set_scale(out, half_of_e8m0(block[0]));
}

struct BlockReader {
  IntegerFormat format;
  void (*read)(const std::uint8_t* block, int part, IntegerBlock& out);
};

constexpr DType kHalf = DType::kF16;
constexpr DType kCodes = DType::kI8;

// The readers in the order of the enumerators; NVFP4 has none.
constexpr std::array kBlockReaders = {
    BlockReader{{.bits = 4, .zero = 8, .scale_type = kHalf}, read_q4_0},
    BlockReader{{.bits = 4, .has_minimum = true, .scale_type = kHalf}, read_q4_1},
    BlockReader{{.bits = 5, .zero = 16, .scale_type = kHalf}, read_q5_0},
    BlockReader{{.bits = 5, .has_minimum = true, .scale_type = kHalf}, read_q5_1},
    BlockReader{{.zero = kSignedZero, .scale_type = kHalf}, read_q8_0},
    BlockReader{{.bits = 4, .group = 16, .has_minimum = true, .scale_type = kCodes}, read_q2_k},
    BlockReader{{.bits = 4, .zero = 4, .group = 16, .scale_type = kCodes}, read_q3_k},
    BlockReader{{.bits = 4, .has_minimum = true, .scale_type = kCodes}, read_q4_k},
    BlockReader{{.bits = 5, .has_minimum = true, .scale_type = kCodes}, read_q5_k},
    BlockReader{{.bits = 6, .zero = 32, .group = 16, .scale_type = kCodes}, read_q6_k},
    BlockReader{{.zero = kSignedZero, .scale_type = kHalf, .levels = &kNonLinearLevels},
                read_iq4_nl},
    BlockReader{{.zero = kSignedZero, .scale_type = kCodes, .levels = &kNonLinearLevels},
                read_iq4_xs},
    BlockReader{{.zero = kSignedZero, .scale_type = DType::kBF16, .levels = &kTwiceE2m1Levels},
                read_mxfp4},
};
static_assert(static_cast<std::size_t>(QuantizedFormat::kNvfp4) == kBlockReaders.size());

// Null if there is none.
const BlockReader* block_reader_of(QuantizedFormat format) {
  const auto index = static_cast<std::size_t>(format);
  return index < kBlockReaders.size() ? &kBlockReaders[index] : nullptr;
}

float scale_at(DType dtype, const std::byte* scales, std::int64_t index) {
  if (dtype == DType::kF32) {
    float value = 0.0F;
    std::memcpy(&value, scales + index * 4, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, scales + index * 2, sizeof(bits));
  return dtype == DType::kBF16 ? to_float(BFloat16{bits}) : half_to_float(bits);
}

void read_affine(const TensorView& weight,
                 const AffineGroups& groups,
                 std::int64_t row,
                 std::int64_t block,
                 IntegerBlock& out) {
  const std::int64_t begin = block * kIntegerBlock;
  // 32 codes are whole bytes, whatever their bits.
  unpack_affine_codes(groups.format.bits,
                      weight.data + row * weight.row_bytes() + begin * groups.format.bits / 8,
                      kIntegerBlock, out.codes);
  const std::int64_t group = (row * weight.shape.back() + begin) / groups.format.group_size;
  set_scale(out, scale_at(groups.dtype, groups.scales, group),
            scale_at(groups.dtype, groups.biases, group));
}

}  // namespace

std::optional<IntegerFormat> integer_format(const TensorView& weight) {
  if (const auto* format = std::get_if<QuantizedFormat>(&weight.quantization)) {
    const BlockReader* reader = block_reader_of(*format);
    return reader != nullptr ? std::optional(reader->format) : std::nullopt;
  }
  const auto* groups = std::get_if<AffineGroups>(&weight.quantization);
  if (groups == nullptr) return std::nullopt;
  const int bits = groups->format.bits;
  return IntegerFormat{.bits = bits <= 6 ? std::max(bits, 4) : 8,
                       .group = std::min<std::int64_t>(64, groups->format.group_size),
                       .has_minimum = true,
                       .scale_type = groups->dtype};
}

void read_integer_blocks(const TensorView& weight,
                         std::int64_t row,
                         std::int64_t first,
                         std::span<IntegerBlock> out) {
  if (const auto* groups = std::get_if<AffineGroups>(&weight.quantization)) {
    for (IntegerBlock& block : out) read_affine(weight, *groups, row, first++, block);
    return;
  }
  const auto format = std::get<QuantizedFormat>(weight.quantization);
  const BlockReader* reader = block_reader_of(format);
  KAKEYA_CHECK(reader != nullptr);
  const auto parts = static_cast<int>(quantized_block_elements(format) / kIntegerBlock);
  const std::int64_t bytes = quantized_block_bytes(format);
  const auto* source = reinterpret_cast<const std::uint8_t*>(
      weight.data + row * weight.row_bytes() + first / parts * bytes);
  auto part = static_cast<int>(first % parts);
  for (IntegerBlock& block : out) {
    reader->read(source, part, block);
    if (++part < parts) continue;
    part = 0;
    source += bytes;
  }
}

}  // namespace kakeya
