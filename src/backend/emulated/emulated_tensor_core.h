// The arithmetic of Hopper's tensor cores, as arXiv 2511.10909 publishes it and an H200 confirmed
// it bit for bit (tools/gpu/session facts, F2).
#pragma once

#include <cstdint>

namespace kakeya::emulated {

inline constexpr int kTensorDepth = 16;

// sum + the products of 16 pairs of bf16: all are brought to the largest exponent, cut to 25
// fraction bits and added; the sum is cut to a float. Products that are zero have no say in the
// exponent. Where something is not finite: as floats are added up, any NaN for NaN.
float add_products(const std::uint16_t* a, const std::uint16_t* b, float sum);

// A lane's part in a product of 16 x 16 by 16 x 8 numbers: mma.m16n8k16 of PTX.
struct Fragment {
  float sums[4];
  std::uint32_t a[4];
  std::uint32_t b[2];
};

// Adds the products to the sums of the 32 lanes of a warp, each a Fragment.
void multiply_fragments(void* const* lanes);

// A lane's part in a product of 16 x 32 unsigned bytes by 32 x 8 signed ones: mma.m16n8k32.
struct IntegerFragment {
  int sums[4];
  std::uint32_t a[4];
  std::uint32_t b[2];
};

// Adds the products to the sums of the 32 lanes of a warp, each `count` IntegerFragments; a
// fragment begins with equal sums.
void multiply_integers(void* const* lanes, int count);

}  // namespace kakeya::emulated
