// The families' configurations, field by field, and what they leave out.
#include "formats/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/gguf_model_scratch.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFamilyNetworks = std::string(KAKEYA_TEST_DATA) + "/networks/";

json small_llama() {
  return {{"model_type", "llama"},   {"vocab_size", 100},      {"hidden_size", 64},
          {"intermediate_size", 96}, {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}};
}

json small_qwen3_moe() {
  json config = small_llama();
  config.update({{"model_type", "qwen3_moe"},
                 {"num_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 32},
                 {"norm_topk_prob", true},
                 {"decoder_sparse_step", 1},
                 {"mlp_only_layers", json::array()}});
  return config;
}

ModelConfig parsed_family(const json& config) {
  const auto parsed = parse_model_config(config.dump());
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
  return parsed.value_or(ModelConfig());
}

std::string family_refusal(const json& config) {
  const auto parsed = parse_model_config(config.dump());
  return parsed ? "" : parsed.error().message();
}

TEST(Families, EachNameIsOfOneFamily) {
  std::vector<std::string_view> names;
  for (const Family& family : families()) {
    EXPECT_EQ(&family_of(family.architecture), &family);
    for (const std::string_view type : family.model_types) {
      EXPECT_EQ(find_family(type), &family);
      names.push_back(type);
    }
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_EQ(find_family("mamba"), nullptr);
}

TEST(Families, LlamaNeedsFewFields) {
  const ModelConfig config = parsed_family(small_llama());
  EXPECT_EQ(config.head_dim, 16);  // 64 / 4
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.rope_full, RopeParameters());
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias);
  EXPECT_FLOAT_EQ(config.attention_scale(0), 0.25F);
  json odd = small_llama();
  odd["hidden_size"] = 66;
  EXPECT_THAT(family_refusal(odd), HasSubstr("hidden_size: expected a multiple of the 4 heads"));
}

TEST(Families, BiasesAreThoseThatAFamilyHas) {
  json llama = small_llama();
  llama["attention_bias"] = true;
  EXPECT_TRUE(parsed_family(llama).qkv_bias && parsed_family(llama).o_bias);
  EXPECT_FALSE(parsed_family(llama).mlp_bias);
  llama["mlp_bias"] = true;
  EXPECT_TRUE(parsed_family(llama).mlp_bias);
  json qwen2 = small_llama();
  qwen2["model_type"] = "qwen2";
  EXPECT_TRUE(parsed_family(qwen2).qkv_bias);
  EXPECT_FALSE(parsed_family(qwen2).o_bias);
  qwen2["attention_bias"] = false;
  EXPECT_THAT(family_refusal(qwen2), HasSubstr("attention_bias: expected true for qwen2"));
  json moe = small_qwen3_moe();
  moe["attention_bias"] = true;
  EXPECT_THAT(family_refusal(moe), HasSubstr("attention_bias: expected false for qwen3moe"));
  moe["attention_bias"] = false;
  moe["mlp_bias"] = true;
  EXPECT_THAT(family_refusal(moe), HasSubstr("mlp_bias"));
}

TEST(Families, OnlyMistralOfLlamasNetworksHasWindows) {
  json config = small_llama();
  config["sliding_window"] = 32;
  EXPECT_EQ(parsed_family(config).sliding_window, 0);
  config["model_type"] = "mistral";
  EXPECT_EQ(parsed_family(config).sliding_window, 32);
  EXPECT_THAT(parsed_family(config).layer_types,
              ElementsAre(LayerType::kSliding, LayerType::kSliding));
  config["sliding_window"] = nullptr;
  EXPECT_EQ(parsed_family(config).sliding_window, 0);
  for (const char* type : {"qwen2", "qwen3"}) {
    json qwen = small_llama();
    qwen.update({{"model_type", type},
                 {"use_sliding_window", true},
                 {"rope_theta", 1e6},
                 {"max_position_embeddings", 64}});
    EXPECT_THAT(family_refusal(qwen), HasSubstr("use_sliding_window: sliding layers of")) << type;
  }
}

