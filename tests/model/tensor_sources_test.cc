// Weights of a list of tensors, from a folder and at random.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "formats/drafter_config.h"
#include "formats/model_tensors.h"
#include "model/checkpoint_source.h"
#include "model/random_source.h"

namespace kakeya {
namespace {

const std::string kDrafter = std::string(KAKEYA_DEMO_MODEL) + "/drafter";

DrafterConfig drafter() {
  auto config = load_drafter_config(kDrafter);
  EXPECT_TRUE(config.has_value()) << config.error().message();
  return config.value_or(DrafterConfig());
}

TEST(CheckpointSource, GivesTheTensorsThatAListAsksFor) {
  const auto source = CheckpointSource::open(kDrafter, expected_tensors(drafter()));
  ASSERT_TRUE(source.has_value()) << source.error().message();
  const auto fc = (*source)->tensor("fc.weight");
  ASSERT_TRUE(fc.has_value()) << fc.error().message();
  EXPECT_EQ(fc->shape, (Shape{256, 3 * 256}));
  EXPECT_NE(fc->data, nullptr);
  EXPECT_FALSE((*source)->describe("embed_tokens.weight").has_value());
}

TEST(CheckpointSource, RefusesTensorsThatAListDoesNotAskFor) {
  std::vector<TensorSpec> specs = expected_tensors(drafter());
  specs.erase(specs.begin());
  const auto source = CheckpointSource::open(kDrafter, specs);
  ASSERT_FALSE(source.has_value());
  EXPECT_THAT(source.error().message(), testing::HasSubstr("unexpected fc.weight [256, 768]"));
}

TEST(RandomSource, MakesTheRequiredTensorsOfAList) {
  ThreadPool pool({.num_threads = 1, .pin = false});
  RandomSource source(expected_tensors(drafter()), /*seed=*/1, pool);
  const auto norm = source.tensor("hidden_norm.weight");
  ASSERT_TRUE(norm.has_value()) << norm.error().message();
  EXPECT_EQ(norm->shape, (Shape{256}));
  for (std::int64_t i = 0; i < 256; ++i) {
    const float value = to_float(reinterpret_cast<const BFloat16*>(norm->data)[i]);
    // The spread of a norm, rounded to bf16 (8 bits).
    EXPECT_NEAR(value, 1.0F, 0.1F + 0.01F);
  }
  EXPECT_FALSE(source.describe("embed_tokens.weight").has_value());
}

}  // namespace
}  // namespace kakeya
