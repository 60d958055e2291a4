// Coding with an importance: never worse than without by the weighted error, whatever the numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_budget.h"
#include "base/thread_pool.h"
#include "convert/importance.h"
#include "convert/tensor_encoder.h"
#include "tensor/affine_format.h"
#include "tensor/block_encoder.h"

namespace kakeya {
namespace {

constexpr std::size_t kBlock = 256;

// Decodes what a coder with these factors (nullptr: none) has made of a row.
class Coder {
 public:
  virtual ~Coder() = default;
  virtual std::vector<float> decoded(const std::vector<float>& x, const float* factors) const = 0;
  virtual std::string name() const = 0;
  // The share of the plain errors that weighted ones have to stay below, in all, on random numbers
  // and factors.
  virtual double gain() const { return 1.0; }
};

class BlockCoder final : public Coder {
 public:
  explicit BlockCoder(QuantizedFormat format) : format_(format) {}
  std::string name() const override { return std::string(quantized_format_name(format_)); }
  std::vector<float> decoded(const std::vector<float>& x, const float* factors) const override {
    const auto columns = std::ssize(x);
    std::vector<std::byte> row(static_cast<std::size_t>(quantized_row_bytes(format_, columns)));
    quantize_row(format_, x.data(), columns, factors, row.data());
    std::vector<float> values(x.size(), NAN);
    dequantize_row(format_, row.data(), columns, values.data());
    return values;
  }
  double gain() const override { return format_ == QuantizedFormat::kQ80 ? 0.95 : 0.8; }

 private:
  QuantizedFormat format_;
};

class AffineCoder final : public Coder {
 public:
  AffineCoder(AffineFormat format, DType dtype) : format_(format), dtype_(dtype) {}
  std::string name() const override {
    return "affine " + std::to_string(format_.bits) + " by " + std::to_string(format_.group_size) +
           " " + std::string(dtype_name(dtype_));
  }
  std::vector<float> decoded(const std::vector<float>& x, const float* factors) const override {
    const auto columns = std::ssize(x);
    std::vector<std::byte> codes(static_cast<std::size_t>(affine_code_bytes(format_, columns)));
    std::vector<std::byte> scales(x.size() * 4);
    std::vector<std::byte> biases(x.size() * 4);
    quantize_affine_row(format_, x.data(), columns, factors,
                        {codes.data(), scales.data(), biases.data(), dtype_});
    std::vector<float> values(x.size(), NAN);
    dequantize_affine_row(format_, {codes.data(), scales.data(), biases.data(), dtype_}, columns,
                          values.data());
    return values;
  }
  double gain() const override { return 0.8; }

 private:
  AffineFormat format_;
  DType dtype_;
};

std::vector<std::unique_ptr<Coder>> all_coders() {
  std::vector<std::unique_ptr<Coder>> coders;
  for (const QuantizedFormat format : all_quantized_formats()) {
    if (can_quantize(format)) coders.push_back(std::make_unique<BlockCoder>(format));
  }
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group_size : {32, 64, 128}) {
      const DType dtype = bits == 3 ? DType::kF32 : bits == 5 ? DType::kF16 : DType::kBF16;
      coders.push_back(std::make_unique<AffineCoder>(
          AffineFormat{.bits = bits, .group_size = group_size}, dtype));
    }
  }
  return coders;
}

double weighted_error(const std::vector<float>& x,
                      const std::vector<float>& values,
                      const std::vector<float>& factors) {
  double error = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += factors[i] * std::pow(static_cast<double>(values[i]) - x[i], 2);
  }
  return error;
}

// Numbers and factors of many kinds, one block of each.
std::vector<float> some_numbers(std::mt19937& random, int kind) {
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<float> x(kBlock);
  for (float& value : x) value = normal(random);
  if (kind == 1) x[random() % kBlock] = 1.0F;  // an outlier
  if (kind == 2) std::fill(x.begin(), x.end(), 0.0F);
  if (kind == 3) std::fill(x.begin(), x.end(), -0.37F);
  if (kind == 4) {
    for (float& value : x) value = std::fabs(value) + 3.0F;  // far from zero
  }
  if (kind == 5) {
    for (float& value : x) value *= 1e-6F;
  }
  if (kind == 6) std::fill_n(x.begin(), 128, 0.0F);
  if (kind == 7) x[3] = -65504.0F;
  return x;
}

std::vector<float> some_factors(std::mt19937& random, int kind) {
  std::vector<float> factors(kBlock);
  for (float& factor : factors) {
    factor = std::exp(-0.02F * static_cast<float>(random() % 500));
  }
  if (kind == 1) std::fill(factors.begin(), factors.end(), 0.0F);
  if (kind == 2) std::fill_n(factors.begin(), 200, 0.0F);
  if (kind == 3) std::fill(factors.begin(), factors.end(), 1e-30F);
  if (kind == 4) factors[random() % kBlock] = 1e6F;
  return factors;
}

