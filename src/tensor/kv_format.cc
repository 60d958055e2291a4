#include "tensor/kv_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>

#include "base/check.h"
#include "tensor/dtype.h"

namespace kakeya {
namespace {

static_assert(static_cast<int>(KvType::kCalibrated) == std::size(kKvFormats) + 1);
static_assert(static_cast<int>(KvType::kE8) == static_cast<int>(KvFormat::kE8) + 1);

constexpr std::int64_t kScaleBytes = sizeof(float);

template <typename T>
T load_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

template <typename T>
void store_as(T value, std::byte* bytes) {
  std::memcpy(bytes, &value, sizeof(value));
}

// The largest magnitude; NaN if some element is not finite.
float largest_magnitude(const float* x, std::int64_t count) {
  float largest = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(x[i]));
  }
  return largest;
}

int round_within(float x, int low, int high) {
  return static_cast<int>(
      std::clamp(std::nearbyint(x), static_cast<float>(low), static_cast<float>(high)));
}

void encode_int8(const float* x, std::int64_t head_dim, std::byte* out) {
  const float largest = largest_magnitude(x, head_dim);
  store_as(largest / 127.0F, out);
  // Divided by the largest first: its reciprocal may overflow.
  const bool codes = largest > 0.0F;
  for (std::int64_t i = 0; i < head_dim; ++i) {
    const int code = codes ? round_within(x[i] / largest * 127.0F, -127, 127) : 0;
    out[kScaleBytes + i] = static_cast<std::byte>(code);
  }
}

void decode_int8(const std::byte* bytes, std::int64_t head_dim, float* out) {
  const auto scale = load_as<float>(bytes);
  for (std::int64_t i = 0; i < head_dim; ++i) {
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(bytes[kScaleBytes + i]));
  }
}

// E8: elements of a block, and the range of its whole numbers. A vector's block b has the elements
// b, b + E / kE8Block, b + 2 E / kE8Block, ..., so that decoders work on many blocks at once.
constexpr std::size_t kE8Block = 8;
constexpr int kE8Least = -8;
constexpr int kE8Most = 7;

// Fields of 4 bits of a block's codes: byte i holds code i below code i + kE8Block / 2.
void store_fields(const int* codes, std::byte* out) {
  for (std::size_t i = 0; i < kE8Block / 2; ++i) {
    out[i] =
        static_cast<std::byte>((codes[i] - kE8Least) | (codes[i + kE8Block / 2] - kE8Least) << 4);
  }
}

// Code `index` less kE8Least.
int load_field(const std::byte* bytes, std::size_t index) {
  return index < kE8Block / 2 ? std::to_integer<int>(bytes[index]) & 15
                              : std::to_integer<int>(bytes[index - kE8Block / 2]) >> 4;
}

// The nearest point to z with whole coordinates of an even sum within the range: every coordinate
// is rounded; if the sum is odd, the one moves to its other neighbour that loses least by it.
// Returns the squared distance.
float nearest_even(const float* z, int* point) {
  float distance = 0.0F;
  int sum = 0;
  std::size_t cheapest = 0;
  int moved = 0;
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < kE8Block; ++i) {
    point[i] = round_within(z[i], kE8Least, kE8Most);
    const float residual = z[i] - static_cast<float>(point[i]);
    distance += residual * residual;
    sum += point[i];
    int other = residual >= 0.0F ? point[i] + 1 : point[i] - 1;
    if (other > kE8Most) other = kE8Most - 1;
    if (other < kE8Least) other = kE8Least + 1;
    const float after = z[i] - static_cast<float>(other);
    const float extra = after * after - residual * residual;
    if (extra < least) {
      least = extra;
      cheapest = i;
      moved = other;
    }
  }
  if (sum % 2 != 0) {
    point[cheapest] = moved;
    distance += least;
  }
  return distance;
}

float encode_e8_block(const float* z, std::byte* out) {
  float shifted[kE8Block];
  for (std::size_t i = 0; i < kE8Block; ++i) shifted[i] = z[i] - 0.5F;
  int whole[kE8Block];
  int half[kE8Block];
  const float to_whole = nearest_even(z, whole);
  const float to_half = nearest_even(shifted, half);
  const bool coset = to_half < to_whole;
  int* codes = coset ? half : whole;
  // The lowest bit of the last one is the coset's: even plus 8 stays even.
  codes[7] = ((codes[7] - kE8Least) & ~1) + kE8Least + (coset ? 1 : 0);
  store_fields(codes, out);
  return std::min(to_whole, to_half);
}

void decode_e8_block(const std::byte* bytes, float* z) {
  int c[kE8Block];
  int sum = 0;
  for (std::size_t i = 0; i < kE8Block; ++i) c[i] = load_field(bytes, i);
  for (std::size_t i = 0; i < kE8Block - 1; ++i) sum += c[i];
  const float coset = (c[7] & 1) != 0 ? 0.5F : 0.0F;
  c[7] = (c[7] & ~1) | (sum & 1);
  for (std::size_t i = 0; i < kE8Block; ++i) z[i] = static_cast<float>(c[i] + kE8Least) + coset;
}

