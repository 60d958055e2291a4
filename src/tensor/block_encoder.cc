#include "tensor/block_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/k_block_encoder.h"
#include "tensor/scale_search.h"

namespace kakeya {

namespace {

constexpr int kElements = 32;
// The sizes of the largest blocks, those of the K formats.
constexpr std::size_t kMostElements = 256;
constexpr std::size_t kMostBytes = 210;
using Block = std::span<const float, kElements>;

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

// Writes scale and codes of a block without a minimum.
void put_symmetric(float scale,
                   const std::array<std::uint8_t, kElements>& codes,
                   int bits,
                   std::uint8_t* out) {
  store_half(scale, out);
  if (bits == 5) put_fifth_bits(codes, out + 2);
  put_nibbles(codes, out + (bits == 5 ? 6 : 2));
}

// Writes scale and codes of a block, with the number that code 0 stands for.
void put_with_minimum(float scale,
                      float zero,
                      const std::array<std::uint8_t, kElements>& codes,
                      int bits,
                      std::uint8_t* out) {
  store_half(scale, out);
  store_half(zero, out + 2);
  if (bits == 5) put_fifth_bits(codes, out + 4);
  put_nibbles(codes, out + (bits == 5 ? 8 : 4));
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
  put_symmetric(scale, codes, bits, out);
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
  put_with_minimum(scale, *low, codes, bits, out);
}

void encode_q8_0(Block x, std::uint8_t* out) {
  float largest = 0.0F;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  const float scale = largest / 127.0F;
  const float factor = inverse(scale);
  store_half(scale, out);
  for (std::size_t i = 0; i < kElements; ++i) {
    // Halves away from zero.
    const auto code = static_cast<std::int8_t>(std::round(x[i] * factor));
    out[2 + i] = static_cast<std::uint8_t>(code);
  }
}

// The bytes without an importance.
void encode_block(QuantizedFormat format, const float* x, std::uint8_t* out) {
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
      return encode_q4_k(x, nullptr, out);
    case QuantizedFormat::kQ5K:
      return encode_q5_k(x, nullptr, out);
    case QuantizedFormat::kQ6K:
      return encode_q6_k(x, nullptr, out);
    default:
      KAKEYA_CHECK(can_quantize(format));
  }
}

// Readers see scales and minimums as halves. One that overflows leaves an infinite error.
struct StoredAsHalves {
  scale_search::Fit operator()(scale_search::Fit fit) const {
    return {half_to_float(float_to_half(fit.scale)), half_to_float(float_to_half(fit.minimum))};
  }
};

using SearchedGroup = scale_search::Group<kElements>;
using SearchedFit = scale_search::BestFit<kElements, StoredAsHalves>;

// Least squares after each candidate of a search.
constexpr int kRefits = 2;
// More than that of the K formats: a block has no neighbours whose scales bind it.
constexpr scale_search::Fifths kFifths = {-8, 12};

// The codes of the best fit, less the lowest level.
std::array<std::uint8_t, kElements> codes_of(const SearchedGroup& group,
                                             scale_search::Fit fit,
                                             scale_search::Levels levels) {
  scale_search::Codes<kElements> codes;
  scale_search::encode(group, fit, levels, codes);
  std::array<std::uint8_t, kElements> bytes;
  for (std::size_t i = 0; i < kElements; ++i) {
    bytes[i] = static_cast<std::uint8_t>(codes[i] - levels.low);
  }
  return bytes;
}

void search_symmetric(const SearchedGroup& group, int bits, std::uint8_t* out) {
  const auto zero = static_cast<float>(1 << (bits - 1));
  const scale_search::Levels levels = {-zero, zero - 1.0F};
  SearchedFit best(group, levels, scale_search::Minimums::kNone, kRefits);
  scale_search::offer_symmetric(group, levels, kFifths, best);
  put_symmetric(best.best().scale, codes_of(group, best.best(), levels), bits, out);
}

void search_with_minimum(const SearchedGroup& group, int bits, std::uint8_t* out) {
  const scale_search::Levels levels = {0.0F, static_cast<float>((1 << bits) - 1)};
  SearchedFit best(group, levels, scale_search::Minimums::kAny, kRefits);
  scale_search::offer_spans(group, levels, best);
  const scale_search::Fit fit = best.best();
  put_with_minimum(fit.scale, -fit.minimum, codes_of(group, fit, levels), bits, out);
}

void search_q8_0(const SearchedGroup& group, std::uint8_t* out) {
  constexpr scale_search::Levels kLevels = {-127.0F, 127.0F};
  SearchedFit best(group, kLevels, scale_search::Minimums::kNone, kRefits);
  scale_search::offer_symmetric(group, kLevels, kFifths, best);
  // Both signs say the same; encode_q8_0() gives positive scales.
  const scale_search::Fit fit = {std::fabs(best.best().scale), 0.0F};
  store_half(fit.scale, out);
  scale_search::Codes<kElements> codes;
  scale_search::encode(group, fit, kLevels, codes);
  for (std::size_t i = 0; i < kElements; ++i) {
    out[2 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(codes[i]));
  }
}

// A block whose weighted squared error is small.
void search_block(QuantizedFormat format,
                  const float* x,
                  const float* importance,
                  std::uint8_t* out) {
  if (format == QuantizedFormat::kQ4K) return encode_q4_k(x, importance, out);
  if (format == QuantizedFormat::kQ5K) return encode_q5_k(x, importance, out);
  if (format == QuantizedFormat::kQ6K) return encode_q6_k(x, importance, out);
  const auto group = scale_search::group_of<kElements>(x, importance, 0);
  if (format == QuantizedFormat::kQ40) return search_symmetric(group, 4, out);
  if (format == QuantizedFormat::kQ50) return search_symmetric(group, 5, out);
  if (format == QuantizedFormat::kQ41) return search_with_minimum(group, 4, out);
  if (format == QuantizedFormat::kQ51) return search_with_minimum(group, 5, out);
  KAKEYA_CHECK(format == QuantizedFormat::kQ80);
  search_q8_0(group, out);
}

// The weighted error of the numbers that readers will see.
double weighted_error(QuantizedFormat format,
                      const float* x,
                      const float* importance,
                      const std::uint8_t* block) {
  std::array<float, kMostElements> values;
  const std::int64_t elements = quantized_block_elements(format);
  dequantize_row(format, reinterpret_cast<const std::byte*>(block), elements, values.data());
  double error = 0.0;
  for (std::int64_t i = 0; i < elements; ++i) {
    const double difference = static_cast<double>(values[static_cast<std::size_t>(i)]) - x[i];
    error += importance[i] * difference * difference;
  }
  return error;
}

// The plain block stays unless the search has found a better one. (Written so that an error which
// is no number loses.)
void encode_weighted_block(QuantizedFormat format,
                           const float* x,
                           const float* importance,
                           std::uint8_t* out) {
  encode_block(format, x, out);
  std::array<std::uint8_t, kMostBytes> searched;
  search_block(format, x, importance, searched.data());
  if (weighted_error(format, x, importance, searched.data()) <
      weighted_error(format, x, importance, out)) {
    std::memcpy(out, searched.data(), static_cast<std::size_t>(quantized_block_bytes(format)));
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
    if (importance == nullptr) {
      encode_block(format, x + begin, block);
    } else {
      encode_weighted_block(format, x + begin, importance + begin, block);
    }
  }
}

}  // namespace kakeya