// The 4B model's text_config, which leaves out what its class knows.
TEST(Families, Gemma3KnowsWhatItsConfigurationLeavesOut) {
  const ModelConfig config =
      parsed_family({{"model_type", "gemma3"},
                     {"text_config",
                      {{"model_type", "gemma3_text"},
                       {"hidden_size", 2560},
                       {"intermediate_size", 10240},
                       {"num_hidden_layers", 34},
                       {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                       {"sliding_window", 1024}}}});
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.num_attention_heads, 8);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.global_head_dim, 256);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_EQ(config.rope_full, (RopeParameters{.rope_theta = 1e6, .factor = 8.0}));
  EXPECT_EQ(config.rope_sliding, RopeParameters{.rope_theta = 1e4});
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FLOAT_EQ(config.attention_scale(0), 1.0F / 16.0F);
  EXPECT_EQ(std::ranges::count(config.layer_types, LayerType::kFull), 5);
  EXPECT_FALSE(config.is_sliding(5));
  EXPECT_TRUE(config.is_sliding(33));  // the last layer slides
}

TEST(Families, Llama3ScalingNeedsAllOfItsNumbers) {
  json config = small_llama();
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  config["rope_scaling"] = scaling;
  const Llama3Scaling expected = {.factor = 8.0,
                                  .low_freq_factor = 1.0,
                                  .high_freq_factor = 4.0,
                                  .original_max_position_embeddings = 8192};
  EXPECT_EQ(parsed_family(config).rope_full.llama3, expected);
  EXPECT_EQ(parsed_family(config).rope_full.factor, 1.0);
  for (const auto& [key, value] : scaling.items()) {
    if (key == "rope_type") continue;
    config["rope_scaling"] = scaling;
    config["rope_scaling"].erase(key);
    EXPECT_THAT(family_refusal(config), HasSubstr("rope_scaling." + key + ": expected")) << key;
  }
  config["rope_scaling"] = scaling;
  config["rope_scaling"]["low_freq_factor"] = 4.0;
  EXPECT_THAT(family_refusal(config), HasSubstr("expected more than low_freq_factor"));
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"low_freq_factor", 1.0}};
  EXPECT_THAT(family_refusal(config), HasSubstr("low_freq_factor"));
}

// Short waves keep their frequency, long ones have it divided, and one between them by a mean.
TEST(Families, Llama3DivisorsGoFromOneToTheFactor) {
  const Llama3Scaling scaling = {.factor = 8.0,
                                 .low_freq_factor = 1.0,
                                 .high_freq_factor = 4.0,
                                 .original_max_position_embeddings = 8192};
  const auto of_turns = [&](double turns) {
    return llama3_divisor(scaling, turns * 2.0 * std::acos(-1.0) / 8192.0);
  };
  EXPECT_EQ(of_turns(4.1), 1.0F);
  EXPECT_EQ(of_turns(0.9), 8.0F);
  EXPECT_FLOAT_EQ(of_turns(2.5), static_cast<float>(1.0 / (0.5 / 8.0 + 0.5)));
}

TEST(Families, ExpertsInPlaceOfTheMlpAreThoseThatCanBeRun) {
  const ModelConfig config = parsed_family(small_qwen3_moe());
  EXPECT_TRUE(config.enable_moe_block);
  EXPECT_EQ(config.top_k_experts, 2);
  const auto refused = [](const char* key, const json& value) {
    json changed = small_qwen3_moe();
    changed[key] = value;
    return family_refusal(changed);
  };
  EXPECT_THAT(refused("norm_topk_prob", false), HasSubstr("norm_topk_prob: expected true"));
  EXPECT_THAT(refused("decoder_sparse_step", 2), HasSubstr("decoder_sparse_step"));
  EXPECT_THAT(refused("mlp_only_layers", json::array({0})), HasSubstr("mlp_only_layers"));
  EXPECT_THAT(refused("shared_expert_intermediate_size", 64), HasSubstr("shared_expert"));
  EXPECT_THAT(refused("num_experts_per_tok", 9), HasSubstr("num_experts_per_tok"));
  json mixtral = small_llama();
  mixtral["num_local_experts"] = 8;
  EXPECT_THAT(family_refusal(mixtral), HasSubstr("num_local_experts"));
}

