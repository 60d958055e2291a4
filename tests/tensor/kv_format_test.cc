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
  for (const KvFormat format : kKvFormats) {
    EXPECT_EQ(parse_kv_format(kv_format_name(format)), format);
  }
  EXPECT_EQ(parse_kv_format("q8"), std::nullopt);
}

TEST(KvFormat, RemovedTypesAreNeitherReadNorWritten) {
  for (const std::string_view name : kRemovedKvTypes) {
    EXPECT_EQ(removed_kv_type_refusal(name),
              std::string(name) + " " + std::string(kRemovedKvTypeRefusal));
    EXPECT_EQ(parse_kv_format(name), std::nullopt) << name;
  }
  for (const auto& [name, type] : kKvTypes) EXPECT_EQ(removed_kv_type_refusal(name), "") << name;
}

TEST(KvFormat, TakesTheBytesThatAreDocumented) {
  EXPECT_EQ(kv_vector_bytes(KvFormat::kF32, 512), 2048);
  EXPECT_EQ(kv_vector_bytes(KvFormat::kBf16, 512), 1024);
  EXPECT_EQ(kv_vector_bytes(KvFormat::kInt8, 512), 516);
  EXPECT_EQ(kv_vector_bytes(KvFormat::kE8, 512), 260);
}

TEST(KvFormat, SaysWhichHeadsItCanStore) {
  EXPECT_TRUE(kv_format_supports(KvFormat::kInt8, 17));
  for (const std::int64_t size : {8, 512}) {
    EXPECT_TRUE(kv_format_supports(KvFormat::kE8, size));
  }
  for (const std::int64_t size : {4, 96, 1024}) {
    EXPECT_FALSE(kv_format_supports(KvFormat::kE8, size));
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

// At best 16 levels lose 0.0115 of the variance of a normal distribution (Max, "Quantizing for
// minimum distortion", 1960: uniform); E8 gains 0.65 dB on that. Outliers make nothing worse: they
// are rotated.
TEST(KvFormat, E8LosesWhatTheoryGivesIt) {
  std::mt19937 random(4);
  const auto mean_squared_error = [&](bool outlier) {
    double error = 0.0;
    constexpr int kVectors = 400;
    for (int i = 0; i < kVectors; ++i) {
      std::vector<float> x = normal_vector(random, 512, 3.0F);
      if (outlier) x[7] = 40.0F;
      const double relative = relative_error(x, round_trip(KvFormat::kE8, x));
      error += relative * relative / kVectors;
    }
    return error;
  };
  EXPECT_NEAR(mean_squared_error(false), 0.0100, 0.0004);
  EXPECT_LT(mean_squared_error(true), 0.0119);
}

// Whatever is encoded, outliers and out-of-range blocks included, is decoded to lattice points: in
// units of the scale every block is whole, or whole and a half, with an even sum.
TEST(KvFormat, DecodedBlocksAreLatticePoints) {
  std::mt19937 random(5);
  constexpr std::int64_t kSize = 64;
  constexpr std::int64_t kBlocks = kSize / 8;
  for (std::int64_t seen = 0; seen < 1'000'000; seen += kBlocks) {
    std::vector<float> x = normal_vector(random, kSize, 1.0F);
    if (seen % 3 == 0) x[seen % kSize] *= 100.0F;
    std::vector<std::byte> bytes(static_cast<std::size_t>(kv_vector_bytes(KvFormat::kE8, kSize)));
    encode_kv(KvFormat::kE8, x.data(), kSize, bytes.data());
    // The scale 1 and a Hadamard transform undo the scale and the rotation.
    const float one = 1.0F;
    std::memcpy(bytes.data(), &one, sizeof(one));
    std::vector<float> z(kSize);
    decode_kv(KvFormat::kE8, bytes.data(), kSize, z.data());
    hadamard_transform(z.data(), kSize);
    for (std::int64_t b = 0; b < kBlocks; ++b) {
      const double coset = std::fabs(z[b] - std::nearbyint(z[b])) > 0.25F ? 0.5 : 0.0;
      double sum = 0.0;
      for (std::int64_t i = 0; i < 8; ++i) {
        const double c = z[i * kBlocks + b] - coset;
        ASSERT_NEAR(c, std::nearbyint(c), 1e-4);
        sum += std::nearbyint(c);
      }
      ASSERT_EQ(std::fmod(sum, 2.0), 0.0);
    }
  }
}

TEST(KvFormat, ZeroHugeAndDenormalVectorsSurvive) {
  for (const KvFormat format : kKvFormats) {
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
  for (const KvFormat format : kKvFormats) {
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
