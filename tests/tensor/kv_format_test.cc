// How far a stored vector is from the one that was given, for every format.
#include "tensor/kv_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace kakeya::test {
namespace {

constexpr KvFormat kAll[] = {KvFormat::kF32,  KvFormat::kBf16,        KvFormat::kInt8,
                             KvFormat::kInt4, KvFormat::kRotatedInt4, KvFormat::kD4,
                             KvFormat::kE8};
constexpr KvFormat kRotated[] = {KvFormat::kRotatedInt4, KvFormat::kD4, KvFormat::kE8};

std::vector<float> round_trip(KvFormat format, const std::vector<float>& x) {
  const auto size = static_cast<std::int64_t>(x.size());
  std::vector<std::byte> bytes(static_cast<std::size_t>(kv_vector_bytes(format, size)));
  encode_kv(format, x.data(), size, bytes.data());
  std::vector<float> y(x.size(), NAN);
  decode_kv(format, bytes.data(), size, y.data());
  return y;
}

std::vector<float> normal_vector(std::mt19937& random, std::size_t size, float scale) {
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> x(size);
  for (float& value : x) value = normal(random);
  return x;
}

double norm(const std::vector<float>& x) {
  double squares = 0.0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  std::vector<float> difference(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) difference[i] = x[i] - y[i];
  return norm(difference) / norm(x);
}

float largest(const std::vector<float>& x) {
  float result = 0.0F;
  for (const float value : x) result = std::max(result, std::fabs(value));
  return result;
}

TEST(KvFormat, NamesAreReadAsTheyAreWritten) {
  for (const KvFormat format : kAll) EXPECT_EQ(parse_kv_format(kv_format_name(format)), format);
  EXPECT_EQ(parse_kv_format("q8"), std::nullopt);
}

TEST(KvFormat, TakesTheBytesThatAreDocumented) {
  EXPECT_EQ(kv_vector_bytes(KvFormat::kF32, 512), 2048);
  EXPECT_EQ(kv_vector_bytes(KvFormat::kBf16, 512), 1024);
  EXPECT_EQ(kv_vector_bytes(KvFormat::kInt8, 512), 516);
  EXPECT_EQ(kv_vector_bytes(KvFormat::kInt4, 512), 288);
  for (const KvFormat format : kRotated) EXPECT_EQ(kv_vector_bytes(format, 512), 260);
}

TEST(KvFormat, SaysWhichHeadsItCanStore) {
  EXPECT_TRUE(kv_format_supports(KvFormat::kInt8, 17));
  EXPECT_TRUE(kv_format_supports(KvFormat::kInt4, 96));
  EXPECT_FALSE(kv_format_supports(KvFormat::kInt4, 40));
  for (const KvFormat format : kRotated) {
    EXPECT_TRUE(kv_format_supports(format, 8));
    EXPECT_TRUE(kv_format_supports(format, 512));
    EXPECT_FALSE(kv_format_supports(format, 96));
    EXPECT_FALSE(kv_format_supports(format, 4));
    EXPECT_FALSE(kv_format_supports(format, 1024));
  }
}

TEST(KvFormat, HadamardIsItsOwnInverseAndKeepsTheNorm) {
  std::mt19937 random(1);
  for (const std::size_t size : {8U, 32U, 512U}) {
    const std::vector<float> x = normal_vector(random, size, 1.0F);
    std::vector<float> y = x;
    hadamard_transform(y.data(), static_cast<std::int64_t>(size));
    EXPECT_GT(relative_error(x, y), 0.5);
    EXPECT_NEAR(norm(y), norm(x), 1e-5 * norm(x));
    hadamard_transform(y.data(), static_cast<std::int64_t>(size));
    EXPECT_LT(relative_error(x, y), 1e-6);  // 2 log2(512) roundings of 6e-8
  }
}

// A code is at most half a step away, and its product with the scale is rounded once more.
TEST(KvFormat, Int8IsWithinHalfAStep) {
  std::mt19937 random(2);
  for (const float scale : {1e-30F, 1.0F, 1e30F}) {
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> x = normal_vector(random, 64, scale);
      const std::vector<float> y = round_trip(KvFormat::kInt8, x);
      const float bound = largest(x) / 127.0F * 0.50001F;
      for (std::size_t e = 0; e < x.size(); ++e) EXPECT_LE(std::fabs(x[e] - y[e]), bound);
    }
  }
}

// Steps are an eighth of the group's extreme (bf16: 2^-9 more or less); one opposite to the extreme
// may lie a whole step above the highest code, and rounding the scale adds 8 * 2^-9 of a step.
TEST(KvFormat, Int4IsWithinAStepOfItsGroup) {
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    std::vector<float> x = normal_vector(random, 64, 1.0F);
    x[40] = 30.0F;  // an outlier is the affair of its own group
    const std::vector<float> y = round_trip(KvFormat::kInt4, x);
    for (std::size_t begin = 0; begin < 64; begin += 32) {
      const std::vector<float> group(x.begin() + begin, x.begin() + begin + 32);
      for (std::size_t e = begin; e < begin + 32; ++e) {
        EXPECT_LE(std::fabs(x[e] - y[e]), largest(group) / 8.0F * 1.02F) << e;
      }
    }
  }
}

