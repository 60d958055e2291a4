#include "tensor/affine_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "tensor/quantized_layout.h"
#include "tensor/scale_search.h"

namespace kakeya {

namespace {

// Keeps the codes of a constant group finite.
constexpr float kSmallestScale = 1e-7F;

constexpr std::size_t kMostGroup = 128;

template <typename T>
T load(const std::byte* array, std::int64_t index) {
  T value;
  std::memcpy(&value, array + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* array, std::int64_t index, T value) {
  std::memcpy(array + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

float load_float(DType dtype, const std::byte* array, std::int64_t index) {
  if (dtype == DType::kBF16) return to_float(load<BFloat16>(array, index));
  if (dtype == DType::kF16) return half_to_float(load<std::uint16_t>(array, index));
  return load<float>(array, index);
}

void store_float(DType dtype, std::byte* array, std::int64_t index, float value) {
  if (dtype == DType::kBF16) {
    store(array, index, to_bfloat16(value));
  } else if (dtype == DType::kF16) {
    store(array, index, float_to_half(value));
  } else {
    store(array, index, value);
  }
}

template <int kBits>
void unpack(const std::byte* codes, std::int64_t columns, std::uint8_t* out) {
  const auto* bits = reinterpret_cast<const std::uint8_t*>(codes);
  for (std::int64_t i = 0; i < columns; i += 8) {
    const std::uint64_t eight = eight_codes<kBits>(bits + i / 8 * kBits);
    std::memcpy(out + i, &eight, sizeof(eight));
  }
}

// Adds a code to bytes that hold zeros there.
void set_code(int bits, std::byte* codes, std::int64_t index, unsigned code) {
  const std::int64_t bit = index * bits;
  const unsigned window = code << (bit % 8);
  codes[bit / 8] |= static_cast<std::byte>(window & 0xffU);
  if (window > 0xffU) codes[bit / 8 + 1] |= static_cast<std::byte>(window >> 8);
}

struct ScaleAndBias {
  float scale;
  float bias;
};

// The bias is the group's end that is further from zero, and the scale is bent so that a whole
// number of steps leads from there to zero. If not even one step does, the bias is zero.
ScaleAndBias fit_group(std::span<const float> group, float steps) {
  float low = group[0];
  float high = group[0];
  for (const float x : group) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  const bool from_low = std::fabs(low) > std::fabs(high);
  const float edge = from_low ? low : high;
  const float width = std::max((high - low) / steps, kSmallestScale);
  const float scale = from_low ? width : -width;
  const float steps_to_zero = std::nearbyint(edge / scale);
  if (steps_to_zero == 0.0F) return {scale, 0.0F};
  return {edge / steps_to_zero, edge};
}

// The nearest code, ties to even. A NaN becomes 0.
unsigned nearest_code(float x, ScaleAndBias group, float steps) {
  const float code = std::nearbyint((x - group.bias) / group.scale);
  if (!(code > 0.0F)) return 0;
  return static_cast<unsigned>(std::min(code, steps));
}

// A scale or bias as readers will see it.
float as_stored(DType dtype, float value) {
  if (dtype == DType::kBF16) return to_float(to_bfloat16(value));
  if (dtype == DType::kF16) return half_to_float(float_to_half(value));
  return value;
}

struct StoredAs {
  DType dtype;
  scale_search::Fit operator()(scale_search::Fit fit) const {
    return {as_stored(dtype, fit.scale), as_stored(dtype, fit.minimum)};
  }
};

// Numbers of a group in its format.
struct CodedGroup {
  ScaleAndBias fit;
  std::array<std::uint8_t, kMostGroup> codes;
};

// Encodes a group as MLX does.
CodedGroup encode_group(std::span<const float> x, float steps) {
  CodedGroup coded = {.fit = fit_group(x, steps), .codes = {}};
  for (std::size_t i = 0; i < x.size(); ++i) {
    coded.codes[i] = static_cast<std::uint8_t>(nearest_code(x[i], coded.fit, steps));
  }
  return coded;
}

// Replaces what MLX would do if a search finds what is better. (Written so that an error which is
// no number loses.)
template <std::size_t N>
void improve_group(
    const float* x, const float* importance, DType dtype, float steps, CodedGroup& coded) {
  constexpr int kRefits = 2;
  const auto group = scale_search::group_of<N>(x, importance, 0);
  const StoredAs stored{dtype};
  const scale_search::Levels levels = {0.0F, steps};
  scale_search::BestFit<N, StoredAs> best(group, levels, scale_search::Minimums::kAny, kRefits,
                                          stored);
  const scale_search::Fit plain = {coded.fit.scale, -coded.fit.bias};
  best.offer(plain);
  scale_search::offer_spans(group, levels, best);
  CodedGroup found = {.fit = {best.best().scale, -best.best().minimum}, .codes = {}};
  scale_search::Codes<N> codes;
  scale_search::encode(group, best.best(), levels, codes);
  for (std::size_t i = 0; i < N; ++i) found.codes[i] = static_cast<std::uint8_t>(codes[i]);
  const auto error = [&](scale_search::Fit fit, const CodedGroup& of) {
    double sum = 0.0;
    for (std::size_t i = 0; i < N; ++i) {
      const float value = static_cast<float>(of.codes[i]) * fit.scale - fit.minimum;
      const double difference = static_cast<double>(value) - x[i];
      sum += importance[i] * difference * difference;
    }
    return sum;
  };
  if (error(best.best(), found) < error(stored(plain), coded)) coded = found;
}

}  // namespace

bool affine_format_exists(AffineFormat format) {
  const bool bits = (format.bits >= 2 && format.bits <= 6) || format.bits == 8;
  return bits && (format.group_size == 32 || format.group_size == 64 || format.group_size == 128);
}

std::int64_t affine_code_bytes(AffineFormat format, std::int64_t columns) {
  return columns / 8 * format.bits;
}

void unpack_affine_codes(int bits,
                         const std::byte* codes,
                         std::int64_t columns,
                         std::uint8_t* out) {
  switch (bits) {
    case 2:
      return unpack<2>(codes, columns, out);
    case 3:
      return unpack<3>(codes, columns, out);
    case 4:
      return unpack<4>(codes, columns, out);
    case 5:
      return unpack<5>(codes, columns, out);
    case 6:
      return unpack<6>(codes, columns, out);
    default:
      return unpack<8>(codes, columns, out);
  }
}

void dequantize_affine_row(AffineFormat format,
                           const AffineRow& row,
                           std::int64_t columns,
                           float* out) {
  std::array<std::uint8_t, kMostGroup> codes;
  for (std::int64_t group = 0; group < columns / format.group_size; ++group) {
    const float scale = load_float(row.dtype, row.scales, group);
    const float bias = load_float(row.dtype, row.biases, group);
    unpack_affine_codes(format.bits,
                        row.codes + group * affine_code_bytes(format, format.group_size),
                        format.group_size, codes.data());
    for (int i = 0; i < format.group_size; ++i) {
      *out++ = static_cast<float>(codes[static_cast<std::size_t>(i)]) * scale + bias;
    }
  }
}

void quantize_affine_row(AffineFormat format,
                         const float* x,
                         std::int64_t columns,
                         const float* importance,
                         const MutableAffineRow& out) {
  const auto steps = static_cast<float>((1 << format.bits) - 1);
  std::fill_n(out.codes, affine_code_bytes(format, columns), std::byte{0});
  for (std::int64_t group = 0; group < columns / format.group_size; ++group) {
    const std::int64_t begin = group * format.group_size;
    const std::span<const float> elements(x + begin, static_cast<std::size_t>(format.group_size));
    CodedGroup coded = encode_group(elements, steps);
    if (importance != nullptr) {
      const auto improve = format.group_size == 32   ? improve_group<32>
                           : format.group_size == 64 ? improve_group<64>
                                                     : improve_group<128>;
      improve(elements.data(), importance + begin, out.dtype, steps, coded);
    }
    store_float(out.dtype, out.scales, group, coded.fit.scale);
    store_float(out.dtype, out.biases, group, coded.fit.bias);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      set_code(format.bits, out.codes, begin + static_cast<std::int64_t>(i), coded.codes[i]);
    }
  }
}

}  // namespace kakeya
