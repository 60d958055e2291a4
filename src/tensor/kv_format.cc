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

// Fields of 4 bits of codes -8 ... 7: byte i holds code i below code i + count / 2.
void store_fields(const int* codes, std::int64_t count, std::byte* out) {
  for (std::int64_t i = 0; i < count / 2; ++i) {
    out[i] = static_cast<std::byte>((codes[i] + 8) | (codes[i + count / 2] + 8) << 4);
  }
}

int load_field(const std::byte* bytes, std::int64_t count, std::int64_t index) {
  const std::int64_t half = count / 2;
  return (index < half ? std::to_integer<int>(bytes[index]) & 15
                       : std::to_integer<int>(bytes[index - half]) >> 4) -
         8;
}

// The element of the largest magnitude becomes -8, so the scale may be negative.
void encode_int4_group(const float* x, std::byte* out) {
  float extreme = 0.0F;
  for (std::int64_t i = 0; i < kInt4Group; ++i) {
    if (!std::isfinite(x[i])) extreme = std::numeric_limits<float>::quiet_NaN();
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  const BFloat16 stored = to_bfloat16(extreme / -8.0F);
  const float scale = to_float(stored);
  store_as(stored, out);
  std::array<int, kInt4Group> codes{};
  if (std::isfinite(scale) && scale != 0.0F) {
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = round_within(x[i] / scale, -8, 7);
  }
  store_fields(codes.data(), kInt4Group, out + sizeof(stored));
}

void decode_int4_group(const std::byte* bytes, float* out) {
  const float scale = to_float(load_as<BFloat16>(bytes));
  for (std::int64_t i = 0; i < kInt4Group; ++i) {
    out[i] = scale * static_cast<float>(load_field(bytes + sizeof(BFloat16), kInt4Group, i));
  }
}

// The nearest point to z with whole coordinates of an even sum within [low, high]: every coordinate
// is rounded; if the sum is odd, the one moves to its other neighbour that loses least by it.
// Returns the squared distance.
float nearest_even(const float* z, int size, int low, int high, int* point) {
  float distance = 0.0F;
  int sum = 0;
  int cheapest = 0;
  int moved = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < size; ++i) {
    point[i] = round_within(z[i], low, high);
    const float residual = z[i] - static_cast<float>(point[i]);
    distance += residual * residual;
    sum += point[i];
    int other = residual >= 0.0F ? point[i] + 1 : point[i] - 1;
    if (other > high) other = high - 1;
    if (other < low) other = low + 1;
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

// Each rotated format: elements of a block, its code, and the way back. A vector's block b has
// the elements b, b + E / size, b + 2 E / size, ..., so that decoders work on many blocks at once.
struct RotatedInt4 {
  static constexpr int kBlock = 2;
  static constexpr float kReach = 8.0F;
  static constexpr float kStep = kNormalStep;
  static float encode(const float* z, std::byte* out) {
    int codes[kBlock];
    float distance = 0.0F;
    for (int i = 0; i < kBlock; ++i) {
      codes[i] = round_within(z[i] - 0.5F, -8, 7);
      const float residual = z[i] - static_cast<float>(codes[i]) - 0.5F;
      distance += residual * residual;
    }
    store_fields(codes, kBlock, out);
    return distance;
  }
  static void decode(const std::byte* bytes, float* z) {
    for (int i = 0; i < kBlock; ++i) z[i] = static_cast<float>(load_field(bytes, kBlock, i)) + 0.5F;
  }
};

struct D4 {
  static constexpr int kBlock = 4;
  static constexpr float kReach = 8.0F;
  static constexpr float kStep = kNormalStepD4;
  static constexpr int kRadix = kD4Radix;
  static float encode(const float* z, std::byte* out) {
    int c[kBlock];
    const float distance = nearest_even(z, kBlock, -9, 8, c);
    for (int& x : c) x += 9;
    const int code = ((c[0] * kRadix + c[1]) * kRadix + c[2]) * (kRadix / 2) + c[3] / 2;
    store_as(static_cast<std::uint16_t>(code), out);
    return distance;
  }
  static void decode(const std::byte* bytes, float* z) {
    int code = load_as<std::uint16_t>(bytes);
    int c[kBlock];
    c[3] = code % (kRadix / 2) * 2;
    code /= kRadix / 2;
    c[2] = code % kRadix;
    code /= kRadix;
    c[1] = code % kRadix;
    c[0] = code / kRadix;
    c[3] += (c[0] + c[1] + c[2]) % 2;
    for (int i = 0; i < kBlock; ++i) z[i] = static_cast<float>(c[i] - 9);
  }
};

struct E8 {
  static constexpr int kBlock = 8;
  static constexpr float kReach = 7.5F;
  static constexpr float kStep = kNormalStep;
  static float encode(const float* z, std::byte* out) {
    float shifted[kBlock];
    for (int i = 0; i < kBlock; ++i) shifted[i] = z[i] - 0.5F;
    int whole[kBlock];
    int half[kBlock];
    const float to_whole = nearest_even(z, kBlock, -8, 7, whole);
    const float to_half = nearest_even(shifted, kBlock, -8, 7, half);
    const bool coset = to_half < to_whole;
    int* codes = coset ? half : whole;
    // The lowest bit of the last one is the coset's: even plus 8 stays even.
    codes[7] = ((codes[7] + 8) & ~1) - 8 + (coset ? 1 : 0);
    store_fields(codes, kBlock, out);
    return std::min(to_whole, to_half);
  }
  static void decode(const std::byte* bytes, float* z) {
    int c[kBlock];
    int sum = 0;
    for (int i = 0; i < kBlock; ++i) c[i] = load_field(bytes, kBlock, i) + 8;
    for (int i = 0; i < kBlock - 1; ++i) sum += c[i];
    const float coset = (c[7] & 1) != 0 ? 0.5F : 0.0F;
    c[7] = (c[7] & ~1) | (sum & 1);
    for (int i = 0; i < kBlock; ++i) z[i] = static_cast<float>(c[i] - 8) + coset;
  }
};

template <typename Code>
float encode_blocks(std::span<const float> y, float step, std::byte* out) {
  float distance = 0.0F;
  float z[Code::kBlock];
  const std::size_t blocks = y.size() / Code::kBlock;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t i = 0; i < Code::kBlock; ++i) z[i] = y[i * blocks + block] / step;
    distance += Code::encode(z, out + block * Code::kBlock / 2);
  }
  return distance * step * step;
}

