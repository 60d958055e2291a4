#include "formats/model_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/generation_notes.h"
#include "formats/published_configs.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

json small_qwen3() {
  return json::parse(read_file(std::string(KAKEYA_TEST_DATA) + "/networks/qwen3-tied/config.json"));
}

ModelConfig parsed_model(const json& config) {
  const auto result = parse_model_config(config.dump());
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result.value_or(ModelConfig());
}

Error model_refusal(const json& config) {
  const auto result = parse_model_config(config.dump());
  EXPECT_FALSE(result.has_value());
  if (result) return Error(StatusCode::kInternal, "");
  EXPECT_THAT(result.error().message(), Not(HasSubstr("\n")));
  return result.error();
}

// The refusal of the 26B configuration with one text field replaced.
Error model_refusal_with(const std::string& key, const json& value) {
  json config = published("google-gemma-4-26B-A4B-it");
  config["text_config"][key] = value;
  return model_refusal(config);
}

TEST(ModelConfig, ReadsGemma4With128Experts) {
  const auto result = load_model_config(config_path("google-gemma-4-26B-A4B-it"));
  ASSERT_TRUE(result.has_value()) << result.error().message();
  const ModelConfig& config = *result;
  EXPECT_EQ(config.architecture, Architecture::kGemma4);
  EXPECT_EQ(config.model_type, "gemma4");
  EXPECT_EQ(config.hidden_size, 2816);
  EXPECT_EQ(config.num_hidden_layers, 30);
  EXPECT_EQ(config.num_experts, 128);
  EXPECT_EQ(config.top_k_experts, 8);
  EXPECT_EQ(config.moe_intermediate_size, 704);
  EXPECT_EQ(config.sliding_window, 1024);
  EXPECT_FLOAT_EQ(config.final_logit_softcapping, 30.0F);
  EXPECT_EQ(config.hidden_activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.is_sliding(4));
  EXPECT_FALSE(config.is_sliding(5));
  EXPECT_EQ(config.layer_head_dim(4), 256);
  EXPECT_EQ(config.layer_head_dim(5), 512);
  EXPECT_EQ(config.layer_kv_heads(4), 8);
  EXPECT_EQ(config.layer_kv_heads(5), 2);
  EXPECT_TRUE(config.values_are_keys(5));
  EXPECT_FALSE(config.values_are_keys(4));
  EXPECT_EQ(config.rope_full.rope_theta, 1e6);
  EXPECT_EQ(config.rope_full.partial_rotary_factor, 0.25);
  EXPECT_EQ(config.rope_sliding.rope_theta, 1e4);
  EXPECT_EQ(config.rope_sliding.partial_rotary_factor, 1.0);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(1, 106, 50));
  EXPECT_EQ(config.bos_token_id, 2);
  EXPECT_EQ(config.pad_token_id, 0);
}

TEST(ModelConfig, ReadsTheSharedLayersAndWideMlpOfE2B) {
  const auto result = load_model_config(config_path("google-gemma-4-E2B-it"));
  ASSERT_TRUE(result.has_value()) << result.error().message();
  const ModelConfig& config = *result;
  EXPECT_EQ(config.hidden_size_per_layer_input, 256);
  EXPECT_EQ(config.vocab_size_per_layer_input, 262144);
  EXPECT_FALSE(config.enable_moe_block);
  EXPECT_EQ(config.num_global_key_value_heads, 1);
  EXPECT_TRUE(config.owns_kv(14));
  EXPECT_FALSE(config.owns_kv(15));
  EXPECT_EQ(config.kv_source_layer(10), 10);
  EXPECT_EQ(config.kv_source_layer(15), 13);
  EXPECT_EQ(config.kv_source_layer(34), 14);
  EXPECT_EQ(config.layer_intermediate_size(14), 6144);
  EXPECT_EQ(config.layer_intermediate_size(15), 12288);
}

TEST(ModelConfig, ReadsTheOtherGemma4Sizes) {
  const auto e4b = load_model_config(config_path("google-gemma-4-E4B-it"));
  ASSERT_TRUE(e4b.has_value()) << e4b.error().message();
  EXPECT_EQ(e4b->kv_source_layer(30), 22);
  EXPECT_EQ(e4b->kv_source_layer(41), 23);
  EXPECT_EQ(e4b->layer_intermediate_size(41), 10240);
  const auto unified = load_model_config(config_path("google-gemma-4-12B-it"));
  ASSERT_TRUE(unified.has_value()) << unified.error().message();
  EXPECT_EQ(unified->layer_kv_heads(47), 1);
  const auto dense = load_model_config(config_path("google-gemma-4-31B-it"));
  ASSERT_TRUE(dense.has_value()) << dense.error().message();
  EXPECT_EQ(dense->layer_kv_heads(59), 4);
}

