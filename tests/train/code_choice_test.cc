// The worth of a code of some bytes: choices and shares against the definition, on rows of which
// everything is known.
#include "code_choice.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "train/random_rows.h"

namespace kakeya::train {
namespace {

TEST(CodeChoices, AreTheLongestThatFit) {
  std::map<KvFormat, std::pair<std::int64_t, std::int64_t>> found;
  for (const CodeChoice& choice : code_choices(68, 256)) {
    found[choice.format] = {choice.rank, choice.bytes};
  }
  const std::map<KvFormat, std::pair<std::int64_t, std::int64_t>> expected = {
      {KvFormat::kBf16, {34, 68}}, {KvFormat::kInt8, {64, 68}}, {KvFormat::kE8, {128, 68}}};
  EXPECT_EQ(found, expected);
  for (const CodeChoice& choice : code_choices(68, 20)) EXPECT_LE(choice.rank, 20);
  EXPECT_TRUE(code_choices(1, 256).empty());
}

// Keys of one layer that are the features; values that are their first half, twice.
struct Known {
  Known() {
    const std::vector<float> features = random_rows(kRows, kWidth, 3);
    document.count = kRows;
    document.key_features = features;
    document.keys = {features};
    std::vector<float> values = features;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t i = 0; i < kWidth / 2; ++i) {
        values[static_cast<std::size_t>(row * kWidth + kWidth / 2 + i)] =
            features[static_cast<std::size_t>(row * kWidth + i)];
      }
    }
    document.values = {values};
    plan.num_features = kWidth;
    plan.features_are_shared = true;
    plan.layers = {{.num_kv_heads = 2, .head_dim = kWidth / 2}};
  }

  static constexpr std::int64_t kRows = 60;
  static constexpr std::int64_t kWidth = 16;
  CapturedDocument document;
  CapturePlan plan;
};

TEST(CodeChoices, RowsTakeTheBytesOfTheirFormat) {
  const Known known;
  const std::vector<CapturedDocument> documents = {known.document};
  std::map<KvFormat, CodeChoice> rows;
  for (const CodeChoice& each : measure_rows(known.plan, documents)) rows[each.format] = each;
  EXPECT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[KvFormat::kBf16].bytes, 4 * 8 * 2);
  EXPECT_EQ(rows[KvFormat::kInt8].bytes, 4 * (8 + 4));
  EXPECT_EQ(rows[KvFormat::kE8].bytes, 4 * (8 / 2 + 4));
  EXPECT_EQ(rows[KvFormat::kE8].rank, 32);
  // The formats' losses of normal vectors of 512 elements (docs/memory.md); short ones lose less.
  EXPECT_GT(rows[KvFormat::kBf16].explained, 1.0 - 2e-5);
  EXPECT_GT(rows[KvFormat::kInt8].explained, 1.0 - 1e-4);
  EXPECT_LT(rows[KvFormat::kInt8].explained, rows[KvFormat::kBf16].explained);
  EXPECT_GT(rows[KvFormat::kE8].explained, 1.0 - 1.1e-2);
  EXPECT_LT(rows[KvFormat::kE8].explained, 1.0 - 1e-3);
  CapturePlan one = known.plan;
  one.layers.front().values_are_keys = true;
  EXPECT_EQ(measure_rows(one, documents).front().bytes, 2 * 8 * 2);
}

}  // namespace
}  // namespace kakeya::train
