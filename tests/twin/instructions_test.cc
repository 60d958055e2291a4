// The twins' instructions give what Intel's manual says, and what the hardware gives where there is
// some.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "backend/backend_fixture.h"
#include "twin/instruction_programs.h"
#include "twin/tile_instructions.h"

namespace kakeya::twin {
namespace {

struct Kind {
  const char* name;
  MultiplyTiles multiply_tiles;  // nullptr: this machine has none
  AddProducts add_bytes;
  AddProducts add_words;
};

bool supports(std::string_view unit) {
  for (const InstructionSetSupport& set : instruction_sets()) {
    if (set.name == unit) return set.supported;
  }
  return false;
}

std::vector<Kind> kinds() {
  std::vector<Kind> all;
#if defined(__x86_64__)
  all.push_back({"software", supports("avx512_bf16") ? software::multiply_tiles : nullptr,
                 supports("avx2") ? software::add_bytes : nullptr,
                 supports("avx2") ? software::add_words : nullptr});
  all.push_back({"hardware", supports("amx_bf16") ? hardware::multiply_tiles : nullptr,
                 supports("avx2_vnni") ? hardware::add_bytes : nullptr,
                 supports("avx2_vnni") ? hardware::add_words : nullptr});
#endif
  return all;
}

class Instructions : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, Instructions, testing::ValuesIn(kinds()), [](const auto& test) {
  return test.param.name;
});

struct Tile {
  std::byte rows[16][64];

