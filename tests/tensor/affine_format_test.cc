// MLX's affine quantisation, against what MLX computed (tools/make_quantized_goldens.py).
#include "tensor/affine_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace kakeya {
namespace {

// One format with scales of one type; tensors are [rows, ...].
struct AffineCase {
  AffineFormat format;
  DType dtype;

  std::string key() const {
    return std::to_string(format.bits) + "." + std::to_string(format.group_size) + "." +
           std::string(dtype_name(dtype)) + ".";
  }
};

std::vector<AffineCase> cases() {
  std::vector<AffineCase> result;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group_size : {32, 64, 128}) {
      result.push_back({{bits, group_size}, DType::kBF16});
    }
  }
  for (const int bits : {3, 4, 8}) {
    result.push_back({{bits, 64}, DType::kF16});
    result.push_back({{bits, 64}, DType::kF32});
  }
  return result;
}

const SafetensorsFile& golden() {
  static const auto file =
      SafetensorsFile::open(std::string(KAKEYA_TEST_DATA) + "/quantized/affine.safetensors");
  EXPECT_TRUE(file.has_value());
  return *file;
}

const TensorView& tensor(const AffineCase& c, std::string_view name) {
  const TensorView* found = golden().find(c.key() + std::string(name));
  EXPECT_NE(found, nullptr) << c.key() << name;
  return *found;
}

std::vector<float> floats(const TensorView& view) {
  return to_f32(view).value();
}

std::span<const std::byte> bytes(const TensorView& view) {
  return {view.data, view.bytes()};
}

// Row r of the golden codes, scales and biases.
AffineRow row(const AffineCase& c, std::int64_t r) {
  const auto start = [&](std::string_view name) {
    const TensorView& view = tensor(c, name);
    return view.data + static_cast<std::int64_t>(view.bytes()) / view.shape[0] * r;
  };
  return {start("codes"), start("scales"), start("biases"), c.dtype};
}

void expect_same_bits(const std::vector<float>& values, const std::vector<float>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << "element " << i << ": " << values[i] << ", expected " << expected[i];
  }
}

float rounded(DType dtype, float value) {
  if (dtype == DType::kBF16) return to_float(to_bfloat16(value));
  if (dtype == DType::kF16) return half_to_float(float_to_half(value));
  return value;
}

TEST(AffineFormat, ValuesAreMlxsBitForBit) {
  EXPECT_EQ(golden().tensors().size(), 6 * cases().size());
  for (const AffineCase& c : cases()) {
    SCOPED_TRACE(c.key());
    const Shape& shape = tensor(c, "weights").shape;
    std::vector<float> values(static_cast<std::size_t>(shape[0] * shape[1]), NAN);
    for (std::int64_t r = 0; r < shape[0]; ++r) {
      dequantize_affine_row(c.format, row(c, r), shape[1], values.data() + r * shape[1]);
    }
    expect_same_bits(values, floats(tensor(c, "values")));
  }
}

// The header's claim about MLX's own arithmetic in 16 bits.
TEST(AffineFormat, MlxRoundsProductAndSumToTheTypeOfTheScales) {
  for (const AffineCase& c : cases()) {
    SCOPED_TRACE(c.key());
    const Shape& shape = tensor(c, "weights").shape;
    const std::vector<float> scales = floats(tensor(c, "scales"));
    const std::vector<float> biases = floats(tensor(c, "biases"));
    std::vector<float> values;
    for (std::int64_t r = 0; r < shape[0]; ++r) {
      std::vector<std::uint8_t> codes(static_cast<std::size_t>(shape[1]));
      unpack_affine_codes(c.format.bits, row(c, r).codes, shape[1], codes.data());
      for (std::int64_t i = 0; i < shape[1]; ++i) {
        const std::int64_t group = (r * shape[1] + i) / c.format.group_size;
        const float product = rounded(c.dtype, static_cast<float>(codes[i]) * scales[group]);
        values.push_back(rounded(c.dtype, product + biases[group]));
      }
    }
    expect_same_bits(values, floats(tensor(c, "rounded")));
  }
}

TEST(AffineFormat, CodesScalesAndBiasesAreMlxsBitForBit) {
  bool negative_scale = false;
  for (const AffineCase& c : cases()) {
    SCOPED_TRACE(c.key());
    const Shape& shape = tensor(c, "weights").shape;
    const std::vector<float> weights = floats(tensor(c, "weights"));
    for (std::int64_t r = 0; r < shape[0]; ++r) {
      const auto groups = static_cast<std::size_t>(shape[1] / c.format.group_size);
      std::vector<std::byte> codes(static_cast<std::size_t>(affine_code_bytes(c.format, shape[1])),
                                   std::byte{0xff});
      std::vector<std::byte> scales(groups * dtype_bytes(c.dtype));
      std::vector<std::byte> biases(scales.size());
      quantize_affine_row(c.format, weights.data() + r * shape[1], shape[1], nullptr,
                          {codes.data(), scales.data(), biases.data(), c.dtype});
      const AffineRow expected = row(c, r);
      ASSERT_EQ(codes.size() * static_cast<std::size_t>(shape[0]),
                bytes(tensor(c, "codes")).size());
      ASSERT_EQ(std::memcmp(codes.data(), expected.codes, codes.size()), 0) << "row " << r;
      ASSERT_EQ(std::memcmp(scales.data(), expected.scales, scales.size()), 0) << "row " << r;
      ASSERT_EQ(std::memcmp(biases.data(), expected.biases, biases.size()), 0) << "row " << r;
    }
    for (const float scale : floats(tensor(c, "scales"))) {
      negative_scale = negative_scale || scale < 0.0F;
    }
  }
  EXPECT_TRUE(negative_scale) << "the goldens must hold some";
}

