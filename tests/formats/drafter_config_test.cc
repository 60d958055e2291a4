#include "formats/drafter_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/named_shapes.h"
#include "formats/published_configs.h"
#include "formats/scratch_files.h"
#include "formats/spread_taps.h"
#include "formats/tensor_request.h"

namespace kakeya {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* k26B = "z-lab-gemma-4-26B-A4B-it-DFlash";
constexpr const char* kSpecForge = "SpecForge-qwen3-8b-dflash";

DrafterConfig parsed_drafter(const json& config) {
  const auto result = parse_drafter_config(config.dump());
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result.value_or(DrafterConfig());
}

DrafterConfig loaded(const std::string& dir) {
  const auto result = load_drafter_config(dir);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result.value_or(DrafterConfig());
}

Error drafter_refusal(const json& config) {
  const Error error = error_of(parse_drafter_config(config.dump()));
  EXPECT_THAT(error.message(), Not(HasSubstr("\n")));
  return error;
}

// The refusal of the 26B drafter with one field replaced: at the top, or in dflash_config.
std::string drafter_refusal_with(const std::string& key, const json& value) {
  json config = published(k26B);
  config[key] = value;
  return drafter_refusal(config).message();
}

std::string refusal_with_dflash(const std::string& key, const json& value) {
  json config = published(k26B);
  config["dflash_config"][key] = value;
  return drafter_refusal(config).message();
}

std::int64_t parameters(const DrafterConfig& config) {
  return total_parameters(expected_tensors(config)).value_or(-1);
}

// Every field that says how the drafter computes.
void expect_same(const DrafterConfig& got, const DrafterConfig& want) {
  EXPECT_EQ(got.layers.architecture, want.layers.architecture);
  EXPECT_EQ(got.layers.model_type, want.layers.model_type);
  EXPECT_EQ(got.layers.vocab_size, want.layers.vocab_size);
  EXPECT_EQ(got.layers.hidden_size, want.layers.hidden_size);
  EXPECT_EQ(got.layers.intermediate_size, want.layers.intermediate_size);
  EXPECT_EQ(got.layers.num_hidden_layers, want.layers.num_hidden_layers);
  EXPECT_EQ(got.layers.num_attention_heads, want.layers.num_attention_heads);
  EXPECT_EQ(got.layers.num_key_value_heads, want.layers.num_key_value_heads);
  EXPECT_EQ(got.layers.num_global_key_value_heads, want.layers.num_global_key_value_heads);
  EXPECT_EQ(got.layers.head_dim, want.layers.head_dim);
  EXPECT_EQ(got.layers.global_head_dim, want.layers.global_head_dim);
  EXPECT_EQ(got.layers.max_position_embeddings, want.layers.max_position_embeddings);
  EXPECT_EQ(got.layers.sliding_window, want.layers.sliding_window);
  EXPECT_EQ(got.layers.layer_types, want.layers.layer_types);
  EXPECT_EQ(got.layers.rms_norm_eps, want.layers.rms_norm_eps);
  EXPECT_EQ(got.layers.final_logit_softcapping, want.layers.final_logit_softcapping);
  EXPECT_EQ(got.layers.hidden_activation, want.layers.hidden_activation);
  EXPECT_EQ(got.layers.tie_word_embeddings, want.layers.tie_word_embeddings);
  EXPECT_EQ(got.layers.rope_full.rope_theta, want.layers.rope_full.rope_theta);
  EXPECT_EQ(got.layers.rope_sliding.rope_theta, want.layers.rope_sliding.rope_theta);
  EXPECT_EQ(got.block_size, want.block_size);
  EXPECT_EQ(got.mask_token_id, want.mask_token_id);
  EXPECT_EQ(got.target_layer_ids, want.target_layer_ids);
  EXPECT_EQ(got.num_target_layers, want.num_target_layers);
  EXPECT_EQ(got.output_multiplier, want.output_multiplier);
  EXPECT_EQ(got.is_causal, want.is_causal);
  EXPECT_EQ(got.input_embedding_scale, want.input_embedding_scale);
}

TEST(DrafterConfig, RefusesWhatItDoesNotComputeByName) {
  EXPECT_THAT(drafter_refusal_with("attn_logit_softcapping", 50.0),
              HasSubstr("attn_logit_softcapping: what it stands for is not supported, got 50"));
  EXPECT_THAT(refusal_with_dflash("residual_multiplier", 0.5),
              HasSubstr("dflash_config.residual_multiplier"));
  json config = published(k26B);
  config.erase("rope_theta");
  EXPECT_THAT(drafter_refusal(config).message(), HasSubstr("rope_parameters: expected an object"));
}

TEST(DrafterConfig, ReadsTheDrafterOfThe26BModel) {
  const DrafterConfig config = loaded(config_path(k26B));
  EXPECT_EQ(config.block_size, 16);
  EXPECT_EQ(config.mask_token_id, 4);
  EXPECT_THAT(config.target_layer_ids, ElementsAre(1, 6, 11, 17, 22, 27));
  EXPECT_EQ(config.num_target_layers, 30);
  EXPECT_EQ(config.output_multiplier, 1.0F);
  EXPECT_EQ(config.is_causal, std::nullopt);
  EXPECT_EQ(config.input_embedding_scale, std::nullopt);

  const ModelConfig& layers = config.layers;
  EXPECT_EQ(layers.architecture, Architecture::kQwen3);
  EXPECT_EQ(layers.vocab_size, 262144);
  EXPECT_EQ(layers.hidden_size, 2816);
  EXPECT_EQ(layers.intermediate_size, 5632);
  EXPECT_EQ(layers.num_attention_heads, 32);
  EXPECT_EQ(layers.sliding_window, 2048);
  EXPECT_EQ(layers.final_logit_softcapping, 30.0F);
  EXPECT_EQ(layers.hidden_activation, Activation::kSilu);
  EXPECT_TRUE(layers.tie_word_embeddings);
  EXPECT_EQ(layers.max_position_embeddings, 262144);
  EXPECT_EQ(layers.rope_full.rope_theta, 1e6);
  EXPECT_EQ(layers.rope_sliding.rope_theta, 1e6);
  EXPECT_EQ(layers.rope_full.partial_rotary_factor, 1.0);
  ASSERT_EQ(layers.num_hidden_layers, 5);
  for (std::int64_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(layers.is_sliding(layer), layer < 4);
    EXPECT_EQ(layers.layer_head_dim(layer), 128);
    EXPECT_EQ(layers.layer_kv_heads(layer), 8);
    EXPECT_EQ(layers.kv_source_layer(layer), layer);
  }
}

TEST(DrafterConfig, CountsTheParametersOfThePublishedDrafters) {
  EXPECT_EQ(parameters(loaded(config_path(k26B))), 429'689'088);
  EXPECT_EQ(parameters(loaded(config_path("z-lab-gemma-4-31B-it-DFlash"))), 1'535'967'488);
  EXPECT_EQ(parameters(loaded(config_path("z-lab-gemma4-12B-it-DFlash"))), 727'496'960);
  EXPECT_EQ(parameters(loaded(config_path("z-lab-Qwen3-4B-DFlash-b16"))), 537'427'200);
  EXPECT_EQ(parameters(loaded(config_path("z-lab-Qwen3-8B-DFlash-b16"))), 1'048'626'432);
}

TEST(DrafterConfig, ReadsTheOtherPublishedDrafters) {
  const DrafterConfig dense = loaded(config_path("z-lab-gemma-4-31B-it-DFlash"));
  EXPECT_EQ(dense.layers.num_attention_heads, 64);
  EXPECT_EQ(dense.num_target_layers, 60);
  EXPECT_THAT(dense.target_layer_ids, ElementsAre(1, 12, 23, 35, 46, 57));
  const DrafterConfig small = loaded(config_path("z-lab-gemma4-12B-it-DFlash"));
  EXPECT_EQ(small.layers.intermediate_size, 7680);
  EXPECT_THAT(small.target_layer_ids, ElementsAre(1, 10, 19, 27, 36, 45));
  for (const auto& [name, hidden] : {std::pair("z-lab-Qwen3-4B-DFlash-b16", 2560),
                                     std::pair("z-lab-Qwen3-8B-DFlash-b16", 4096)}) {
    const DrafterConfig config = loaded(config_path(name));
    EXPECT_EQ(config.layers.hidden_size, hidden);
    EXPECT_EQ(config.layers.sliding_window, 0);
    EXPECT_EQ(config.layers.layer_types, std::vector<LayerType>(5, LayerType::kFull));
    EXPECT_EQ(config.layers.final_logit_softcapping, 0.0F);
    EXPECT_EQ(config.layers.max_position_embeddings, 40960);
    EXPECT_EQ(config.mask_token_id, 151669);
    EXPECT_THAT(config.target_layer_ids, ElementsAre(1, 9, 17, 25, 33));
  }
}

TEST(DrafterConfig, ReadsAFileWithoutModelTypeAndArchitecture) {
  const DrafterConfig config = loaded(config_path("z-lab-Qwen3.6-27B-DFlash"));
  EXPECT_EQ(config.layers.model_type, "qwen3");
  EXPECT_EQ(config.layers.hidden_size, 5120);
  EXPECT_EQ(config.layers.rope_full.rope_theta, 1e7);
  EXPECT_EQ(config.layers.max_position_embeddings, 1 << 18);
  EXPECT_EQ(config.mask_token_id, 248070);
  EXPECT_THAT(config.target_layer_ids, ElementsAre(1, 16, 31, 46, 61));
}

TEST(DrafterConfig, ChoosesTapsAndMaskTokenWithoutDflashConfig) {
  const DrafterConfig config = loaded(config_path(kSpecForge));
  EXPECT_THAT(config.target_layer_ids, ElementsAre(1, 9, 17, 25, 33));
  EXPECT_EQ(config.mask_token_id, 151669);
  expect_same(config, loaded(config_path("z-lab-Qwen3-8B-DFlash-b16")));

  json other = published(kSpecForge);
  other["vocab_size"] = 151935;
  EXPECT_EQ(drafter_refusal(other).message(),
            "dflash_config.mask_token_id: expected an integer from 0 to 151934, got nothing");
  other = published(kSpecForge);
  other.erase("num_target_layers");
  EXPECT_EQ(drafter_refusal(other).message(),
            "dflash_config.target_layer_ids: expected a list (or num_target_layers), got nothing");
  other["num_target_layers"] = 7;
  EXPECT_THAT(drafter_refusal(other).message(),
              HasSubstr("5 taps cannot be chosen from the 7 layers"));
  other["num_target_layers"] = 8;
  EXPECT_THAT(parsed_drafter(other).target_layer_ids, ElementsAre(1, 2, 3, 4, 5));
}

TEST(DrafterConfig, SpreadsTapsAsThePublishedDraftersDo) {
  EXPECT_THAT(default_taps(36, 5), ElementsAre(1, 9, 17, 25, 33));
  EXPECT_THAT(default_taps(30, 6), ElementsAre(1, 6, 11, 17, 22, 27));
  EXPECT_THAT(default_taps(60, 6), ElementsAre(1, 12, 23, 35, 46, 57));
  EXPECT_THAT(default_taps(48, 6), ElementsAre(1, 10, 19, 27, 36, 45));
  EXPECT_THAT(default_taps(36, 1), ElementsAre(18));
  // 1, 2.5, 4, 5.5, 7: halves go to the even neighbour.
  EXPECT_THAT(default_taps(10, 5), ElementsAre(1, 2, 4, 6, 7));
}

TEST(DrafterConfig, ReadsTheDraftersOfTheRepository) {
  const std::string networks = std::string(KAKEYA_TEST_DATA) + "/networks/";
  const DrafterConfig gemma = loaded(networks + "dflash-gemma4");
  EXPECT_EQ(gemma.block_size, 4);
  EXPECT_EQ(gemma.layers.sliding_window, 6);
  const DrafterConfig qwen = loaded(networks + "dflash-qwen3");
  EXPECT_EQ(qwen.mask_token_id, 511);
  EXPECT_EQ(qwen.layers.sliding_window, 0);
  const DrafterConfig demo = loaded(std::string(KAKEYA_DEMO_MODEL) + "/drafter");
  EXPECT_EQ(demo.is_causal, false);
  EXPECT_EQ(demo.input_embedding_scale, 16.0F);
}

TEST(DrafterConfig, AsksForTheTensorsThatTheFilesHold) {
  const std::string networks = std::string(KAKEYA_TEST_DATA) + "/networks/";
  for (const std::string& dir : {networks + "dflash-gemma4", networks + "dflash-qwen3",
                                 std::string(KAKEYA_DEMO_MODEL) + "/drafter"}) {
    const DrafterConfig config = loaded(dir);
    const auto checkpoint = Checkpoint::open(dir);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
    const auto tensors = resolve_tensors(*checkpoint, expected_tensors(config));
    ASSERT_TRUE(tensors.has_value()) << tensors.error().message();
    // Two tensors of the drafter and a norm besides eleven a layer.
    EXPECT_EQ(tensors->size(), static_cast<std::size_t>(3 + 11 * config.layers.num_hidden_layers));
    const auto taps = static_cast<std::int64_t>(config.target_layer_ids.size());
    const std::int64_t hidden = config.layers.hidden_size;
    EXPECT_EQ(tensors->at("fc.weight").shape, (Shape{hidden, taps * hidden}));
  }
}

TEST(DrafterConfig, LetsAFileHoldCopiesOfEmbeddingAndHead) {
  int copies = 0;
  for (const TensorSpec& spec : expected_tensors(loaded(config_path(k26B)))) {
    if (spec.name != "embed_tokens.weight" && spec.name != "lm_head.weight") continue;
    EXPECT_EQ(spec.presence, TensorPresence::kRedundant);
    ++copies;
  }
  EXPECT_EQ(copies, 2);
}

TEST(DrafterConfig, ReadsWhatDflashConfigOverrides) {
  json config = published("z-lab-DFlash2-fixture");
  const DrafterConfig drafter = parsed_drafter(config);
  EXPECT_EQ(drafter.block_size, 16);
  EXPECT_EQ(drafter.is_causal, false);
  EXPECT_EQ(drafter.layers.final_logit_softcapping, 20.0F);
  EXPECT_EQ(drafter.layers.rope_sliding.rope_theta, 5e5);
  EXPECT_FLOAT_EQ(drafter.output_multiplier, 0.19611613513818404F);
  EXPECT_EQ(drafter.layers.layer_types, std::vector<LayerType>(5, LayerType::kSliding));

  config.erase("is_causal");
  config["dflash_config"]["causal"] = true;
  EXPECT_EQ(parsed_drafter(config).is_causal, true);
  config["dflash_config"]["is_causal"] = true;
  EXPECT_EQ(parsed_drafter(config).is_causal, true);
  config["dflash_config"]["is_causal"] = false;
  EXPECT_EQ(drafter_refusal(config).message(),
            "dflash_config.causal: expected false as in dflash_config.is_causal, got true");
}

TEST(DrafterConfig, RefusesTwoPlacesThatContradictEachOther) {
  json config = published(k26B);
  config["dflash_config"]["block_size"] = 16;
  config["dflash_config"]["final_logit_softcapping"] = 30;
  config["input_embedding_scale"] = 2.5;
  config["dflash_config"]["input_embedding_scale"] = 2.5;
  EXPECT_EQ(parsed_drafter(config).block_size, 16);
  EXPECT_EQ(parsed_drafter(config).input_embedding_scale, 2.5F);
  config["dflash_config"]["input_embedding_scale"] = 3;
  EXPECT_EQ(drafter_refusal(config).message(),
            "dflash_config.input_embedding_scale: expected 2.5 as in input_embedding_scale, got 3");
  EXPECT_EQ(refusal_with_dflash("block_size", 8),
            "dflash_config.block_size: expected 16 as in block_size, got 8");
  EXPECT_EQ(refusal_with_dflash("final_logit_softcapping", 20),
            "dflash_config.final_logit_softcapping: expected 30 as in final_logit_softcapping, got "
            "20");
  config = published(k26B);
  config["is_causal"] = true;
  config["dflash_config"]["causal"] = false;
  EXPECT_THAT(drafter_refusal(config).message(),
              HasSubstr("causal: expected true as in is_causal"));
}

TEST(DrafterConfig, SaysThatAModelIsNoDrafter) {
  for (const char* name : {"google-gemma-4-26B-A4B-it", "Qwen-Qwen3-8B"}) {
    const Error error = drafter_refusal(published(name));
    EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(error.message(), "this is not the configuration of a DFlash drafter");
    EXPECT_FALSE(is_drafter_folder(config_path(name)));
  }
  EXPECT_TRUE(is_drafter_folder(config_path(k26B)));
  EXPECT_TRUE(is_drafter_folder(config_path("z-lab-DFlash2-fixture")));
  EXPECT_FALSE(is_drafter_folder(config_path("absent")));
}

TEST(DrafterConfig, BoundsTheBlock) {
  for (const json& size : {json(1), json(0), json(-16), json(65), json(10000), json("16")}) {
    EXPECT_THAT(drafter_refusal_with("block_size", size),
                AllOf(HasSubstr("block_size: expected an integer from 2 to 64, got "),
                      HasSubstr(size.dump())));
  }
  EXPECT_EQ(drafter_refusal_with("block_size", nullptr),
            "block_size: expected an integer from 2 to 64, got nothing");
  for (const int size : {2, 64}) {
    json config = published(k26B);
    config.erase("block_size");
    config["dflash_config"]["block_size"] = size;
    EXPECT_EQ(parsed_drafter(config).block_size, size);
  }
}

TEST(DrafterConfig, RefusesTapsThatCannotBe) {
  const auto message = [](const json& taps) {
    return refusal_with_dflash("target_layer_ids", taps);
  };
  EXPECT_THAT(message({1, 30}), HasSubstr("target_layer_ids: expected an integer from 0 to 29"));
  EXPECT_THAT(message({-1, 3}), HasSubstr("got -1"));
  EXPECT_EQ(message({3, 1, 3}),
            "dflash_config.target_layer_ids: expected distinct layers, got 3 twice");
  EXPECT_THAT(message(json::array()), HasSubstr("expected 1 to 64 layers, got 0"));
  EXPECT_THAT(message({"1"}), HasSubstr("target_layer_ids"));

  json config = published(k26B);
  config.erase("num_target_layers");
  config["dflash_config"]["target_layer_ids"] = {900, 3, 50};
  EXPECT_EQ(parsed_drafter(config).num_target_layers, 0);
  EXPECT_THAT(parsed_drafter(config).target_layer_ids, ElementsAre(900, 3, 50));
  std::vector<int> many(65);
  for (int i = 0; i < 65; ++i) many[static_cast<std::size_t>(i)] = i;
  config["dflash_config"]["target_layer_ids"] = many;
  EXPECT_THAT(drafter_refusal(config).message(), HasSubstr("expected 1 to 64 layers, got 65"));
}

TEST(DrafterConfig, RefusesImpossibleValuesByName) {
  EXPECT_THAT(refusal_with_dflash("mask_token_id", 262144), HasSubstr("from 0 to 262143"));
  EXPECT_THAT(refusal_with_dflash("mask_token_id", -1), HasSubstr("mask_token_id"));
  EXPECT_THAT(refusal_with_dflash("output_multiplier", 0), HasSubstr("output_multiplier"));
  EXPECT_THAT(refusal_with_dflash("input_embedding_scale", -1), HasSubstr("got -1"));
  EXPECT_THAT(drafter_refusal_with("input_embedding_scale", 1e39), HasSubstr("got 1e+39"));
  EXPECT_THAT(drafter_refusal_with("final_logit_softcapping", -30), HasSubstr("got -30"));
  EXPECT_THAT(drafter_refusal_with("is_causal", "yes"),
              HasSubstr("is_causal: expected true or false"));
  EXPECT_THAT(drafter_refusal_with("dflash_config", 3),
              HasSubstr("dflash_config: expected an object"));
  EXPECT_THAT(drafter_refusal_with("num_target_layers", 0), HasSubstr("num_target_layers"));
  EXPECT_THAT(drafter_refusal_with("num_attention_heads", 12), HasSubstr("multiple of the 8"));
  EXPECT_THAT(drafter_refusal_with("head_dim", 127), HasSubstr("even"));
  EXPECT_THAT(drafter_refusal_with("hidden_size", 1 << 23), HasSubstr("hidden_size"));
  EXPECT_THAT(drafter_refusal_with("max_position_embeddings", 0),
              HasSubstr("max_position_embeddings"));
  json huge = published(k26B);
  huge["hidden_size"] = 1 << 22;
  huge["intermediate_size"] = 1 << 22;
  huge["num_hidden_layers"] = 64;
  huge.erase("layer_types");
  huge.erase("use_sliding_window");
  EXPECT_THAT(drafter_refusal(huge).message(), HasSubstr("more than 2^50 parameters"));
}

TEST(DrafterConfig, SaysWhichFeatureIsNotSupported) {
  for (const auto& [key, value] : {std::pair<const char*, json>("hidden_act", "gelu"),
                                   {"attention_bias", true},
                                   {"model_type", "llama"},
                                   {"architectures", {"LlamaForCausalLM"}},
                                   {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}},
                                   {"quantization", {{"mode", "mxfp4"}}}}) {
    json config = published(k26B);
    config[key] = value;
    EXPECT_EQ(drafter_refusal(config).code(), StatusCode::kUnimplemented);
    EXPECT_THAT(drafter_refusal(config).message(),
                HasSubstr(key == std::string("rope_scaling") ? "rope_type" : key));
  }
}

TEST(DrafterConfig, TakesSlidingLayersOnlyWithAWindow) {
  EXPECT_THAT(drafter_refusal_with("sliding_window", nullptr), HasSubstr("sliding_window"));
  EXPECT_EQ(drafter_refusal_with("use_sliding_window", false),
            "use_sliding_window: expected true for layers of type sliding_attention, got false");
  EXPECT_EQ(drafter_refusal_with("layer_types", nullptr),
            "layer_types: expected a list with use_sliding_window, got nothing");
  json config = published(k26B);
  config.erase("use_sliding_window");
  EXPECT_EQ(parsed_drafter(config).layers.sliding_window, 2048);
  config.erase("layer_types");
  EXPECT_EQ(parsed_drafter(config).layers.sliding_window, 0);
  EXPECT_EQ(parsed_drafter(config).layers.layer_types, std::vector<LayerType>(5, LayerType::kFull));
}

TEST(DrafterConfig, NamesTheFileInItsErrors) {
  const ScratchFolder folder;
  EXPECT_EQ(code_of(load_drafter_config(folder.root())), StatusCode::kNotFound);
  folder.write("config.json", "[]");
  EXPECT_THAT(message_of(load_drafter_config(folder.root())),
              HasSubstr(folder.path("config.json") + ": expected a JSON object"));
}

TEST(DrafterFit, AcceptsTheTargetItWasTrainedFor) {
  for (const auto& [drafter, target] :
       {std::pair(k26B, "google-gemma-4-26B-A4B-it"),
        std::pair("z-lab-gemma-4-31B-it-DFlash", "google-gemma-4-31B-it"),
        std::pair("z-lab-gemma4-12B-it-DFlash", "google-gemma-4-12B-it"),
        std::pair("z-lab-Qwen3-4B-DFlash-b16", "Qwen-Qwen3-4B"),
        std::pair(kSpecForge, "Qwen-Qwen3-8B")}) {
    const auto config = load_model_config(config_path(target));
    ASSERT_TRUE(config.has_value()) << config.error().message();
    const Status fits = check_drafter_fits(loaded(config_path(drafter)), *config);
    EXPECT_TRUE(fits.has_value()) << fits.error().message();
  }
  const auto demo = load_model_config(KAKEYA_DEMO_MODEL);
  ASSERT_TRUE(demo.has_value()) << demo.error().message();
  EXPECT_TRUE(check_drafter_fits(loaded(std::string(KAKEYA_DEMO_MODEL) + "/drafter"), *demo));
}

TEST(DrafterFit, NamesBothSidesOfAMismatch) {
  const ModelConfig target = named_shape("gemma4-26b-a4b", 0).value();
  const DrafterConfig fitting = loaded(config_path(k26B));
  const auto message = [&](const DrafterConfig& drafter) {
    return message_of(check_drafter_fits(drafter, target));
  };
  DrafterConfig drafter = fitting;
  drafter.layers.hidden_size = 256;
  EXPECT_EQ(message(drafter), "drafter: hidden_size is 256 but the target's is 2816");
  drafter = fitting;
  drafter.layers.vocab_size = 512;
  EXPECT_EQ(message(drafter), "drafter: vocab_size is 512 but the target's is 262144");
  drafter = fitting;
  drafter.num_target_layers = 60;
  EXPECT_EQ(message(drafter), "drafter: num_target_layers is 60 but the target has 30 layers");
  drafter = fitting;
  drafter.num_target_layers = 0;
  drafter.target_layer_ids.back() = 30;
  EXPECT_EQ(message(drafter),
            "drafter: target_layer_ids names layer 30 but the target has 30 layers");
}

TEST(DrafterFit, TakesADrafterThatLeavesTheVocabularyToTheTarget) {
  const ModelConfig target = named_shape("gemma4-26b-a4b", 0).value();
  json config = published(k26B);
  config.erase("vocab_size");
  EXPECT_TRUE(check_drafter_fits(parsed_drafter(config), target).has_value());
  EXPECT_EQ(parameters(parsed_drafter(config)), 429'689'088);
  config["dflash_config"]["mask_token_id"] = 262144;
  EXPECT_EQ(message_of(check_drafter_fits(parsed_drafter(config), target)),
            "drafter: mask_token_id is 262144 but the target's vocab_size is 262144");
}

TEST(NamedDrafter, IsThePublishedOne) {
  for (const auto& [target, name] :
       {std::pair("gemma4-26b-a4b", k26B), std::pair("gemma4-31b", "z-lab-gemma-4-31B-it-DFlash"),
        std::pair("gemma4-12b", "z-lab-gemma4-12B-it-DFlash"),
        std::pair("qwen3-4b", "z-lab-Qwen3-4B-DFlash-b16"),
        std::pair("qwen3-8b", "z-lab-Qwen3-8B-DFlash-b16")}) {
    SCOPED_TRACE(target);
    const auto named = named_drafter_shape(target, 0);
    ASSERT_TRUE(named.has_value()) << named.error().message();
    expect_same(*named, loaded(config_path(name)));
  }
}

TEST(NamedDrafter, SpreadsItsTapsOverFewerLayers) {
  for (std::int64_t layers = 6; layers <= 30; ++layers) {
    const auto drafter = named_drafter_shape("gemma4-26b-a4b", layers);
    ASSERT_TRUE(drafter.has_value()) << drafter.error().message();
    const std::vector<std::int64_t>& taps = drafter->target_layer_ids;
    EXPECT_EQ(taps.size(), 6U);
    EXPECT_EQ(std::adjacent_find(taps.begin(), taps.end(), std::greater_equal<>()), taps.end())
        << "not ascending for " << layers;
    EXPECT_TRUE(check_drafter_fits(*drafter, named_shape("gemma4-26b-a4b", layers).value()));
  }
  EXPECT_THAT(named_drafter_shape("gemma4-26b-a4b", 6)->target_layer_ids,
              ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(named_drafter_shape("gemma4-26b-a4b", 8)->target_layer_ids,
              ElementsAre(0, 1, 3, 4, 6, 7));
  EXPECT_EQ(message_of(named_drafter_shape("gemma4-26b-a4b", 5)),
            "the drafter of gemma4-26b-a4b taps 6 layers but the target has 5");
  EXPECT_EQ(message_of(named_drafter_shape("gemma4-26b-a4b", 31)),
            "gemma4-26b-a4b has 1 to 30 layers but 31 were asked for");
}

TEST(NamedDrafter, SaysForWhichShapesThereIsOne) {
  const auto none = named_drafter_shape("gemma4-e2b", 0);
  EXPECT_EQ(code_of(none), StatusCode::kNotFound);
  EXPECT_THAT(message_of(none),
              AllOf(HasSubstr("'gemma4-e2b' has no published drafter"), HasSubstr("qwen3-8b")));
}

}  // namespace
}  // namespace kakeya