  template <typename T>
  T at(int row, int index) const {
    T value;
    std::memcpy(&value, rows[row] + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void set(int row, int index, T value) {
    std::memcpy(rows[row] + static_cast<std::size_t>(index) * sizeof(T), &value, sizeof(T));
  }
};

// Denormal numbers are 0.
float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}
float fused(float a, float b, float c) {
  return flushed(std::fma(flushed(a), flushed(b), flushed(c)));
}

float wide(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float expected_bf16(const Tile& a, const Tile& b, int m, int n, int groups, float sum) {
  float first = 0.0F;
  float second = 0.0F;
  for (int k = 0; k < groups; ++k) {
    first = fused(wide(a.at<std::uint16_t>(m, 2 * k)), wide(b.at<std::uint16_t>(k, 2 * n)), first);
    second = fused(wide(a.at<std::uint16_t>(m, 2 * k + 1)), wide(b.at<std::uint16_t>(k, 2 * n + 1)),
                   second);
  }
  return flushed(flushed(sum) + flushed(first + second));
}

std::uint32_t expected_integer(
    const Tile& a, const Tile& b, int m, int n, int groups, bool is_signed, std::uint32_t sum) {
  for (int i = 0; i < 4 * groups; ++i) {
    const auto x = a.at<std::int8_t>(m, i);
    const int y = is_signed ? b.at<std::int8_t>(i / 4, 4 * n + i % 4)
                            : b.at<std::uint8_t>(i / 4, 4 * n + i % 4);
    sum += static_cast<std::uint32_t>(x * y);
  }
  return sum;
}

// Numbers of every size: of order 1, huge, tiny, denormal, of both zeros.
std::uint16_t any_bf16(std::mt19937& generator) {
  const auto bits = static_cast<std::uint16_t>(generator());
  switch (generator() % 8) {
    case 0:
      return static_cast<std::uint16_t>(bits & 0x807fU);  // denormal or zero
    case 1:
      return static_cast<std::uint16_t>((bits & 0x807fU) | 0x1000U);  // products underflow
    case 2:
      return static_cast<std::uint16_t>((bits & 0x80ffU) | 0x5000U);
    default:
      return static_cast<std::uint16_t>((bits & 0x81ffU) | 0x3e00U);
  }
}

constexpr int kShapes[][3] = {{16, 16, 16}, {1, 16, 16}, {7, 16, 16}, {16, 8, 16},
                              {9, 8, 16},   {16, 16, 3}, {3, 1, 1}};

TEST_P(Instructions, MultiplyTilesOfBf16) {
  if (GetParam().multiply_tiles == nullptr) GTEST_SKIP() << "this machine has no such instruction";
  std::mt19937 generator(1);
  for (int round = 0; round < 200; ++round) {
    const auto& [rows, groups, columns] = kShapes[round % std::size(kShapes)];
    Tile a;
    Tile b;
    Tile sums;
    for (int row = 0; row < 16; ++row) {
      for (int i = 0; i < 32; ++i) {
        a.set(row, i, any_bf16(generator));
        b.set(row, i, any_bf16(generator));
      }
      for (int i = 0; i < 16; ++i) {
        sums.set(row, i, static_cast<std::uint32_t>(any_bf16(generator)) << 16 | 0x1234U);
      }
    }
    const Tile before = sums;
    GetParam().multiply_tiles(TileProduct::kBf16, rows, groups, columns, a.rows[0], b.rows[0],
                              sums.rows[0]);
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        float expected = before.at<float>(m, n);  // beyond the tile memory stays
        if (m < rows && n < columns) expected = expected_bf16(a, b, m, n, groups, expected);
        ASSERT_EQ(sums.at<std::uint32_t>(m, n), std::bit_cast<std::uint32_t>(expected))
            << rows << "x" << groups << "x" << columns << " at " << m << ", " << n;
      }
    }
  }
}

TEST_P(Instructions, MultiplyTilesOfBytes) {
  if (GetParam().multiply_tiles == nullptr) GTEST_SKIP() << "this machine has no such instruction";
  std::mt19937 generator(2);
  for (int round = 0; round < 200; ++round) {
    const auto& [rows, groups, columns] = kShapes[round % std::size(kShapes)];
    Tile a;
    Tile b;
    Tile sums;
    for (int row = 0; row < 16; ++row) {
      for (int i = 0; i < 16; ++i) {
        // Rounds of the largest numbers, whose sums wrap around.
        a.set(row, i, round % 5 == 0 ? 0x80808080U : static_cast<std::uint32_t>(generator()));
        b.set(row, i, round % 5 == 0 ? 0x80ff80ffU : static_cast<std::uint32_t>(generator()));
        sums.set(row, i, round % 5 == 0 ? 0x7fffff00U : static_cast<std::uint32_t>(generator()));
      }
    }
    for (const TileProduct product : {TileProduct::kSigned, TileProduct::kSignedUnsigned}) {
      Tile got = sums;
      GetParam().multiply_tiles(product, rows, groups, columns, a.rows[0], b.rows[0], got.rows[0]);
      for (int m = 0; m < 16; ++m) {
        for (int n = 0; n < 16; ++n) {
          auto expected = sums.at<std::uint32_t>(m, n);
          if (m < rows && n < columns) {
            expected =
                expected_integer(a, b, m, n, groups, product == TileProduct::kSigned, expected);
          }
          ASSERT_EQ(got.at<std::uint32_t>(m, n), expected) << m << ", " << n;
        }
      }
    }
  }
}

// 32 bytes of each operand, among them rounds of the largest numbers.
TEST_P(Instructions, AddProductsInVectors) {
  if (GetParam().add_bytes == nullptr) GTEST_SKIP() << "this machine has no such instruction";
  std::mt19937 generator(3);
  for (int round = 0; round < 1000; ++round) {
    std::uint32_t a[8];
    std::uint32_t b[8];
    std::int32_t sums[8];
    for (int i = 0; i < 8; ++i) {
      const bool extreme = round % 5 == 0;
      a[i] = extreme ? 0x8000ffffU : static_cast<std::uint32_t>(generator());
      b[i] = extreme ? 0x8000807fU : static_cast<std::uint32_t>(generator());
      sums[i] = static_cast<std::int32_t>(extreme ? 0x7fffff00U : generator());
    }
    std::int32_t bytes[8];
    std::int32_t words[8];
    std::memcpy(bytes, sums, sizeof(sums));
    std::memcpy(words, sums, sizeof(sums));
    const auto* const from_a = reinterpret_cast<const std::byte*>(a);
    const auto* const from_b = reinterpret_cast<const std::byte*>(b);
    GetParam().add_bytes(from_a, from_b, bytes);
    GetParam().add_words(from_a, from_b, words);
    for (int i = 0; i < 8; ++i) {
      auto of_bytes = static_cast<std::uint32_t>(sums[i]);
      auto of_words = of_bytes;
      for (int shift = 0; shift < 32; shift += 8) {
        const int x = static_cast<std::uint8_t>(a[i] >> shift);
        of_bytes += static_cast<std::uint32_t>(x * static_cast<std::int8_t>(b[i] >> shift));
      }
      for (int shift = 0; shift < 32; shift += 16) {
        const std::int64_t x = static_cast<std::int16_t>(a[i] >> shift);
        of_words += static_cast<std::uint32_t>(x * static_cast<std::int16_t>(b[i] >> shift));
      }
      ASSERT_EQ(static_cast<std::uint32_t>(bytes[i]), of_bytes);
      ASSERT_EQ(static_cast<std::uint32_t>(words[i]), of_words);
    }
  }
}

#if defined(__x86_64__)
// Tiles 0 and 1 of so many rows and bytes, tile 2 with other rows.
void configure(int rows, int row_bytes, int second_rows) {
  std::byte bytes[64] = {std::byte{1}};
  for (int tile = 0; tile < 3; ++tile) {
    bytes[16 + 2 * tile] = static_cast<std::byte>(row_bytes);
    bytes[48 + tile] = static_cast<std::byte>(tile == 2 ? second_rows : rows);
  }
  tile_load_config(bytes);
}

class TileRules : public testing::Test {
 protected:
  void SetUp() override {
    if (!supports("avx512_bf16")) GTEST_SKIP() << "tiles in software need AVX-512";
    testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
  std::byte memory_[1024] = {};
};

TEST_F(TileRules, MisuseEndsTheProgram) {
  EXPECT_DEATH(tile_zero(0), "tilezero: no configuration is loaded");
  EXPECT_DEATH(configure(17, 64, 16), "ldtilecfg: a tile has at most 16 rows");
  EXPECT_DEATH(configure(16, 65, 16), "ldtilecfg: a row has at most 64 bytes");
  EXPECT_DEATH(configure(16, 0, 16), "ldtilecfg: rows and bytes must both be 0 or not");
  EXPECT_DEATH(tile_load_config(memory_), "ldtilecfg: the palette must be 1");
  EXPECT_DEATH((configure(16, 64, 16), tile_zero(3)), "has no such tile");
  EXPECT_DEATH((configure(16, 64, 16), tile_zero(8)), "there are tiles 0 to 7");
  EXPECT_DEATH((configure(16, 64, 16), tile_release(), tile_load(0, memory_, 64)),
               "no configuration is loaded");
  EXPECT_DEATH((configure(16, 64, 16), tile_multiply_bf16(0, 1, 1)), "must be three");
  EXPECT_DEATH((configure(16, 64, 8), tile_multiply_bf16(0, 1, 2)),
               "tdpbf16ps: its rows are not the columns of the first operand");
  EXPECT_DEATH((configure(16, 32, 16), tile_multiply_signed(0, 1, 2)),
               "tdpbssd: its rows are not the columns of the first operand");
}

TEST_F(TileRules, AConfigurationClearsTheTiles) {
  std::byte out[1024];
  std::memset(memory_, 1, sizeof(memory_));
  configure(16, 64, 16);
  tile_load(0, memory_, 64);
  tile_store(0, out, 64);
  EXPECT_EQ(std::memcmp(out, memory_, sizeof(out)), 0);
  configure(16, 64, 16);
  tile_store(0, out, 64);
  for (const std::byte byte : out) ASSERT_EQ(byte, std::byte{0});
  tile_release();
}

// Rows and bytes beyond the configured ones are neither read nor written.
TEST_F(TileRules, MemoryBeyondATileStays) {
  std::memset(memory_, 1, sizeof(memory_));
  std::byte out[1024] = {};
  configure(3, 8, 2);
  tile_load(0, memory_, 64);
  tile_store(0, out, 64);
  tile_release();
  for (int i = 0; i < 1024; ++i) {
    ASSERT_EQ(out[i], std::byte{i < 192 && i % 64 < 8}) << i;
  }
}
#endif

}  // namespace
}  // namespace kakeya::twin
