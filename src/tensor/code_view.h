// The tables by which backends read calibrated codes (calibrated_code.h), as plain types.
#pragma once

#include <cstdint>

namespace kakeya {

inline constexpr std::int64_t kCodeGroup = 16;   // elements that are read at once
inline constexpr std::int64_t kCodeWindow = 16;  // bytes within which their codes lie

// Element i of a group is the bits of the two bytes window[shuffle[4 i]] and window[shuffle[4 i +
// 1]] from shift[i] on, as many as mask[i] has, of the kCodeWindow bytes from `first` on of the
// vector.
struct CodeGroup {
  alignas(64) std::uint8_t shuffle[4 * kCodeGroup];
  alignas(64) std::uint32_t shift[kCodeGroup];
  alignas(64) std::uint32_t mask[kCodeGroup];
  std::int64_t first = 0;
};

// Element i of a vector is scale * (code * step[i] + base[i]) + mean[i], with a scale, bf16, for
// each `block` elements at the vector's beginning; then, where `is_turned`, multiplied with the
// Hadamard matrix.
struct CodeView {
  const float* mean = nullptr;  // [E]
  const float* step = nullptr;
  const float* base = nullptr;
  const CodeGroup* groups = nullptr;  // [E / kCodeGroup]
  std::int64_t block = 0;
  bool is_turned = false;
};

}  // namespace kakeya
