#include "tensor/calibrated_code.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <queue>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/kv_format.h"

namespace kakeya {
namespace {

constexpr std::int64_t kCodeScaleBytes = 2;

// Steps of a uniform code of 1, 2, ... bits for a normal variable of deviation 1. Source: Max,
// Quantizing for minimum distortion (1960), table II.
constexpr float kNormalSteps[] = {1.596F, 0.9957F, 0.586F, 0.3352F, 0.1881F, 0.1041F, 0.0569F};

// Multiples of a block's root mean square of which its scale is one: small ones where most elements
// are near 0, large ones for outliers.
constexpr float kScales[] = {0.55F, 0.65F, 0.75F, 0.85F, 0.95F, 1.05F, 1.2F,
                             1.35F, 1.5F,  1.7F,  1.95F, 2.25F, 2.6F,  3.0F};

// The share of an element's error that a further bit leaves.
float left_by_bit(int bits) {
  return bits == 1 ? 0.36F : bits == 2 ? 0.32F : 0.29F;
}

std::int64_t coded_bytes(std::int64_t head_dim, std::int64_t block, int bits) {
  return head_dim / block * kCodeScaleBytes + (head_dim * bits + 7) / 8;
}

std::int64_t value_block(std::int64_t head_dim) {
  return head_dim % CalibratedCode::kValueBlock == 0 ? CalibratedCode::kValueBlock : head_dim;
}

// Element `index` of codes of which `place` says where they begin.
std::uint32_t read_bits(const std::byte* bytes, std::int64_t place, int bits) {
  std::uint32_t code = 0;
  for (int b = 0; b < bits; ++b) {
    const std::int64_t at = place + b;
    const auto byte = std::to_integer<std::uint32_t>(bytes[at / 8]);
    code |= (byte >> (at % 8) & 1U) << b;
  }
  return code;
}

void write_bits(std::byte* bytes, std::int64_t place, int bits, std::uint32_t code) {
  for (int b = 0; b < bits; ++b) {
    const std::int64_t at = place + b;
    bytes[at / 8] |= static_cast<std::byte>((code >> b & 1U) << (at % 8));
  }
}

}  // namespace

std::vector<std::uint8_t> share_bits(std::span<const float> importance, std::int64_t total) {
  struct Element {
    float error;
    std::size_t index;
    // The largest error first; of equal ones the first element.
    bool operator<(const Element& other) const {
      return error != other.error ? error < other.error : index > other.index;
    }
  };
  std::priority_queue<Element> queue;
  for (std::size_t i = 0; i < importance.size(); ++i) queue.push({importance[i], i});
  std::vector<std::uint8_t> bits(importance.size(), 0);
  for (std::int64_t given = 0; given < total && !queue.empty(); ++given) {
    Element element = queue.top();
    queue.pop();
    const int has = ++bits[element.index];
    element.error *= left_by_bit(has);
    if (has < CalibratedCode::kMostBits) queue.push(element);
  }
  return bits;
}

CalibratedCode::CalibratedCode(std::span<const float> mean,
                               std::int64_t block,
                               bool turned,
                               std::byte* tables)
    : block_(block), turned_(turned) {
  KAKEYA_CHECK(std::ssize(mean) % kCodeGroup == 0);
  const auto take = [&]<typename T>(std::span<T>& table, std::size_t count) {
    table = {reinterpret_cast<T*>(tables), count};
    tables += count * sizeof(T);
  };
  take(groups_, mean.size() / kCodeGroup);
  for (std::span<float>* table : {&mean_, &step_, &base_, &weight_}) take(*table, mean.size());
  take(place_, mean.size());
  take(bits_, mean.size());
  std::copy(mean.begin(), mean.end(), mean_.begin());
}

std::size_t CalibratedCode::table_bytes(std::int64_t head_dim) {
  constexpr std::size_t kLine = 64;
  const auto size = static_cast<std::size_t>(head_dim);
  const std::size_t bytes =
      size / kCodeGroup * sizeof(CodeGroup) +
      size * (4 * sizeof(float) + sizeof(std::int32_t) + sizeof(std::uint8_t));
  return (bytes + kLine - 1) / kLine * kLine;
}

CalibratedCode CalibratedCode::of_keys(std::span<const float> mean,
                                       std::span<const float> variance,
                                       std::span<const float> cost,
                                       int bits,
                                       std::byte* tables) {
  // An element that never changes is its mean; a step of 0 would divide by it.
  constexpr float kLeastVariance = 1e-12F;
  const std::size_t size = mean.size();
  CalibratedCode code(mean, static_cast<std::int64_t>(size), false, tables);
  std::vector<float> deviation(size);
  std::vector<float> importance(size);
  for (std::size_t i = 0; i < size; ++i) {
    deviation[i] = std::sqrt(std::max(variance[i], kLeastVariance));
    code.weight_[i] = cost[i];
    importance[i] = variance[i] * cost[i];
  }
  const auto shared = share_bits(importance, static_cast<std::int64_t>(size) * bits);
  std::copy(shared.begin(), shared.end(), code.bits_.begin());
  code.bytes_ = key_bytes(code.head_dim(), bits);
  code.lay_out(deviation);
  return code;
}

CalibratedCode CalibratedCode::of_values(std::span<const float> mean, int bits, std::byte* tables) {
  const auto head_dim = static_cast<std::int64_t>(mean.size());
  CalibratedCode code(mean, value_block(head_dim), true, tables);
  turn_back(code.mean_.data(), head_dim);  // the matrix is its own inverse
  std::fill(code.weight_.begin(), code.weight_.end(), 1.0F);
  std::fill(code.bits_.begin(), code.bits_.end(), static_cast<std::uint8_t>(bits));
  code.bytes_ = value_bytes(head_dim, bits);
  code.lay_out(std::vector<float>(mean.size(), 1.0F));
  return code;
}

std::int64_t CalibratedCode::key_bytes(std::int64_t head_dim, int bits) {
  return std::max(kCodeWindow, coded_bytes(head_dim, head_dim, bits));
}

std::int64_t CalibratedCode::value_bytes(std::int64_t head_dim, int bits) {
  return std::max(kCodeWindow, coded_bytes(head_dim, value_block(head_dim), bits));
}

void CalibratedCode::lay_out(std::span<const float> deviation) {
  std::int64_t place = 8 * kCodeScaleBytes * (head_dim() / block_);
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const int bits = bits_[i];
    place_[i] = static_cast<std::int32_t>(place);
    place += bits;
    step_[i] = bits == 0 ? 0.0F : kNormalSteps[bits - 1] * deviation[i];
    base_[i] = bits == 0 ? 0.0F : step_[i] * (0.5F - static_cast<float>(1 << (bits - 1)));
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    CodeGroup group{};
    group.first = std::min<std::int64_t>(place_[g * kCodeGroup] / 8, bytes_ - kCodeWindow);
    for (std::size_t i = 0; i < kCodeGroup; ++i) {
      const std::size_t element = g * kCodeGroup + i;
      const std::int64_t at = place_[element] - 8 * group.first;
      // The last byte of a window has no neighbour, nor does a code that ends in it need one.
      const auto byte = static_cast<std::uint8_t>(std::min(at / 8, kCodeWindow - 1));
      group.shuffle[4 * i] = byte;
      group.shuffle[4 * i + 1] =
          static_cast<std::uint8_t>(std::min<std::int64_t>(byte + 1, kCodeWindow - 1));
      group.shuffle[4 * i + 2] = 0x80;  // gives 0, as instructions that shuffle bytes have it
      group.shuffle[4 * i + 3] = 0x80;
      group.shift[i] = static_cast<std::uint32_t>(bits_[element] == 0 ? 0 : at % 8);
      group.mask[i] = (1U << bits_[element]) - 1;
    }
    groups_[g] = group;
  }
}