// At best 16 levels lose 0.0115 of the variance of a normal distribution (Max, "Quantizing for
// minimum distortion", 1960: uniform); E8 gains 0.65 dB on that, D4 loses a little because only 18
// of the 19.0 levels that 16 bits have room for are used. Outliers make nothing worse: they are
// rotated.
TEST(KvFormat, RotatedFormatsLoseWhatTheoryGivesThem) {
  std::mt19937 random(4);
  const auto mean_squared_error = [&](KvFormat format, bool outlier) {
    double error = 0.0;
    constexpr int kVectors = 400;
    for (int i = 0; i < kVectors; ++i) {
      std::vector<float> x = normal_vector(random, 512, 3.0F);
      if (outlier) x[7] = 40.0F;
      const double relative = relative_error(x, round_trip(format, x));
      error += relative * relative / kVectors;
    }
    return error;
  };
  EXPECT_NEAR(mean_squared_error(KvFormat::kRotatedInt4, false), 0.0115, 0.0004);
  EXPECT_NEAR(mean_squared_error(KvFormat::kD4, false), 0.0119, 0.0004);
  EXPECT_NEAR(mean_squared_error(KvFormat::kE8, false), 0.0100, 0.0004);
  // A group of 32 would lose all but its outlier.
  for (const KvFormat format : kRotated) EXPECT_LT(mean_squared_error(format, true), 0.0119);
}

// Whatever is encoded, outliers and out-of-range blocks included, is decoded to lattice points: in
// units of the scale every block is whole (or whole and a half, E8) with an even sum.
TEST(KvFormat, DecodedBlocksAreLatticePoints) {
  std::mt19937 random(5);
  constexpr std::int64_t kSize = 64;
  for (const KvFormat format : {KvFormat::kD4, KvFormat::kE8}) {
    const std::int64_t coordinates = format == KvFormat::kD4 ? 4 : 8;
    const std::int64_t blocks = kSize / coordinates;
    for (std::int64_t seen = 0; seen < 1'000'000; seen += blocks) {
      std::vector<float> x = normal_vector(random, kSize, 1.0F);
      if (seen % 3 == 0) x[seen % kSize] *= 100.0F;
      std::vector<std::byte> bytes(static_cast<std::size_t>(kv_vector_bytes(format, kSize)));
      encode_kv(format, x.data(), kSize, bytes.data());
      // The scale 1 and a Hadamard transform undo the scale and the rotation.
      const float one = 1.0F;
      std::memcpy(bytes.data(), &one, sizeof(one));
      std::vector<float> z(kSize);
      decode_kv(format, bytes.data(), kSize, z.data());
      hadamard_transform(z.data(), kSize);
      for (std::int64_t b = 0; b < blocks; ++b) {
        const double coset = std::fabs(z[b] - std::nearbyint(z[b])) > 0.25F ? 0.5 : 0.0;
        double sum = 0.0;
        for (std::int64_t i = 0; i < coordinates; ++i) {
          const double c = z[i * blocks + b] - coset;
          ASSERT_NEAR(c, std::nearbyint(c), 1e-4) << kv_format_name(format);
          sum += std::nearbyint(c);
        }
        ASSERT_EQ(std::fmod(sum, 2.0), 0.0) << kv_format_name(format);
        if (format == KvFormat::kD4) {
          ASSERT_EQ(coset, 0.0);
        }
      }
    }
  }
}

TEST(KvFormat, ZeroHugeAndDenormalVectorsSurvive) {
  for (const KvFormat format : kAll) {
    SCOPED_TRACE(std::string(kv_format_name(format)));
    EXPECT_EQ(round_trip(format, std::vector<float>(64, 0.0F)), std::vector<float>(64, 0.0F));
    std::mt19937 random(6);
    // Half the largest float leaves room for rounding up; its sum of 64 would overflow.
    for (const float scale : {1.5e38F, 1e-38F, 1e-42F, 1e-45F}) {
      std::vector<float> x(64);
      for (float& value : x) value = (random() % 2 == 0 ? 1.0F : -1.0F) * scale;
      x[3] = 0.0F;
      const std::vector<float> y = round_trip(format, x);
      for (const float value : y) ASSERT_TRUE(std::isfinite(value)) << scale;
      // Equal magnitudes are the best case of every format; scales below 1e-38 lose their own bits.
      if (scale > 1e-40F) {
        EXPECT_LT(relative_error(x, y), 0.2) << scale;
      }
    }
  }
}

TEST(KvFormat, NumbersThatAreNotFiniteAreNotHidden) {
  for (const KvFormat format : kAll) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(64, 1.0F);
      x[5] = bad;
      EXPECT_FALSE(std::isfinite(round_trip(format, x)[5])) << kv_format_name(format);
    }
  }
}

}  // namespace
}  // namespace kakeya::test