float encode_e8_blocks(std::span<const float> y, float step, std::byte* out) {
  float distance = 0.0F;
  float z[kE8Block];
  const std::size_t blocks = y.size() / kE8Block;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t i = 0; i < kE8Block; ++i) z[i] = y[i * blocks + block] / step;
    distance += encode_e8_block(z, out + block * kE8Block / 2);
  }
  return distance * step * step;
}

// Encodes with the better of two steps, the one that has the smaller error: one suits a normal
// distribution, at the other nothing is out of range.
void encode_e8(const float* x, std::int64_t head_dim, std::byte* out) {
  const auto size = static_cast<std::size_t>(head_dim);
  const float largest = largest_magnitude(x, head_dim);
  std::byte* codes = out + kScaleBytes;
  if (!(largest > 0.0F)) {  // zeros, or not a number, which the scale then is as well
    store_as(largest, out);
    std::memset(codes, 0, size / 2);
    return;
  }
  std::array<float, kMaxKvHeadDim> buffer;
  const std::span<float> y(buffer.data(), size);
  for (std::size_t i = 0; i < size; ++i) y[i] = x[i] / largest;
  hadamard_transform(y.data(), head_dim);
  float squares = 0.0F;
  for (const float value : y) squares += value * value;
  const float normal = kE8NormalStep * std::sqrt(squares / static_cast<float>(size));
  const float covering = largest_magnitude(y.data(), head_dim) / kE8Reach;
  std::array<std::byte, kMaxKvHeadDim / 2> other;
  const float normal_error = encode_e8_blocks(y, normal, codes);
  const bool cover = encode_e8_blocks(y, covering, other.data()) < normal_error;
  if (cover) std::memcpy(codes, other.data(), size / 2);
  store_as((cover ? covering : normal) * largest, out);
}

void decode_e8(const std::byte* bytes, std::int64_t head_dim, float* out) {
  const auto scale = load_as<float>(bytes);
  const std::size_t blocks = static_cast<std::size_t>(head_dim) / kE8Block;
  float z[kE8Block];
  for (std::size_t block = 0; block < blocks; ++block) {
    decode_e8_block(bytes + kScaleBytes + block * kE8Block / 2, z);
    for (std::size_t i = 0; i < kE8Block; ++i) out[i * blocks + block] = z[i];
  }
  hadamard_transform(out, head_dim);
  for (std::int64_t i = 0; i < head_dim; ++i) out[i] *= scale;
}

}  // namespace

KvFormat kv_format_of(KvType type) {
  return static_cast<KvFormat>(static_cast<int>(type) - 1);
}

std::string_view kv_format_name(KvFormat format) {
  return kKvTypes[static_cast<std::size_t>(format) + 1].first;
}

std::optional<KvFormat> parse_kv_format(std::string_view name) {
  for (const KvFormat format : kKvFormats) {
    if (kv_format_name(format) == name) return format;
  }
  return std::nullopt;
}

bool kv_format_supports(KvFormat format, std::int64_t head_dim) {
  switch (format) {
    case KvFormat::kF32:
    case KvFormat::kBf16:
    case KvFormat::kInt8:
      return true;
    case KvFormat::kE8:
      return head_dim >= 8 && head_dim <= kMaxKvHeadDim && (head_dim & (head_dim - 1)) == 0;
  }
  return false;
}

std::int64_t kv_vector_bytes(KvFormat format, std::int64_t head_dim) {
  switch (format) {
    case KvFormat::kF32:
      return 4 * head_dim;
    case KvFormat::kBf16:
      return 2 * head_dim;
    case KvFormat::kInt8:
      return head_dim + kScaleBytes;
    case KvFormat::kE8:
      return head_dim / 2 + kScaleBytes;
  }
  return 0;
}

void encode_kv(KvFormat format, const float* x, std::int64_t head_dim, std::byte* out) {
  switch (format) {
    case KvFormat::kF32:
      std::memcpy(out, x, static_cast<std::size_t>(head_dim) * sizeof(float));
      return;
    case KvFormat::kBf16:
      for (std::int64_t i = 0; i < head_dim; ++i) store_as(to_bfloat16(x[i]), out + 2 * i);
      return;
    case KvFormat::kInt8:
      encode_int8(x, head_dim, out);
      return;
    case KvFormat::kE8:
      encode_e8(x, head_dim, out);
      return;
  }
}

void decode_kv(KvFormat format, const std::byte* bytes, std::int64_t head_dim, float* out) {
  switch (format) {
    case KvFormat::kF32:
      std::memcpy(out, bytes, static_cast<std::size_t>(head_dim) * sizeof(float));
      return;
    case KvFormat::kBf16:
      for (std::int64_t i = 0; i < head_dim; ++i) {
        out[i] = to_float(load_as<BFloat16>(bytes + 2 * i));
      }
      return;
    case KvFormat::kInt8:
      decode_int8(bytes, head_dim, out);
      return;
    case KvFormat::kE8:
      decode_e8(bytes, head_dim, out);
      return;
  }
}

void hadamard_transform(float* x, std::int64_t size) {
  KAKEYA_CHECK((size & (size - 1)) == 0);
  for (std::int64_t half = 1; half < size; half *= 2) {
    for (std::int64_t begin = 0; begin < size; begin += 2 * half) {
      for (std::int64_t i = begin; i < begin + half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(size));
  for (std::int64_t i = 0; i < size; ++i) x[i] *= scale;
}

}  // namespace kakeya