TEST(ModelConfig, ReadsQwen3OfEverySize) {
  for (const auto& [name, layers, tied] :
       {std::tuple("Qwen-Qwen3-0.6B", 28, true), std::tuple("Qwen-Qwen3-1.7B", 28, true),
        std::tuple("Qwen-Qwen3-4B", 36, true), std::tuple("Qwen-Qwen3-4B-2507", 36, true),
        std::tuple("Qwen-Qwen3-8B", 36, false), std::tuple("Qwen-Qwen3-14B", 40, false),
        std::tuple("Qwen-Qwen3-32B", 64, false)}) {
    const auto config = load_model_config(config_path(name));
    ASSERT_TRUE(config.has_value()) << config.error().message();
    EXPECT_EQ(config->architecture, Architecture::kQwen3);
    EXPECT_EQ(config->num_hidden_layers, layers);
    EXPECT_EQ(config->tie_word_embeddings, tied);
    EXPECT_EQ(config->head_dim, 128);
    EXPECT_EQ(config->layer_head_dim(0), 128);
    EXPECT_EQ(config->hidden_activation, Activation::kSilu);
    EXPECT_EQ(config->final_logit_softcapping, 0.0F);
    EXPECT_THAT(config->eos_token_ids, ElementsAre(151645));
    EXPECT_EQ(config->rope_full.rope_theta, name == std::string("Qwen-Qwen3-4B-2507") ? 5e6 : 1e6);
  }
}

TEST(ModelConfig, ReadsTheGoldenNetworks) {
  int models = 0;
  for (const auto& folder :
       std::filesystem::directory_iterator(std::string(KAKEYA_TEST_DATA) + "/networks")) {
    const std::string name = folder.path().filename();
    if (!folder.is_directory() || name.starts_with("dflash")) continue;
    const auto config = load_model_config(folder.path());
    EXPECT_TRUE(config.has_value()) << config.error().message();
    ++models;
  }
  EXPECT_EQ(models, 13);
}

TEST(ModelConfig, SaysThatADrafterIsADrafter) {
  int drafters = 0;
  for (const auto& folder :
       std::filesystem::directory_iterator(std::string(KAKEYA_TEST_DATA) + "/configs")) {
    const std::string name = folder.path().filename();
    if (name.find("DFlash") == std::string::npos && name.find("dflash") == std::string::npos) {
      continue;
    }
    const auto config = load_model_config(folder.path());
    ASSERT_FALSE(config.has_value()) << name;
    EXPECT_THAT(config.error().message(), HasSubstr("configuration of a DFlash drafter"));
    ++drafters;
  }
  EXPECT_EQ(drafters, 8);
}

TEST(ModelConfig, TakesMlxsAffineFormatAndNamesOthers) {
  const auto config = load_model_config(config_path("FakeRockert543-gemma-4-26b-a4b-it-MLX-4bit"));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->num_experts, 128);
  EXPECT_EQ(model_refusal_with("quantization_config", {{"quant_method", "fp8"}}).code(),
            StatusCode::kUnimplemented);
  EXPECT_THAT(model_refusal_with("quantization_config", {{"quant_method", "fp8"}}).message(),
              HasSubstr("text_config.quantization_config: expected MLX's affine format, got fp8"));
  EXPECT_THAT(model_refusal_with("quantization", {{"bits", 4}, {"mode", "mxfp4"}}).message(),
              HasSubstr("text_config.quantization: expected MLX's affine format, got mxfp4"));
}

TEST(ModelConfig, ReadsABareTextConfig) {
  json config = published("google-gemma-4-26B-A4B-it")["text_config"];
  EXPECT_EQ(parsed_model(config).num_experts, 128);
  EXPECT_EQ(parsed_model(config).model_type, "gemma4_text");
  EXPECT_THAT(parsed_model(config).eos_token_ids, ElementsAre(1));
}

TEST(ModelConfig, BuildsLayerTypesFromThePatternWithAFullLastLayer) {
  json config = published("google-gemma-4-26B-A4B-it");
  json& text = config["text_config"];
  text.erase("layer_types");
  EXPECT_THAT(model_refusal(config).message(), HasSubstr("or sliding_window_pattern"));
  text["sliding_window_pattern"] = 7;
  const ModelConfig result = parsed_model(config);
  ASSERT_EQ(result.layer_types.size(), 30U);
  EXPECT_TRUE(result.is_sliding(5));
  EXPECT_FALSE(result.is_sliding(6));
  EXPECT_TRUE(result.is_sliding(28));
  EXPECT_FALSE(result.is_sliding(29));
}