// The value that comes in the place of each key that a file may leave out.
TEST(Families, KeysThatAGgufFileLeavesOutHaveTheirValues) {
  const ScratchFolder scratch;
  const auto without = [&](const std::string& network, std::initializer_list<const char*> keys) {
    GgufContent content = model_as_gguf(kFamilyNetworks + network);
    for (const char* key : keys) content.erase(key);
    const auto config = load_model_config(content.write(scratch.path("m.gguf")));
    EXPECT_TRUE(config.has_value()) << config.error().message();
    return config.value_or(ModelConfig());
  };
  const ModelConfig biased =
      without("llama-biased", {"llama.attention.key_length", "llama.attention.value_length",
                               "llama.attention.head_count_kv", "llama.rope.freq_base"});
  EXPECT_EQ(biased.head_dim, 16);
  EXPECT_EQ(biased.num_key_value_heads, 4);
  EXPECT_EQ(biased.rope_full.rope_theta, 1e4);
  EXPECT_EQ(without("mistral", {"llama.attention.sliding_window"}).sliding_window, 0);
  const ModelConfig gemma3 =
      without("gemma3", {"gemma3.rope.freq_base_swa", "gemma3.attention.scale",
                         "gemma3.attention.sliding_window_pattern"});
  EXPECT_EQ(gemma3.rope_sliding.rope_theta, 1e4);
  EXPECT_EQ(std::ranges::count(gemma3.layer_types, LayerType::kSliding), 4);  // 5 of 6
  EXPECT_EQ(gemma3.query_pre_attn_scalar, 32.0);
  const ModelConfig whole = without("gemma3", {"gemma3.attention.sliding_window"});
  EXPECT_EQ(std::ranges::count(whole.layer_types, LayerType::kFull), 4);
  EXPECT_EQ(without("qwen3moe", {"qwen3moe.feed_forward_length"}).moe_intermediate_size, 32);
}

TEST(Families, OfGgufFilesTheLargestGemma3DividesScoresByAnotherRoot) {
  const ScratchFolder scratch;
  GgufContent content = model_as_gguf(kFamilyNetworks + "gemma3");
  content.erase("gemma3.attention.scale");
  content.erase("gemma3.attention.sliding_window_pattern");
  content.set("gemma3.block_count", std::uint32_t{62});
  const auto config = load_model_config(content.write(scratch.path("m.gguf")));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->query_pre_attn_scalar, 20.0);  // 80 / 4
}

TEST(Families, GgufFilesOfOtherNetworksAreRefused) {
  const ScratchFolder scratch;
  const auto refused = [&](const std::string& network, const char* key, GgufMetadataValue value) {
    GgufContent content = model_as_gguf(kFamilyNetworks + network);
    content.set(key, std::move(value));
    const auto config = load_model_config(content.write(scratch.path("m.gguf")));
    return config ? "" : config.error().message();
  };
  EXPECT_THAT(refused("llama-biased", "llama.expert_count", std::uint32_t{8}),
              HasSubstr("expert_count: expected 0, got 8"));
  EXPECT_THAT(refused("qwen3moe", "qwen3moe.expert_weights_norm", false),
              HasSubstr("norm_topk_prob: expected true"));
  EXPECT_THAT(refused("qwen3moe", "qwen3moe.expert_shared_count", std::uint32_t{1}),
              HasSubstr("expert_shared_count"));
  EXPECT_THAT(refused("qwen2", "qwen2.rope.scaling.type", std::string("yarn")), HasSubstr("yarn"));
  EXPECT_THAT(refused("llama", "llama.rope.scaling.type", std::string("linear")),
              HasSubstr("rope_freqs.weight: expected none beside"));
}

// Divisors that no published model has are taken as they are, if there is one for each pair.
TEST(Families, DivisorsOfAGgufFileAreTaken) {
  const ScratchFolder scratch;
  GgufContent content = model_as_gguf(kFamilyNetworks + "llama");
  content.erase_tensor("rope_freqs.weight");
  const std::vector<float> divisors = {1, 1, 1.5F, 2, 3, 4, 5, 6};
  content.add_floats("rope_freqs.weight", divisors);
  const auto config = load_model_config(content.write(scratch.path("m.gguf")));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->rope_full.divisors, divisors);
  content.erase_tensor("rope_freqs.weight");
  content.add_floats("rope_freqs.weight", {1, 2});
  const auto short_list = load_model_config(content.write(scratch.path("n.gguf")));
  ASSERT_FALSE(short_list.has_value());
  EXPECT_THAT(short_list.error().message(), HasSubstr("expected shape [8], got [2]"));
  json folder = small_llama();
  folder["rope_scaling"] = {{"rope_type", "divisors"}, {"divisors", {1.0, 2.0}}};
  EXPECT_THAT(family_refusal(folder), HasSubstr("expected 8 divisors, one a pair, got 2"));
}

}  // namespace
}  // namespace kakeya
