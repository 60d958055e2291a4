// The norm of a row.
#pragma once

#include "backend/cuda/device/dev.h"

namespace kakeya::cuda::device {

inline constexpr int kNormSegments = 8;

KAKEYA_DEVICE float norm_factor(float total, std::int64_t width, float eps) {
  return 1.0F / dev::sqrt(total / static_cast<float>(width) + eps);
}

// The sums of segments that warps of a block have shared, ascending.
KAKEYA_DEVICE float add_segments(const dev::Shared<float>& sums) {
  struct alignas(16) Four {
    float at[4];
  };
  const Four four[2] = {sums.load_as<Four>(0), sums.load_as<Four>(4)};
  float total = 0.0F;
  KAKEYA_UNROLL
  for (int s = 0; s < kNormSegments; ++s) total = total + four[s / 4].at[s % 4];
  return total;
}

// 1 / sqrt(mean of x^2 + eps) of the row that load(0) ... load(width - 1) give, in all lanes of a
// warp. Sums of squares: eight segments of columns, of which lanes take every 32nd; then pairs of
// lanes; then segments ascending.
template <typename Load>
KAKEYA_DEVICE float norm_factor(const Load& load, std::int64_t width, float eps) {
  const std::int64_t length = (width + kNormSegments - 1) / kNormSegments;
  float sums[kNormSegments];
  KAKEYA_UNROLL
  for (int s = 0; s < kNormSegments; ++s) {
    const std::int64_t last = (s + 1) * length;
    const std::int64_t end = last < width ? last : width;
    float sum = 0.0F;
    for (std::int64_t d = s * length + dev::lane(); d < end; d += dev::kWarp) {
      const float value = load(d);
      sum = dev::fma(value, value, sum);
    }
    sums[s] = sum;
  }
  dev::warp_sums(sums);
  float total = 0.0F;
  KAKEYA_UNROLL
  for (int s = 0; s < kNormSegments; ++s) total = total + sums[s];
  return norm_factor(total, width, eps);
}

}  // namespace kakeya::cuda::device