TEST(ModelConfig, AcceptsTheOlderSpellingOfTheExpertWidth) {
  json config = published("google-gemma-4-26B-A4B-it");
  json& text = config["text_config"];
  text["expert_intermediate_size"] = text["moe_intermediate_size"];
  text.erase("moe_intermediate_size");
  text["per_layer_config"] = json::array({json::object()});
  EXPECT_EQ(parsed_model(config).moe_intermediate_size, 704);
}

TEST(ModelConfig, UsesTheGlobalKeyValueHeadsOnlyWhenKeysAreValues) {
  json config = published("google-gemma-4-26B-A4B-it");
  config["text_config"]["attention_k_eq_v"] = false;
  EXPECT_EQ(parsed_model(config).layer_kv_heads(5), 8);
  config["text_config"]["attention_k_eq_v"] = true;
  config["text_config"]["num_global_key_value_heads"] = nullptr;
  EXPECT_EQ(parsed_model(config).layer_kv_heads(5), 8);
}

TEST(ModelConfig, ReadsRopeInEveryForm) {
  json config = small_qwen3();
  config.erase("rope_parameters");
  config["rope_theta"] = 500000;
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(parsed_model(config).rope_full.rope_theta, 5e5);
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(parsed_model(config).rope_full.rope_theta, 5e5);
  EXPECT_EQ(parsed_model(config).rope_full.factor, 4.0);
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7e5}};
  EXPECT_EQ(parsed_model(config).rope_full.rope_theta, 7e5);
  EXPECT_EQ(parsed_model(config).rope_full.factor, 1.0);
  config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(parsed_model(config).rope_full.rope_theta, 5e5);
  EXPECT_EQ(parsed_model(config).rope_full.factor, 2.0);
}

