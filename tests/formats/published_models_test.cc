// Configurations of published models, and the shapes that have their names: what is public about
// them is what they give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "formats/families.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "formats/named_shapes.h"
#include "formats/published_configs.h"

namespace kakeya {
namespace {

struct PublishedModel {
  const char* folder;
  const char* family;
  double billions;               // of parameters, as model cards and reports say; of text alone
  double active_billions = 0.0;  // 0: not said
  const char* shape = "";        // of formats/named_shapes.h; "": none
};

constexpr PublishedModel kPublished[] = {
    {"FakeRockert543-gemma-4-26b-a4b-it-MLX-4bit", "gemma4", 25.2, 0.0},
    {"Qwen-Qwen3-0.6B", "qwen3", 0.596, 0.0, "qwen3-0.6b"},
    {"Qwen-Qwen3-1.7B", "qwen3", 1.72},
    {"Qwen-Qwen3-14B", "qwen3", 14.8},
    {"Qwen-Qwen3-32B", "qwen3", 32.8},
    {"Qwen-Qwen3-4B", "qwen3", 4.02, 0.0, "qwen3-4b"},
    {"Qwen-Qwen3-4B-2507", "qwen3", 4.02},
    {"Qwen-Qwen3-8B", "qwen3", 8.19, 0.0, "qwen3-8b"},
    {"Qwen-Qwen2.5-7B-Instruct", "qwen2", 7.62, 0.0, "qwen2.5-7b"},
    {"Qwen-Qwen3-30B-A3B", "qwen3moe", 30.5, 3.3, "qwen3-30b-a3b"},
    {"TinyLlama-TinyLlama-1.1B-Chat-v1.0", "llama", 1.10, 0.0, "tinyllama-1.1b"},
    {"google-gemma-3-1b-it", "gemma3", 1.00, 0.0, "gemma3-1b"},
    {"google-gemma-3-4b-it", "gemma3", 3.88, 0.0, "gemma3-4b"},
    {"google-gemma-3-12b-it", "gemma3", 11.77, 0.0, "gemma3-12b"},
    {"google-gemma-3-27b-it", "gemma3", 27.0, 0.0, "gemma3-27b"},
    {"google-gemma-4-12B-it", "gemma4", 11.9, 0.0, "gemma4-12b"},
    {"google-gemma-4-26B-A4B-it", "gemma4", 25.2, 0.0, "gemma4-26b-a4b"},
    {"google-gemma-4-31B-it", "gemma4", 30.7, 0.0, "gemma4-31b"},
    {"google-gemma-4-E2B-it", "gemma4", 4.6, 0.0, "gemma4-e2b"},
    {"google-gemma-4-E4B-it", "gemma4", 7.5, 0.0, "gemma4-e4b"},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama", 8.03, 0.0, "llama3.1-8b"},
    {"mistralai-Mistral-7B-Instruct-v0.1", "llama", 7.24},
    {"mistralai-Mistral-7B-Instruct-v0.3", "llama", 7.25, 0.0, "mistral-7b"},
};

TEST(PublishedModels, HaveTheParametersThatArePublic) {
  for (const PublishedModel& model : kPublished) {
    const auto config = load_model_config(config_path(model.folder));
    ASSERT_TRUE(config.has_value()) << model.folder << ": " << config.error().message();
    EXPECT_EQ(family_of(config->architecture).name, model.family) << model.folder;
    const ParameterCount count = parameter_count(*config).value();
    // Published numbers are rounded.
    EXPECT_NEAR(static_cast<double>(count.total) / 1e9, model.billions, 0.01 * model.billions)
        << model.folder;
    if (model.active_billions == 0.0) continue;
    EXPECT_NEAR(static_cast<double>(count.touched_per_token) / 1e9, model.active_billions,
                0.02 * model.active_billions)
        << model.folder;
  }
}

// A folder that is added is one more row above.
TEST(PublishedModels, AreAllLookedAt) {
  std::set<std::string> known;
  for (const PublishedModel& model : kPublished) known.insert(model.folder);
  for (const auto& entry : std::filesystem::directory_iterator(config_path(""))) {
    const std::string name = entry.path().filename().string();
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    const bool drafter = name.starts_with("z-lab-") || name.find("dflash") != std::string::npos;
    EXPECT_NE(known.contains(name), drafter) << name;
  }
}

TEST(PublishedModels, LayersOfMistralSlideWhereTheFileSaysSo) {
  const ModelConfig first =
      load_model_config(config_path("mistralai-Mistral-7B-Instruct-v0.1")).value();
  EXPECT_EQ(first.sliding_window, 4096);
  EXPECT_TRUE(first.is_sliding(0));
  const ModelConfig third =
      load_model_config(config_path("mistralai-Mistral-7B-Instruct-v0.3")).value();
  EXPECT_FALSE(third.is_sliding(0));
}

TEST(NamedShapes, AreThoseOfTheirPublishedFiles) {
  for (const PublishedModel& model : kPublished) {
    if (*model.shape == '\0') continue;
    SCOPED_TRACE(model.shape);
    const ModelConfig file = load_model_config(config_path(model.folder)).value();
    const auto shape = named_shape(model.shape, 0);
    ASSERT_TRUE(shape.has_value()) << shape.error().message();
    EXPECT_EQ(shape->architecture, file.architecture);
    EXPECT_EQ(shape->layer_types, file.layer_types);
    EXPECT_EQ(shape->sliding_window, file.sliding_window);
    EXPECT_EQ(shape->max_position_embeddings, file.max_position_embeddings);
    EXPECT_EQ(shape->num_attention_heads, file.num_attention_heads);
    EXPECT_EQ(shape->rms_norm_eps, file.rms_norm_eps);
    EXPECT_EQ(shape->top_k_experts, file.top_k_experts);
    EXPECT_EQ(shape->rope_full, file.rope_full);
    EXPECT_EQ(shape->rope_sliding, file.rope_sliding);
    EXPECT_EQ(shape->attention_scale(0), file.attention_scale(0));
    std::map<std::string, Shape> tensors;
    for (const TensorSpec& spec : expected_tensors(file)) tensors[spec.name] = spec.shape;
    std::map<std::string, Shape> of_shape;
    for (const TensorSpec& spec : expected_tensors(*shape)) of_shape[spec.name] = spec.shape;
    EXPECT_EQ(of_shape, tensors);
  }
}

TEST(NamedShapes, AllCanBeMadeAndCut) {
  for (const std::string_view name : shape_names()) {
    const auto whole = named_shape(name, 0);
    ASSERT_TRUE(whole.has_value()) << name << ": " << whole.error().message();
    if (whole->num_kv_shared_layers > 0) continue;
    EXPECT_EQ(named_shape(name, 2)->layer_types.size(), 2U) << name;
  }
  EXPECT_EQ(parameter_count(named_shape("smollm2-135m", 0).value())->total, 134515008);
  EXPECT_EQ(parameter_count(named_shape("gemma3-270m", 0).value())->total, 268098176);
}

}  // namespace
}  // namespace kakeya