TEST(WeightedEncoder, NeverLeavesALargerWeightedErrorInAnyBlock) {
  for (const auto& coder : all_coders()) {
    SCOPED_TRACE(coder->name());
    std::mt19937 random(1);
    for (int round = 0; round < 160; ++round) {
      const std::vector<float> x = some_numbers(random, round % 8);
      const std::vector<float> factors = some_factors(random, round / 8 % 5);
      const std::vector<float> plain = coder->decoded(x, nullptr);
      const std::vector<float> weighted = coder->decoded(x, factors.data());
      for (const float value : weighted) ASSERT_TRUE(std::isfinite(value)) << round;
      ASSERT_LE(weighted_error(x, weighted, factors), weighted_error(x, plain, factors)) << round;
    }
  }
}

// The purpose of factors: errors that count become much smaller.
TEST(WeightedEncoder, MovesErrorsWhereTheyMatterLess) {
  for (const auto& coder : all_coders()) {
    std::mt19937 random(2);
    double plain = 0.0;
    double weighted = 0.0;
    for (int round = 0; round < 40; ++round) {
      const std::vector<float> x = some_numbers(random, 0);
      const std::vector<float> factors = some_factors(random, 0);
      plain += weighted_error(x, coder->decoded(x, nullptr), factors);
      weighted += weighted_error(x, coder->decoded(x, factors.data()), factors);
    }
    EXPECT_LT(weighted, coder->gain() * plain) << coder->name() << " " << weighted / plain;
  }
}

// A factor for all of them changes no decision.
TEST(WeightedEncoder, DependsOnTheProportionsOfFactorsOnly) {
  for (const auto& coder : all_coders()) {
    std::mt19937 random(3);
    const std::vector<float> x = some_numbers(random, 0);
    std::vector<float> factors = some_factors(random, 0);
    const std::vector<float> values = coder->decoded(x, factors.data());
    for (float& factor : factors) factor *= 64.0F;
    EXPECT_EQ(coder->decoded(x, factors.data()), values) << coder->name();
  }
}

// Each matrix of a stack has factors of its own, also where only a part of its rows is written.
TEST(WeightedEncoder, RowsOfAStackHaveTheFactorsOfTheirMatrix) {
  constexpr std::int64_t kMatrices = 3;
  constexpr std::int64_t kRows = 4;
  constexpr std::int64_t kColumns = 64;
  std::mt19937 random(4);
  std::vector<float> values;
  while (std::ssize(values) < kMatrices * kRows * kColumns) {
    const std::vector<float> block = some_numbers(random, 0);
    values.insert(values.end(), block.begin(), block.end());
  }
  MemoryBudget budget;
  ColumnImportance factors = {.matrices = kMatrices, .columns = kColumns};
  factors.factors =
      budget.allocate(MemoryClass::kWeights, kMatrices * kColumns * sizeof(float)).value();
  for (std::int64_t i = 0; i < kMatrices * kColumns; ++i) {
    factors.factors.as<float>()[i] = static_cast<float>(random() % 1000);
  }
  const float* factors_of = factors.of_matrix(0);
  Importance importance;
  importance.set("experts", std::move(factors));
  const TensorRows all(TensorView{.data = reinterpret_cast<const std::byte*>(values.data()),
                                  .shape = {kMatrices, kRows, kColumns},
                                  .name = "experts"});
  const std::vector<OutputTensor> tensors = {{"b.weight", all.slice(2, 2), QuantizedFormat::kQ40}};
  ThreadPool pool({.num_threads = 1, .pin = false});
  TensorEncoder encoder(tensors, {}, budget, pool, &importance);
  std::vector<std::byte> written;
  ASSERT_TRUE(encoder
                  .encode(tensors[0],
                          [&](std::size_t, std::span<const std::byte> bytes) {
                            written.insert(written.end(), bytes.begin(), bytes.end());
                            return Status();
                          })
                  .has_value());
  std::vector<std::byte> expected;
  for (std::int64_t m = 0; m < kMatrices; ++m) {
    for (std::int64_t r = 2; r < kRows; ++r) {
      std::vector<std::byte> row(
          static_cast<std::size_t>(quantized_row_bytes(QuantizedFormat::kQ40, kColumns)));
      quantize_row(QuantizedFormat::kQ40, values.data() + (m * kRows + r) * kColumns, kColumns,
                   factors_of + m * kColumns, row.data());
      expected.insert(expected.end(), row.begin(), row.end());
    }
  }
  EXPECT_EQ(written, expected);
}

}  // namespace
}  // namespace kakeya
