// The block formats of GGUF, against values that gguf-py computed
// (tools/make_quantized_goldens.py).
#include "tensor/quantized_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace kakeya {
namespace {

std::vector<float> dequantize(QuantizedFormat format, const TensorView& blocks) {
  const std::int64_t columns = blocks.shape[0] * quantized_block_elements(format);
  std::vector<float> values(static_cast<std::size_t>(columns), NAN);
  dequantize_row(format, blocks.data, columns, values.data());
  return values;
}

TEST(QuantizedFormat, ValuesAreThoseOfTheDefiningPackageBitForBit) {
  const auto golden =
      SafetensorsFile::open(std::string(KAKEYA_TEST_DATA) + "/quantized/blocks.safetensors");
  ASSERT_TRUE(golden.has_value()) << golden.error().message();
  EXPECT_EQ(golden->tensors().size(), 2 * all_quantized_formats().size());
  for (const QuantizedFormat format : all_quantized_formats()) {
    const std::string name(quantized_format_name(format));
    SCOPED_TRACE(name);
    const TensorView* blocks = golden->find(name + ".blocks");
    const TensorView* expected = golden->find(name + ".values");
    ASSERT_TRUE(blocks != nullptr && expected != nullptr);
    ASSERT_EQ(blocks->shape[1], quantized_block_bytes(format));
    ASSERT_EQ(expected->shape, (Shape{blocks->shape[0], quantized_block_elements(format)}));
    const std::vector<float> values = dequantize(format, *blocks);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float value = 0.0F;
      std::memcpy(&value, expected->data + i * sizeof(float), sizeof(float));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(value))
          << "element " << i << ": " << values[i] << ", expected " << value;
    }
  }
}

TEST(QuantizedFormat, NamesAreReadAsTheyAreWritten) {
  for (const QuantizedFormat format : all_quantized_formats()) {
    EXPECT_EQ(parse_quantized_format(quantized_format_name(format)), format);
  }
  EXPECT_EQ(parse_quantized_format("Q4_K_M"), std::nullopt);
  EXPECT_EQ(parse_quantized_format(""), std::nullopt);
}

TEST(QuantizedFormat, ARowTakesItsBlocksBytes) {
  EXPECT_EQ(quantized_row_bytes(QuantizedFormat::kQ50, 2112), 2112 / 32 * 22);
  EXPECT_EQ(quantized_row_bytes(QuantizedFormat::kQ4K, 2816), 11 * 144);
  EXPECT_EQ(quantized_row_bytes(QuantizedFormat::kQ80, 0), 0);
}

// Hostile bytes: every pattern is some value, and nothing outside the row is read or written (the
// sanitizers look). Scales that are not finite must not be hidden.
TEST(QuantizedFormat, AnyBitsAreDecoded) {
  for (const QuantizedFormat format : all_quantized_formats()) {
    SCOPED_TRACE(std::string(quantized_format_name(format)));
    const std::int64_t elements = quantized_block_elements(format);
    const auto bytes = static_cast<std::size_t>(quantized_row_bytes(format, 2 * elements));
    for (int pattern = 0; pattern < 256; ++pattern) {
      const std::vector<std::byte> blocks(bytes, static_cast<std::byte>(pattern));
      std::vector<float> values(static_cast<std::size_t>(2 * elements));
      dequantize_row(format, blocks.data(), 2 * elements, values.data());
      for (std::int64_t i = 0; i < elements; ++i) {
        ASSERT_EQ(std::isfinite(values[i]), std::isfinite(values[i + elements])) << pattern;
      }
      const bool has_halves =
          format != QuantizedFormat::kMxfp4 && format != QuantizedFormat::kNvfp4;
      if (pattern == 0xff && has_halves) {
        EXPECT_TRUE(std::isnan(values[0]));
      }
    }
  }
}

}  // namespace
}  // namespace kakeya
