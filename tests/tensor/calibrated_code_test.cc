// Calibrated codes against vectors that were coded elsewhere (tools/golden_kv_codes.py), and what
// holds of them for all vectors.
#include "tensor/calibrated_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tensor/kv_format.h"

namespace kakeya::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::IsNan;
using testing::Pointwise;

// A code with its tables.
class OwnCode {
 public:
  static OwnCode of_keys(std::span<const float> mean,
                         std::span<const float> variance,
                         std::span<const float> cost,
                         int bits) {
    Tables tables = tables_for(mean.size());
    return {tables, CalibratedCode::of_keys(mean, variance, cost, bits, address(tables))};
  }
  static OwnCode of_values(std::span<const float> mean, int bits) {
    Tables tables = tables_for(mean.size());
    return {tables, CalibratedCode::of_values(mean, bits, address(tables))};
  }
  const CalibratedCode& operator*() const { return code_; }
  const CalibratedCode* operator->() const { return &code_; }

 private:
  // Aligned as groups are.
  using Tables = std::shared_ptr<std::vector<CodeGroup>>;
  OwnCode(Tables tables, const CalibratedCode& code) : tables_(std::move(tables)), code_(code) {}
  static Tables tables_for(std::size_t size) {
    const std::size_t bytes = CalibratedCode::table_bytes(static_cast<std::int64_t>(size));
    return std::make_shared<std::vector<CodeGroup>>(bytes / sizeof(CodeGroup) + 1);
  }
  static std::byte* address(const Tables& tables) {
    return reinterpret_cast<std::byte*>(tables->data());
  }

  Tables tables_;
  CalibratedCode code_;
};

std::vector<float> code_and_read(const OwnCode& own, const std::vector<float>& x) {
  const CalibratedCode& code = *own;
  std::vector<std::byte> bytes(static_cast<std::size_t>(code.bytes()), std::byte{0xff});
  code.encode(x.data(), bytes.data());
  std::vector<float> read(x.size(), NAN);
  code.decode(bytes.data(), read.data());
  return read;
}

std::vector<float> spread(std::size_t size, unsigned seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> x(size);
  for (float& value : x) value = normal(random);
  return x;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
  return sum;
}

// A code of keys all of whose elements are alike.
OwnCode even_code(std::size_t size, int bits) {
  const std::vector<float> ones(size, 1.0F);
  return OwnCode::of_keys(std::vector<float>(size, 0.0F), ones, ones, bits);
}

TEST(CalibratedCode, ReadsBackWhatAnotherImplementationReads) {
  std::ifstream file(KAKEYA_TEST_DATA "/kv/calibrated.json");
  const auto cases = nlohmann::json::parse(file).at("cases");
  ASSERT_EQ(cases.size(), 5U);
  for (const auto& json : cases) {
    const auto numbers = [&](const char* name) { return json.at(name).get<std::vector<float>>(); };
    const int bits = json.at("bits");
    const std::vector<float> mean = numbers("mean");
    const OwnCode keys = OwnCode::of_keys(mean, numbers("variance"), numbers("cost"), bits);
    const OwnCode values = OwnCode::of_values(mean, bits);
    std::vector<int> key_bits(keys->bits().begin(), keys->bits().end());
    EXPECT_EQ(key_bits, json.at("key_bits").get<std::vector<int>>());
    for (std::size_t row = 0; row < json.at("x").size(); ++row) {
      const auto x = json.at("x")[row].get<std::vector<float>>();
      SCOPED_TRACE(x.size());
      // Sums are rounded to f32 on the way; a code next to it would be off by a hundred times more.
      EXPECT_THAT(
          code_and_read(keys, x),
          Pointwise(testing::FloatNear(2e-4F), json.at("keys")[row].get<std::vector<float>>()));
      EXPECT_THAT(
          code_and_read(values, x),
          Pointwise(testing::FloatNear(2e-4F), json.at("values")[row].get<std::vector<float>>()));
    }
  }
}

TEST(CalibratedCode, BitsGoWhereErrorsCostMost) {
  EXPECT_THAT(share_bits(std::vector<float>{1.0F, 100.0F, 1.0F, 0.0F}, 5), ElementsAre(1, 4, 0, 0));
  EXPECT_THAT(share_bits(std::vector<float>{1e9F, 1.0F}, 9), ElementsAre(7, 2));
  EXPECT_THAT(share_bits(std::vector<float>{1.0F, 1.0F}, 100), ElementsAre(7, 7));
}