void CalibratedCode::encode_block(const float* y,
                                  std::int64_t begin,
                                  std::uint16_t& scale,
                                  std::uint8_t* codes) const {
  const auto at = static_cast<std::size_t>(begin);
  const auto end = static_cast<std::size_t>(begin + block_);
  float squares = 0.0F;
  int count = 0;
  for (std::size_t i = at; i < end; ++i) {
    if (bits_[i] == 0) continue;
    const float u = y[i] / (step_[i] / kNormalSteps[bits_[i] - 1]);
    squares += u * u;
    ++count;
  }
  const float size = count == 0 ? 0.0F : std::sqrt(squares / static_cast<float>(count));
  scale = 0;
  std::fill(codes + begin, codes + begin + block_, std::uint8_t{0});
  if (!(size > 0.0F)) return;
  float least = std::numeric_limits<float>::infinity();
  std::uint8_t tried[kMaxKvHeadDim];
  for (const float factor : kScales) {
    const BFloat16 rounded = to_bfloat16(size * factor);
    const float t = to_float(rounded);
    float error = 0.0F;
    for (std::size_t i = at; i < end; ++i) {
      if (bits_[i] == 0) continue;
      const float step = t * step_[i];
      const auto most = static_cast<float>((1 << bits_[i]) - 1);
      const float zero = static_cast<float>(1 << (bits_[i] - 1));
      const float c = std::clamp(std::floor(y[i] / step) + zero, 0.0F, most);
      const float lost = y[i] - (c + 0.5F - zero) * step;
      error += weight_[i] * lost * lost;
      tried[i] = static_cast<std::uint8_t>(c);
    }
    if (!(error < least)) continue;
    least = error;
    scale = rounded.bits;
    std::copy(tried + begin, tried + begin + block_, codes + begin);
  }
}

void CalibratedCode::encode(const float* x, std::byte* out) const {
  const std::size_t size = mean_.size();
  float y[kMaxKvHeadDim];
  std::copy_n(x, size, y);
  if (turned_) turn_back(y, head_dim());
  bool finite = true;
  for (std::size_t i = 0; i < size; ++i) {
    y[i] -= mean_[i];
    finite = finite && std::isfinite(y[i]);
  }
  std::memset(out, 0, static_cast<std::size_t>(bytes_));
  std::uint8_t codes[kMaxKvHeadDim];
  for (std::int64_t b = 0; b < head_dim() / block_; ++b) {
    std::uint16_t scale = to_bfloat16(std::numeric_limits<float>::quiet_NaN()).bits;
    if (finite) encode_block(y, b * block_, scale, codes);
    std::memcpy(out + b * kCodeScaleBytes, &scale, sizeof(scale));
  }
  if (!finite) return;
  for (std::size_t i = 0; i < size; ++i) write_bits(out, place_[i], bits_[i], codes[i]);
}

void CalibratedCode::decode(const std::byte* bytes, float* out) const {
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const std::int64_t block = static_cast<std::int64_t>(i) / block_;
    BFloat16 scale;
    std::memcpy(&scale.bits, bytes + block * kCodeScaleBytes, sizeof(scale.bits));
    const auto code = static_cast<float>(read_bits(bytes, place_[i], bits_[i]));
    out[i] = to_float(scale) * (code * step_[i] + base_[i]) + mean_[i];
  }
  if (turned_) turn_back(out, head_dim());
}

void CalibratedCode::turn_back(float* x, std::int64_t head_dim) {
  const std::int64_t piece = head_dim & -head_dim;
  for (std::int64_t begin = 0; begin < head_dim; begin += piece) {
    hadamard_transform(x + begin, piece);
  }
}

}  // namespace kakeya