TEST(ModelConfig, RefusesAScalingThatTheRopeParametersDoNotHave) {
  json config = small_qwen3();
  config["rope_parameters"] = {{"rope_type", "linear"}, {"rope_theta", 1e6}, {"factor", 4.0}};
  for (const json& same : {json(nullptr), json::object(), json{{"type", "linear"}, {"factor", 4}},
                           config["rope_parameters"]}) {
    config["rope_scaling"] = same;
    EXPECT_EQ(parsed_model(config).rope_full.factor, 4.0);
  }
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(model_refusal(config).message(),
              HasSubstr("rope_scaling: expected what rope_parameters says (rope_theta 1000000, "
                        "factor 4, partial_rotary_factor 1), got 1000000, 2 and 1"));
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_THAT(model_refusal(config).message(),
              HasSubstr("rope_scaling.rope_type: expected one of default, linear, proportional, "
                        "llama3, got \"yarn\""));
  json gemma = published("google-gemma-4-26B-A4B-it");
  gemma["text_config"]["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  EXPECT_THAT(model_refusal(gemma).message(), HasSubstr("text_config.rope_scaling: expected what"));
}

TEST(ModelConfig, RefusesRopeThatItWouldHaveToGuess) {
  const json gemma = published("google-gemma-4-26B-A4B-it");
  const json rope = gemma["text_config"]["rope_parameters"];
  const auto message = [&](const json& parameters) {
    return model_refusal_with("rope_parameters", parameters).message();
  };
  EXPECT_THAT(message(nullptr), HasSubstr("text_config.rope_parameters: expected an object"));
  json changed = rope;
  changed["full_attn"] = changed["full_attention"];
  EXPECT_THAT(message(changed), HasSubstr("rope_parameters.full_attn: expected full_attention"));
  changed.erase("full_attention");
  EXPECT_THAT(message(changed), HasSubstr("rope_parameters.full_attn"));
  changed.erase("full_attn");
  EXPECT_THAT(message(changed), HasSubstr("rope_parameters.full_attention: expected an object"));
  EXPECT_THAT(message({{"full_attn", rope["full_attention"]}}), HasSubstr("full_attn"));
  EXPECT_THAT(message(json::object()), HasSubstr("rope_parameters.rope_theta"));
  changed = rope;
  changed["full_attention"]["rope_tetha"] = 1e6;
  EXPECT_THAT(message(changed), HasSubstr("full_attention.rope_tetha: expected one of"));
  changed["full_attention"].erase("rope_tetha");
  changed["full_attention"].erase("rope_theta");
  EXPECT_THAT(message(changed), HasSubstr("full_attention.rope_theta: expected a number"));
  changed = rope;
  changed["sliding_attention"]["factor"] = 2.0;
  EXPECT_THAT(message(changed), HasSubstr("sliding_attention.factor: expected 1"));
  json qwen = small_qwen3();
  qwen.erase("rope_parameters");
  qwen.erase("rope_theta");
  EXPECT_THAT(model_refusal(qwen).message(), HasSubstr("rope_parameters: expected an object (or"));
  qwen["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_THAT(model_refusal(qwen).message(), HasSubstr("rope_parameters: expected an object (or"));
}

// Each changes what the network computes, in the architectures that have it.
TEST(ModelConfig, RefusesWhatItDoesNotComputeByNameAndValue) {
  const std::vector<std::pair<const char*, json>> fields = {{"attn_logit_softcapping", 50.0},
                                                            {"logit_scale", 0.0625},
                                                            {"residual_multiplier", 0.22},
                                                            {"attention_multiplier", 0.015625},
                                                            {"clip_qkv", 8.0},
                                                            {"mlp_bias", true},
                                                            {"embedding_multiplier", 12.0},
                                                            {"logits_scaling", 8.0},
                                                            {"query_pre_attn_scalar", 256},
                                                            {"scale_depth", 1.4},
                                                            {"partial_rotary_factor", 0.5},
                                                            {"attention_chunk_size", 8192},
                                                            {"no_rope_layers", {1, 1, 1, 0}},
                                                            {"use_qk_norm", false},
                                                            {"kv_lora_rank", 512},
                                                            {"num_experts_per_tok", 8},
                                                            {"qkv_bias", true},
                                                            {"laurel_rank", 64},
                                                            {"compression_config", {{"a", 1}}},
                                                            {"is_causal", false},
                                                            {"use_bidirectional_attention", true}};
  for (const auto& [key, value] : fields) {
    for (const bool gemma : {true, false}) {
      json config = gemma ? published("google-gemma-4-26B-A4B-it") : small_qwen3();
      (gemma ? config["text_config"] : config)[key] = value;
      const Error refusal = model_refusal(config);
      EXPECT_EQ(refusal.code(), StatusCode::kUnimplemented) << key;
      EXPECT_THAT(refusal.message(), HasSubstr(key));
      if (value.is_number()) {
        EXPECT_THAT(refusal.message(), HasSubstr(fmt::format("got {}", value.get<double>())));
      }
      (gemma ? config["text_config"] : config)[key] = nullptr;
      parsed_model(config);
    }
  }
  json qwen = small_qwen3();
  qwen["attention_k_eq_v"] = true;
  EXPECT_THAT(model_refusal(qwen).message(), HasSubstr("attention_k_eq_v"));
  qwen["attention_k_eq_v"] = false;
  // With which nothing changes.
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, json>>{{"logit_scale", 1.0},
                                                 {"attn_logit_softcapping", 0},
                                                 {"mlp_bias", false},
                                                 {"use_qk_norm", true},
                                                 {"mlp_only_layers", json::array()},
                                                 {"num_experts", 0},
                                                 {"is_causal", true},
                                                 {"use_bidirectional_attention", "vision"}}) {
    qwen[key] = value;
  }
  parsed_model(qwen);
  qwen["hidden_activation"] = "gelu";
  EXPECT_THAT(model_refusal(qwen).message(), HasSubstr("hidden_activation: expected \"silu\""));
}

TEST(ModelConfig, NamesTheRopeTypeThatIsNotSupported) {
  json config = small_qwen3();
  config["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", 1e6}, {"factor", 4.0}};
  EXPECT_EQ(model_refusal(config).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(model_refusal(config).message(),
              AllOf(HasSubstr("rope_type"), HasSubstr("\"yarn\"")));
  config["rope_parameters"] = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  EXPECT_THAT(model_refusal(config).message(), HasSubstr("partial_rotary_factor: expected 1"));
}

TEST(ModelConfig, TiesEmbeddingsByDefaultOnlyForGemma4) {
  json gemma = published("google-gemma-4-26B-A4B-it");
  gemma.erase("tie_word_embeddings");
  gemma["text_config"].erase("tie_word_embeddings");
  EXPECT_TRUE(parsed_model(gemma).tie_word_embeddings);
  json qwen = small_qwen3();
  qwen.erase("tie_word_embeddings");
  EXPECT_FALSE(parsed_model(qwen).tie_word_embeddings);
}

TEST(ModelConfig, ListsTheSupportedArchitectures) {
  json config = small_qwen3();
  config["model_type"] = "mamba";
  EXPECT_EQ(model_refusal(config).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(model_refusal(config).message(),
              AllOf(HasSubstr("\"mamba\""), HasSubstr("gemma4_unified"), HasSubstr("qwen3")));
  config.erase("model_type");
  EXPECT_THAT(model_refusal(config).message(), HasSubstr("model_type: expected a name"));
}

TEST(ModelConfig, RefusesImpossibleValuesByName) {
  const auto message = [](const std::string& key, const json& value) {
    return model_refusal_with(key, value).message();
  };
  EXPECT_THAT(message("num_hidden_layers", 0), HasSubstr("text_config.num_hidden_layers"));
  EXPECT_THAT(message("num_hidden_layers", 1025), HasSubstr("from 1 to 1024, got 1025"));
  EXPECT_THAT(message("num_hidden_layers", 29), HasSubstr("layer_types: expected 29 entries"));
  EXPECT_THAT(message("hidden_size", "big"), HasSubstr("got \"big\""));
  EXPECT_THAT(message("hidden_size", nullptr), HasSubstr("hidden_size: expected an integer"));
  EXPECT_THAT(message("vocab_size", std::int64_t{1} << 40), HasSubstr("vocab_size"));
  EXPECT_THAT(message("num_attention_heads", 12), HasSubstr("multiple of the 8 key/value heads"));
  EXPECT_THAT(message("num_key_value_heads", 3), HasSubstr("multiple of the 3 key/value heads"));
  EXPECT_THAT(message("head_dim", 255), HasSubstr("even"));
  EXPECT_THAT(message("top_k_experts", 129), HasSubstr("from 1 to 128, got 129"));
  EXPECT_THAT(message("num_experts", nullptr), HasSubstr("num_experts"));
  EXPECT_THAT(message("sliding_window", nullptr), HasSubstr("sliding_window"));
  EXPECT_THAT(message("num_kv_shared_layers", 30), HasSubstr("from 0 to 29"));
  EXPECT_THAT(message("num_kv_shared_layers", 27), HasSubstr("layer 5 shares keys and values"));
  EXPECT_THAT(message("rms_norm_eps", -1), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(message("eos_token_id", 262144), HasSubstr("text_config.eos_token_id"));
  EXPECT_THAT(message("rope_parameters", 3), HasSubstr("rope_parameters: expected an object"));
  EXPECT_THAT(message("layer_types", {1}), HasSubstr("layer_types"));
}

TEST(ModelConfig, SaysWhichFeatureIsNotSupported) {
  EXPECT_EQ(model_refusal_with("hidden_activation", "relu").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(model_refusal_with("attention_bias", true).code(), StatusCode::kUnimplemented);
  json types = published("google-gemma-4-26B-A4B-it")["text_config"]["layer_types"];
  types[3] = "linear_attention";
  EXPECT_THAT(model_refusal_with("layer_types", types).message(),
              HasSubstr("\"linear_attention\""));
  json qwen = small_qwen3();
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(model_refusal(qwen).code(), StatusCode::kUnimplemented);
}

TEST(ModelConfig, RefusesMoreParametersThanCanBeCounted) {
  json config = published("google-gemma-4-26B-A4B-it");
  json& text = config["text_config"];
  text["hidden_size"] = 1 << 22;
  text["moe_intermediate_size"] = 1 << 22;
  text["num_experts"] = 4096;
  EXPECT_THAT(model_refusal(config).message(), HasSubstr("more than 2^50 parameters"));
}

TEST(ModelConfig, RefusesJsonThatIsNotAnObject) {
  for (const std::string text : {"", "[]", "3", "{", "\"x\"", "null", "{\"a\":1,\"a\":2}"}) {
    EXPECT_FALSE(parse_model_config(text).has_value()) << text;
  }
  const auto deep = parse_model_config(std::string(100'000, '[') + std::string(100'000, ']'));
  EXPECT_THAT(message_of(deep), HasSubstr("deeper than 64 levels"));
}

TEST(ModelConfig, NamesTheFileInItsErrors) {
  const ScratchFolder folder;
  EXPECT_EQ(code_of(load_model_config(folder.root())), StatusCode::kNotFound);
  folder.write("config.json", "{}");
  EXPECT_THAT(message_of(load_model_config(folder.root())),
              HasSubstr(folder.path("config.json") + ": model_type"));
}

TEST(GenerationConfig, ReadsThePublishedFile) {
  const auto config = load_generation_config(config_path("google-gemma-4-26B-A4B-it"));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_TRUE(config->do_sample);
  EXPECT_EQ(config->temperature, 1.0F);
  EXPECT_EQ(config->top_k, 64);
  EXPECT_EQ(config->top_p, 0.95F);
  EXPECT_EQ(config->min_p, std::nullopt);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 106, 50));
}

TEST(GenerationConfig, HasDefaultsWhenTheFileIsAbsent) {
  const auto config = load_generation_config(config_path("google-gemma-4-31B-it"));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_FALSE(config->do_sample);
  EXPECT_EQ(config->temperature, std::nullopt);
  EXPECT_TRUE(config->eos_token_ids.empty());
}

TEST(GenerationConfig, NamesOtherWaysToChooseTokensThatAreNotFollowed) {
  const std::string text =
      R"({"no_repeat_ngram_size":3,"bad_words_ids":[[5]],"num_beams":4,"typical_p":0.9})";
  EXPECT_TRUE(parse_generation_config(text).has_value());
  EXPECT_THAT(fields_not_followed(text).value(),
              UnorderedElementsAre("num_beams 4", "typical_p 0.9", "bad_words_ids a list",
                                   "no_repeat_ngram_size 3"));
  const std::string off =
      R"({"num_beams":1,"no_repeat_ngram_size":0,"typical_p":1.0,"bad_words_ids":null,"top_k":-1})";
  EXPECT_THAT(fields_not_followed(off).value(), IsEmpty());
  EXPECT_EQ(parse_generation_config(off)->top_k, 0);
  EXPECT_THAT(fields_not_followed(R"({"stop_strings":["."],"min_new_tokens":5,"min_length":2,)"
                                  R"("exponential_decay_length_penalty":[5,1.5]})")
                  .value(),
              UnorderedElementsAre("stop_strings a list", "min_new_tokens 5", "min_length 2",
                                   "exponential_decay_length_penalty a list"));
  EXPECT_THAT(fields_not_followed(R"({"stop_strings":[],"min_new_tokens":0,"min_length":0,)"
                                  R"("exponential_decay_length_penalty":null})")
                  .value(),
              IsEmpty());
  const ScratchFolder folder;
  EXPECT_THAT(load_fields_not_followed(folder.root()).value(), IsEmpty());
  folder.write("generation_config.json", R"({"num_beams":4})");
  EXPECT_THAT(load_fields_not_followed(folder.root()).value(), ElementsAre("num_beams 4"));
}

TEST(ModelConfig, TakesMinusOneForNoPadding) {
  json config = small_qwen3();
  for (const json& none : {json(-1), json(4294967295), json(nullptr)}) {
    config["pad_token_id"] = none;
    EXPECT_EQ(parsed_model(config).pad_token_id, std::nullopt);
  }
  config["pad_token_id"] = 7;
  EXPECT_EQ(parsed_model(config).pad_token_id, 7);
  for (const json& wrong : {json(-2), json(1 << 24), json(4294967296)}) {
    config["pad_token_id"] = wrong;
    EXPECT_THAT(model_refusal(config).message(), HasSubstr("pad_token_id: expected an integer"));
  }
}

TEST(ModelConfig, SaysWhatIsThereInsteadOfAConfiguration) {
  const ScratchFolder folder;
  folder.write("model-Q4_0.gguf", "GGUF");
  EXPECT_THAT(message_of(load_model_config(folder.root())),
              AllOf(HasSubstr(folder.path("config.json") + ": expected"),
                    HasSubstr("opens by its own name, " + folder.path("model-Q4_0.gguf"))));
  folder.write("model-Q8_0.gguf", "GGUF");
  EXPECT_THAT(message_of(load_model_config(folder.root())), HasSubstr("its 2 GGUF files"));
  folder.write("config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n");
  EXPECT_THAT(error_naming("config.json", load_model_config(folder.root())).message(),
              HasSubstr("got a Git LFS pointer"));
}

TEST(GenerationConfig, RefusesImpossibleValues) {
  for (const std::string text : {R"({"temperature":-1})", R"({"top_p":1.5})", R"({"top_k":-2})",
                                 R"({"eos_token_id":[1,-2]})", R"({"do_sample":"yes"})", "[]"}) {
    EXPECT_FALSE(parse_generation_config(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace kakeya
