#include "formats/model_tensors.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "formats/published_configs.h"
#include "formats/scratch_files.h"
#include "formats/tensor_request.h"

namespace kakeya {
namespace {

ModelConfig published_config(const std::string& name) {
  const auto config = load_model_config(config_path(name));
  EXPECT_TRUE(config.has_value()) << config.error().message();
  return config.value_or(ModelConfig());
}

ParameterCount count_of(const std::string& name) {
  const auto count = parameter_count(published_config(name));
  EXPECT_TRUE(count.has_value()) << count.error().message();
  return count.value_or(ParameterCount());
}

std::map<std::string, Shape> shapes_of(const ModelConfig& config) {
  std::map<std::string, Shape> shapes;
  for (const TensorSpec& spec : expected_tensors(config)) shapes[spec.name] = spec.shape;
  return shapes;
}

// The manifest was read from the header of the published_config E2B checkpoint.
TEST(ExpectedTensors, AreThoseOfThePublishedE2BCheckpoint) {
  const auto manifest = nlohmann::json::parse(
      read_file(std::string(KAKEYA_TEST_DATA) + "/ops/e2b_tensor_manifest.json"));
  std::map<std::string, Shape> published_shapes;
  for (const auto& [name, tensor] : manifest["tensors"].items()) {
    if (is_other_modality(name)) continue;
    published_shapes[std::string(strip_model_prefix(name))] = tensor["shape"].get<Shape>();
  }
  EXPECT_EQ(published_shapes.size(), 600U);
  auto expected = shapes_of(published_config("google-gemma-4-E2B-it"));
  expected.erase("lm_head.weight");  // allowed in a tied checkpoint, absent from this one
  EXPECT_EQ(expected, published_shapes);
}

TEST(ExpectedTensors, HaveTheShapesOfTheMixtureOfExperts) {
  const auto shapes = shapes_of(published_config("google-gemma-4-26B-A4B-it"));
  EXPECT_EQ(shapes.at("layers.0.self_attn.q_proj.weight"), (Shape{4096, 2816}));
  EXPECT_EQ(shapes.at("layers.5.self_attn.q_proj.weight"), (Shape{8192, 2816}));
  EXPECT_EQ(shapes.at("layers.0.self_attn.k_proj.weight"), (Shape{2048, 2816}));
  EXPECT_EQ(shapes.at("layers.5.self_attn.k_proj.weight"), (Shape{1024, 2816}));
  EXPECT_EQ(shapes.at("layers.5.self_attn.o_proj.weight"), (Shape{2816, 8192}));
  EXPECT_FALSE(shapes.contains("layers.5.self_attn.v_proj.weight"));
  EXPECT_TRUE(shapes.contains("layers.0.self_attn.v_proj.weight"));
  EXPECT_EQ(shapes.at("layers.29.experts.gate_up_proj"), (Shape{128, 1408, 2816}));
  EXPECT_EQ(shapes.at("layers.29.experts.down_proj"), (Shape{128, 2816, 704}));
  EXPECT_EQ(shapes.at("layers.0.router.proj.weight"), (Shape{128, 2816}));
  EXPECT_EQ(shapes.at("layers.0.layer_scalar"), (Shape{1}));
}

TEST(ExpectedTensors, HaveAnOutputHeadOnlyWhenItIsNotTied) {
  const auto presence = [](const std::string& name) {
    for (const TensorSpec& spec : expected_tensors(published_config(name))) {
      if (spec.name == "lm_head.weight") return spec.presence;
    }
    return TensorPresence::kRedundant;
  };
  EXPECT_EQ(presence("Qwen-Qwen3-8B"), TensorPresence::kRequired);
  EXPECT_EQ(presence("Qwen-Qwen3-0.6B"), TensorPresence::kOptional);
}

// Within the rounding of the published_config figures, given in units of 10^6.
void expect_millions(std::int64_t count, double millions) {
  EXPECT_NEAR(static_cast<double>(count) / 1e6, millions, 1.0);
}

TEST(ParameterCount, AgreesWithThePublishedSizes) {
  expect_millions(count_of("google-gemma-4-26B-A4B-it").total, 25'233);
  expect_millions(count_of("google-gemma-4-31B-it").total, 30'697);
  expect_millions(count_of("google-gemma-4-12B-it").total, 11'907);
  expect_millions(count_of("Qwen-Qwen3-0.6B").total, 596);
  expect_millions(count_of("Qwen-Qwen3-8B").total, 8'191);
}

TEST(ParameterCount, LeavesOutExpertsAndEmbeddingRowsThatATokenDoesNotTouch) {
  expect_millions(count_of("google-gemma-4-26B-A4B-it").touched_per_token, 3'822);
  const ParameterCount e2b = count_of("google-gemma-4-E2B-it");
  EXPECT_EQ(e2b.total - e2b.touched_per_token, std::int64_t{262144} * 35 * 256);
  const ParameterCount dense = count_of("google-gemma-4-31B-it");
  EXPECT_EQ(dense.total, dense.touched_per_token);
}

}  // namespace
}  // namespace kakeya
