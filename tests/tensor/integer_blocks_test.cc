// Weights as integers against what is decoded from them.
#include "tensor/integer_blocks.h"

#include <gtest/gtest.h>

#include "formats/quantized_tensors.h"

namespace kakeya {
namespace {

// Products of scales and codes are exact in f32 and the sum is rounded once in both: equal.
TEST(IntegerBlocks, StandForTheDecodedValues) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kColumns = 512;
  for (const auto& [name, tensor] : tensors_of_every_format({kRows, kColumns}, 1)) {
    const auto format = integer_format(tensor.view);
    if (name == "NVFP4") {
      EXPECT_FALSE(format.has_value());
      continue;
    }
    ASSERT_TRUE(format.has_value()) << name;
    for (std::int64_t row = 0; row < kRows; ++row) {
      std::vector<float> values(kColumns);
      copy_to_f32(tensor.view, row, 0, kColumns, values.data());
      for (std::int64_t k = 0; k < kColumns; ++k) {
        IntegerBlock block;
        read_integer_blocks(tensor.view, row, k / kIntegerBlock, {&block, 1});
        const std::int64_t column = k % kIntegerBlock;
        ASSERT_LT(block.codes[column], 1 << format->bits) << name;
        const float value =
            block.scales[column / 16] * static_cast<float>(block.codes[column] - format->zero) +
            block.minimums[column / 16];
        ASSERT_EQ(value, values[static_cast<std::size_t>(k)])
            << name << " row " << row << " column " << k;
      }
    }
  }
}

// One scale and minimum really serve a group, and 16-bit ones really hold them.
TEST(IntegerBlocks, SayWhatTheirScalesNeed) {
  constexpr std::int64_t kColumns = 512;
  for (const auto& [name, tensor] : tensors_of_every_format({1, kColumns}, 2)) {
    const auto format = integer_format(tensor.view);
    if (!format) continue;
    float scale = 0.0F;
    float minimum = 0.0F;
    float scale_factor = 0.0F;
    float minimum_factor = 0.0F;
    for (std::int64_t k = 0; k < kColumns; k += 16) {
      IntegerBlock block;
      read_integer_blocks(tensor.view, 0, k / kIntegerBlock, {&block, 1});
      const std::int64_t half = k / 16 % 2;
      if (k % format->group == 0) {
        scale = block.scales[half];
        minimum = block.minimums[half];
      }
      ASSERT_EQ(block.scales[half], scale) << name;
      ASSERT_EQ(block.minimums[half], minimum) << name;
      if (!format->has_minimum) {
        ASSERT_EQ(minimum, 0.0F) << name;
      }
      if (format->scale_type == DType::kI8) {
        if (k % kScaleFactorGroup == 0) {
          scale_factor = block.scale_factor;
          minimum_factor = block.minimum_factor;
        }
        ASSERT_EQ(block.scale_factor, scale_factor) << name;
        ASSERT_EQ(block.minimum_factor, minimum_factor) << name;
        ASSERT_EQ(half_to_float(float_to_half(scale_factor)), scale_factor) << name;
        ASSERT_EQ(half_to_float(float_to_half(minimum_factor)), minimum_factor) << name;
        ASSERT_EQ(scale_factor * static_cast<float>(block.scale_codes[half]), scale) << name;
        ASSERT_EQ(minimum_factor * static_cast<float>(block.minimum_codes[half]), minimum) << name;
        continue;
      }
      const auto kept = [&](float value) {
        return format->scale_type == DType::kF16    ? half_to_float(float_to_half(value))
               : format->scale_type == DType::kBF16 ? to_float(to_bfloat16(value))
                                                    : value;
      };
      ASSERT_EQ(kept(scale), scale) << name;
      ASSERT_EQ(kept(minimum), minimum) << name;
    }
  }
}

TEST(IntegerBlocks, AreNothingForFloats) {
  EXPECT_FALSE(integer_format({.shape = {2, 32}, .dtype = DType::kBF16}).has_value());
  EXPECT_FALSE(integer_format({.shape = {2, 32}, .dtype = DType::kF32}).has_value());
}

}  // namespace
}  // namespace kakeya