// Encodes with the better of two steps, the one that has the smaller error: one suits a normal
// distribution, at the other nothing is out of range.
template <typename Code>
void encode_rotated(const float* x, std::int64_t head_dim, std::byte* out) {
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
  const float normal = Code::kStep * std::sqrt(squares / static_cast<float>(size));
  const float covering = largest_magnitude(y.data(), head_dim) / Code::kReach;
  std::array<std::byte, kMaxKvHeadDim / 2> other;
  const float normal_error = encode_blocks<Code>(y, normal, codes);
  const bool cover = encode_blocks<Code>(y, covering, other.data()) < normal_error;
  if (cover) std::memcpy(codes, other.data(), size / 2);
  store_as((cover ? covering : normal) * largest, out);
}

template <typename Code>
void decode_rotated(const std::byte* bytes, std::int64_t head_dim, float* out) {
  const auto scale = load_as<float>(bytes);
  const std::int64_t blocks = head_dim / Code::kBlock;
  float z[Code::kBlock];
  for (std::int64_t block = 0; block < blocks; ++block) {
    Code::decode(bytes + kScaleBytes + block * Code::kBlock / 2, z);
    for (std::int64_t i = 0; i < Code::kBlock; ++i) out[i * blocks + block] = z[i];
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
    case KvFormat::kInt4:
      return head_dim % kInt4Group == 0;
    case KvFormat::kRotatedInt4:
    case KvFormat::kD4:
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
    case KvFormat::kInt4:
      return head_dim / kInt4Group * kInt4GroupBytes;
    case KvFormat::kRotatedInt4:
    case KvFormat::kD4:
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
    case KvFormat::kInt4:
      for (std::int64_t g = 0; g < head_dim / kInt4Group; ++g) {
        encode_int4_group(x + g * kInt4Group, out + g * kInt4GroupBytes);
      }
      return;
    case KvFormat::kRotatedInt4:
      encode_rotated<RotatedInt4>(x, head_dim, out);
      return;
    case KvFormat::kD4:
      encode_rotated<D4>(x, head_dim, out);
      return;
    case KvFormat::kE8:
      encode_rotated<E8>(x, head_dim, out);
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
    case KvFormat::kInt4:
      for (std::int64_t g = 0; g < head_dim / kInt4Group; ++g) {
        decode_int4_group(bytes + g * kInt4GroupBytes, out + g * kInt4Group);
      }
      return;
    case KvFormat::kRotatedInt4:
      decode_rotated<RotatedInt4>(bytes, head_dim, out);
      return;
    case KvFormat::kD4:
      decode_rotated<D4>(bytes, head_dim, out);
      return;
    case KvFormat::kE8:
      decode_rotated<E8>(bytes, head_dim, out);
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