struct StoredRow {
  std::vector<std::byte> codes;
  std::vector<float> scales;
  std::vector<float> biases;
};

StoredRow quantize(AffineFormat format, const std::vector<float>& x) {
  const auto columns = static_cast<std::int64_t>(x.size());
  const std::size_t groups = x.size() / static_cast<std::size_t>(format.group_size);
  StoredRow result{
      std::vector<std::byte>(static_cast<std::size_t>(affine_code_bytes(format, columns))),
      std::vector<float>(groups), std::vector<float>(groups)};
  quantize_affine_row(format, x.data(), columns, nullptr,
                      {result.codes.data(), std::as_writable_bytes(std::span(result.scales)).data(),
                       std::as_writable_bytes(std::span(result.biases)).data(), DType::kF32});
  return result;
}

// Codes that are known beforehand, in every place of a word.
TEST(AffineFormat, CodesAreReadBackFromEveryPlace) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    SCOPED_TRACE(bits);
    const int count = 1 << bits;
    std::vector<float> x(128);
    for (int i = 0; i < 128; ++i) x[i] = static_cast<float>((i * 37 + i / count) % count);
    x[0] = 0.0F;
    x[127] = static_cast<float>(count - 1);
    const StoredRow stored = quantize({bits, 128}, x);
    EXPECT_EQ(stored.scales[0], -1.0F);
    EXPECT_EQ(stored.biases[0], static_cast<float>(count - 1));
    std::vector<std::uint8_t> codes(128);
    unpack_affine_codes(bits, stored.codes.data(), 128, codes.data());
    for (int i = 0; i < 128; ++i) ASSERT_EQ(codes[i], count - 1 - static_cast<int>(x[i])) << i;
  }
}

// A NaN or an overflow in one group leaves the next one alone.
TEST(AffineFormat, NumbersThatAreNotFiniteStayInTheirGroup) {
  std::mt19937 random(1);
  std::vector<float> good(128);
  for (float& value : good) value = static_cast<float>(random() % 7) - 3.0F;
  for (const float bad : {NAN, INFINITY, -INFINITY, 3.4e38F, -3.4e38F}) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      std::vector<float> x = good;
      x[5] = bad;
      x[7] = -bad;
      const AffineFormat format{bits, 64};
      const StoredRow expected = quantize(format, good);
      const StoredRow stored = quantize(format, x);
      const std::size_t half = stored.codes.size() / 2;
      EXPECT_EQ(std::memcmp(stored.codes.data() + half, expected.codes.data() + half, half), 0);
      EXPECT_EQ(stored.scales[1], expected.scales[1]);
      EXPECT_EQ(stored.biases[1], expected.biases[1]);
    }
  }
}

TEST(AffineFormat, AViewsRowsAndRunsAreThoseOfTheWholeTensor) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kColumns = 704;
  constexpr AffineFormat kFormat = {.bits = 5, .group_size = 64};
  std::mt19937 random(3);
  std::vector<float> x(kRows * kColumns);
  for (float& value : x) value = static_cast<float>(random() % 1000) / 500.0F - 1.0F;
  const std::int64_t code_bytes = affine_code_bytes(kFormat, kColumns);
  std::vector<std::byte> codes(static_cast<std::size_t>(kRows * code_bytes));
  std::vector<std::uint16_t> scales(kRows * kColumns / 64);
  std::vector<std::uint16_t> biases(scales.size());
  for (std::int64_t r = 0; r < kRows; ++r) {
    quantize_affine_row(
        kFormat, x.data() + r * kColumns, kColumns, nullptr,
        {codes.data() + r * code_bytes,
         reinterpret_cast<std::byte*>(scales.data() + r * kColumns / 64),
         reinterpret_cast<std::byte*>(biases.data() + r * kColumns / 64), DType::kBF16});
  }
  const TensorView view = {
      .data = codes.data(),
      .shape = {kRows, kColumns},
      .quantization = AffineGroups{.format = kFormat,
                                   .dtype = DType::kBF16,
                                   .scales = reinterpret_cast<const std::byte*>(scales.data()),
                                   .biases = reinterpret_cast<const std::byte*>(biases.data())}};
  EXPECT_EQ(view.bytes(), codes.size());
  const std::vector<float> all = to_f32(view).value();
  for (const std::int64_t skipped : {0, 2, 4}) {
    TensorView rest = view;
    skip_rows(rest, skipped);
    for (std::int64_t row = 0; row < kRows - skipped; ++row) {
      std::vector<float> got(kColumns);
      for (std::int64_t begin = 0; begin < kColumns; begin += kQuantizedRun) {
        copy_to_f32(rest, row, begin, std::min(kQuantizedRun, kColumns - begin),
                    got.data() + begin);
      }
      const auto expected = all.begin() + (skipped + row) * kColumns;
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected)) << skipped << " " << row;
    }
  }
}

TEST(AffineFormat, OnlyMlxsFormatsExist) {
  for (int bits = -1; bits < 10; ++bits) {
    const bool known = (bits >= 2 && bits <= 6) || bits == 8;
    for (const int group_size : {0, 16, 32, 64, 96, 128, 256}) {
      const bool group_known = group_size == 32 || group_size == 64 || group_size == 128;
      EXPECT_EQ(affine_format_exists({bits, group_size}), known && group_known);
    }
  }
}

}  // namespace
}  // namespace kakeya
