// Random weights: the spread that was asked for, in every format.
#include "tensor/random_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/tensor_view.h"

namespace kakeya {
namespace {

struct Moments {
  double mean = 0.0;
  double deviation = 0.0;
};

Moments moments(const std::vector<float>& values) {
  Moments result;
  const auto count = static_cast<double>(values.size());
  for (const float value : values) result.mean += static_cast<double>(value) / count;
  for (const float value : values) {
    result.deviation += std::pow(static_cast<double>(value) - result.mean, 2.0) / count;
  }
  result.deviation = std::sqrt(result.deviation);
  return result;
}

constexpr std::int64_t kColumns = 65536;

TEST(RandomWeights, BlocksOfEveryFormatHaveTheDeviationAskedFor) {
  int formats = 0;
  for (const QuantizedFormat format : all_quantized_formats()) {
    if (!has_random_blocks(format)) continue;
    ++formats;
    std::vector<std::byte> row(static_cast<std::size_t>(quantized_row_bytes(format, kColumns)));
    SequenceRng rng(3);
    fill_random_blocks(format, 0.02F, rng, row);
    std::vector<float> values(kColumns);
    dequantize_row(format, row.data(), kColumns, values.data());
    const Moments found = moments(values);
    EXPECT_NEAR(found.mean, 0.0, 0.003) << quantized_format_name(format);
    EXPECT_NEAR(found.deviation, 0.02, 0.003) << quantized_format_name(format);
  }
  EXPECT_EQ(formats, 12);
}

TEST(RandomWeights, NumbersAreUniformAroundTheCenter) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<std::byte> bytes(kColumns * dtype_bytes(dtype));
    SequenceRng rng(3);
    fill_random_numbers(dtype, {.center = 1.0F, .width = 0.1F}, rng, bytes);
    const auto values = to_f32({.data = bytes.data(), .shape = {kColumns}, .dtype = dtype});
    ASSERT_TRUE(values.has_value());
    const auto [least, most] = std::minmax_element(values->begin(), values->end());
    // bf16 has steps of 1/128 here.
    EXPECT_NEAR(*least, 0.9F, 0.005F) << dtype_name(dtype);
    EXPECT_NEAR(*most, 1.1F, 0.005F) << dtype_name(dtype);
    EXPECT_NEAR(moments(*values).mean, 1.0, 0.001) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace kakeya