TEST(CalibratedCode, TakesTheBytesThatItSays) {
  EXPECT_EQ(CalibratedCode::key_bytes(64, 4), 34);
  EXPECT_EQ(CalibratedCode::value_bytes(64, 4), 36);
  EXPECT_EQ(CalibratedCode::key_bytes(512, 3), 194);
  EXPECT_EQ(CalibratedCode::key_bytes(16, 2), kCodeWindow);  // a window is always there
  for (const std::size_t size : {16U, 48U, 64U, 80U, 256U, 512U}) {
    for (int bits = 2; bits <= 6; ++bits) {
      const OwnCode code = even_code(size, bits);
      EXPECT_EQ(code->bytes(), CalibratedCode::key_bytes(static_cast<std::int64_t>(size), bits));
      EXPECT_EQ(std::accumulate(code->bits().begin(), code->bits().end(), 0),
                static_cast<int>(size) * bits);
    }
  }
}

// The tables by which backends read, against the plain loops.
TEST(CalibratedCode, TablesReadWhatTheLoopsRead) {
  for (const std::size_t size : {16U, 64U, 80U, 512U}) {
    for (int bits = 2; bits <= 6; ++bits) {
      std::vector<float> variance = spread(size, 3, 1.0F);
      for (float& value : variance) value = std::exp(2.0F * value);
      const OwnCode code =
          OwnCode::of_keys(spread(size, 1, 1.0F), variance, std::vector<float>(size, 1.0F), bits);
      const std::vector<float> x = spread(size, 2, 2.0F);
      std::vector<std::byte> bytes(static_cast<std::size_t>(code->bytes()));
      code->encode(x.data(), bytes.data());
      std::vector<float> expected(size);
      code->decode(bytes.data(), expected.data());
      const CodeView view = code->view();
      std::uint16_t scale_bits = 0;
      std::memcpy(&scale_bits, bytes.data(), sizeof(scale_bits));
      const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(scale_bits) << 16);
      for (std::size_t i = 0; i < size; ++i) {
        const CodeGroup& group = view.groups[i / kCodeGroup];
        ASSERT_GE(group.first, 0);
        ASSERT_LE(group.first + kCodeWindow, code->bytes());
        const std::size_t lane = i % kCodeGroup;
        const auto byte = [&](std::size_t part) {
          return std::to_integer<std::uint32_t>(
              bytes[static_cast<std::size_t>(group.first) + group.shuffle[4 * lane + part]]);
        };
        const std::uint32_t read =
            ((byte(0) | byte(1) << 8) >> group.shift[lane]) & group.mask[lane];
        EXPECT_FLOAT_EQ(
            scale * (static_cast<float>(read) * view.step[i] + view.base[i]) + view.mean[i],
            expected[i]);
      }
    }
  }
}

TEST(CalibratedCode, IsNearerWithEachBit) {
  for (const bool values : {false, true}) {
    double before = INFINITY;
    for (int bits = 2; bits <= 6; ++bits) {
      const std::vector<float> x = spread(128, 5, 1.0F);
      const OwnCode code =
          values ? OwnCode::of_values(std::vector<float>(128, 0.0F), bits) : even_code(128, bits);
      const double error = squared_error(code_and_read(code, x), x);
      EXPECT_LT(error, before / 2.5) << bits << (values ? " values" : " keys");
      before = error;
    }
  }
}

TEST(CalibratedCode, ReadsTheMeanWhereNothingDiffersFromIt) {
  const std::vector<float> mean = spread(64, 9, 3.0F);
  const std::vector<float> ones(64, 1.0F);
  EXPECT_EQ(code_and_read(OwnCode::of_keys(mean, ones, ones, 4), mean), mean);
  EXPECT_THAT(code_and_read(even_code(64, 3), std::vector<float>(64, 0.0F)), Each(FloatEq(0.0F)));
}

TEST(CalibratedCode, NumbersThatAreNotFiniteMakeItNan) {
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> x = spread(64, 4, 1.0F);
    x[40] = odd;
    EXPECT_THAT(code_and_read(even_code(64, 4), x), Each(IsNan()));
    EXPECT_THAT(code_and_read(OwnCode::of_values(std::vector<float>(64, 0.0F), 4), x),
                Each(IsNan()));
  }
}

TEST(CalibratedCode, TakesStatisticsOfElementsThatNeverChange) {
  std::vector<float> variance(64, 0.0F);
  const std::vector<float> mean(64, 1.5F);
  const OwnCode code = OwnCode::of_keys(mean, variance, std::vector<float>(64), 4);
  for (const float value : code_and_read(code, spread(64, 6, 1.0F)))
    EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(code_and_read(code, mean), mean);
}

}  // namespace
}  // namespace kakeya::test
