// The statistics of keys and values as a file, and files that are damaged or of another model.
#include "formats/kv_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "formats/scratch_files.h"

namespace kakeya::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The statistics of a model whose every number is another one.
KvStatistics statistics_of(const ModelConfig& config) {
  KvStatistics statistics{.weights = "0123", .made_from = "prose.txt", .tokens = 4711};
  float next = 0.5F;
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    if (!config.owns_kv(l)) continue;
    KvLayerStatistics layer{.num_kv_heads = config.layer_kv_heads(l),
                            .head_dim = config.layer_head_dim(l)};
    const auto size = static_cast<std::size_t>(layer.num_kv_heads * layer.head_dim);
    const auto fill = [&](std::vector<float>& numbers) {
      for (std::size_t i = 0; i < size; ++i) numbers.push_back(next += 0.25F);
    };
    fill(layer.key_mean);
    fill(layer.key_variance);
    fill(layer.key_cost);
    if (!config.values_are_keys(l)) fill(layer.value_mean);
    statistics.layers.push_back(std::move(layer));
  }
  return statistics;
}

class KvStatisticsFile : public testing::Test {
 protected:
  KvStatisticsFile() : config_(load_model_config(KAKEYA_DEMO_MODEL).value()) {}

  std::string path() const { return scratch_.path("kv-codes.safetensors"); }
  // The words of loading for statistics that were changed before they were written.
  std::string error_of(const std::function<void(KvStatistics&)>& change) {
    KvStatistics statistics = statistics_of(config_);
    change(statistics);
    EXPECT_TRUE(save_kv_statistics(path(), config_, statistics));
    const auto loaded = load_kv_statistics(path(), config_);
    return loaded ? "" : std::string(loaded.error().message());
  }

  ModelConfig config_;
  ScratchFolder scratch_;
};

TEST_F(KvStatisticsFile, IsReadAsItWasWritten) {
  const KvStatistics statistics = statistics_of(config_);
  ASSERT_TRUE(save_kv_statistics(path(), config_, statistics));
  const KvStatistics loaded = load_kv_statistics(path(), config_).value();
  EXPECT_EQ(loaded.weights, "0123");
  EXPECT_EQ(loaded.made_from, "prose.txt");
  EXPECT_EQ(loaded.tokens, 4711);
  ASSERT_EQ(loaded.layers.size(), statistics.layers.size());
  for (std::size_t i = 0; i < loaded.layers.size(); ++i) {
    EXPECT_EQ(loaded.layers[i].key_mean, statistics.layers[i].key_mean);
    EXPECT_EQ(loaded.layers[i].key_variance, statistics.layers[i].key_variance);
    EXPECT_EQ(loaded.layers[i].key_cost, statistics.layers[i].key_cost);
    EXPECT_EQ(loaded.layers[i].value_mean, statistics.layers[i].value_mean);
  }
}

TEST_F(KvStatisticsFile, AnotherNumberIsAnotherFingerprint) {
  ASSERT_EQ(error_of([](KvStatistics&) {}), "");
  const std::uint64_t before = load_kv_statistics(path(), config_)->fingerprint;
  ASSERT_EQ(error_of([](KvStatistics& s) { s.layers.back().key_cost.back() = 7.0F; }), "");
  EXPECT_NE(load_kv_statistics(path(), config_)->fingerprint, before);
}

TEST_F(KvStatisticsFile, NumbersThatCannotBeAreRefused) {
  EXPECT_THAT(error_of([](KvStatistics& s) { s.layers[0].key_variance[3] = -1.0F; }),
              AllOf(HasSubstr("layers.0.key_variance"), HasSubstr("0 or more, got -1")));
  EXPECT_THAT(error_of([](KvStatistics& s) { s.layers[0].key_mean[0] = NAN; }),
              AllOf(HasSubstr(path()), HasSubstr("layers.0.key_mean: expected finite numbers")));
  EXPECT_THAT(error_of([](KvStatistics& s) { s.layers[0].key_cost[0] = INFINITY; }),
              HasSubstr("layers.0.key_cost"));
}

TEST_F(KvStatisticsFile, AnotherModelsIsRefused) {
  ASSERT_EQ(error_of([](KvStatistics&) {}), "");
  ModelConfig other = config_;
  other.num_hidden_layers -= 1;
  const auto fewer = load_kv_statistics(path(), other);
  ASSERT_FALSE(fewer);
  EXPECT_THAT(fewer.error().message(), HasSubstr("made for another model"));
  other = config_;
  other.head_dim *= 2;
  const auto wider = load_kv_statistics(path(), other);
  ASSERT_FALSE(wider);
  EXPECT_THAT(wider.error().message(), AllOf(HasSubstr("expected F32 of shape"), HasSubstr("got")));
}

TEST_F(KvStatisticsFile, AnotherFormatIsRefused) {
  const std::vector<SafetensorsLayout> layouts = {{"x", DType::kF32, {1}}};
  auto writer = SafetensorsWriter::create(path(), layouts, {{"format", "pt"}}).value();
  const float zero = 0.0F;
  ASSERT_TRUE(writer.write(0, std::as_bytes(std::span(&zero, 1))));
  ASSERT_TRUE(writer.commit());
  const auto loaded = load_kv_statistics(path(), config_);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message(),
              AllOf(HasSubstr(path()), HasSubstr("kakeya.kv-codes/1"), HasSubstr("got pt")));
}

TEST(KvStatisticsPath, IsBesideTheWeights) {
  EXPECT_EQ(kv_statistics_path("folder"), "folder/kv-codes.safetensors");
  EXPECT_EQ(kv_statistics_path("a/b.gguf"), "a/b.gguf.kv-codes.safetensors");
}

}  // namespace
}  // namespace kakeya::test
