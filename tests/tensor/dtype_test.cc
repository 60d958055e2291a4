// Conversions between floating point types.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace kakeya {
namespace {

// The neighbours of each half and the numbers half way between them.
TEST(HalfPrecision, FloatsAreRoundedToTheNearestHalfAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    // Above the largest half, the next one would be 65536.
    const float next =
        bits == 0x7bff ? 65536.0F : half_to_float(static_cast<std::uint16_t>(bits + 1));
    const float middle = (value + next) / 2;  // exact
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(float_to_half(value), bits);
    ASSERT_EQ(float_to_half(-value), 0x8000U | bits);
    ASSERT_EQ(float_to_half(middle), even);
    ASSERT_EQ(float_to_half(-middle), 0x8000U | even);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0F)), bits);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9F)), bits + 1);
  }
  EXPECT_EQ(float_to_half(INFINITY), 0x7c00);
  EXPECT_EQ(float_to_half(-3.4e38F), 0xfc00);
  EXPECT_EQ(float_to_half(1e-45F), 0);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(NAN))));
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::bit_cast<float>(0x7f800001U)))));
}

}  // namespace
}  // namespace kakeya
