// Configurations of DFlash 2 drafters: as z-lab publishes them, as vLLM's speculators write them,
// and in GGUF files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/drafter_config.h"
#include "formats/gguf_model_scratch.h"
#include "formats/published_configs.h"
#include "formats/scratch_files.h"
#include "formats/tensor_request.h"

namespace kakeya {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kNetworkDirs = std::string(KAKEYA_TEST_DATA) + "/networks/";

json fixture() {
  return published("z-lab-DFlash2-fixture");
}

Error refusal_of(const json& config) {
  return error_of(parse_drafter_config(config.dump()));
}

// The refusal of the published file with one field of dflash_config replaced.
std::string refusal_with(const std::string& key, const json& value) {
  json config = fixture();
  config["dflash_config"][key] = value;
  return refusal_of(config).message();
}

TEST(Dflash2Config, ReadsThePublishedFile) {
  const DrafterConfig config = parse_drafter_config(fixture().dump()).value();
  EXPECT_TRUE(config.has_selector());
  EXPECT_EQ(config.conv_kernel_size, 2);
  EXPECT_EQ(config.conv_group_size, 16);
  EXPECT_EQ(config.selector_rank, 256);
  EXPECT_EQ(config.selector_top_k, 16);
  EXPECT_EQ(config.block_size, 16);
  EXPECT_EQ(config.is_causal, false);
  EXPECT_THAT(config.target_layer_ids, ElementsAre(1, 13, 25, 37, 49));
  // Its publisher's file of bf16 has 81 tensors and, behind a header, so many bytes.
  const std::vector<TensorSpec> tensors = expected_tensors(config);
  EXPECT_EQ(std::ranges::count(tensors, TensorPresence::kRequired, &TensorSpec::presence), 81);
  const std::int64_t bytes = 2 * total_parameters(tensors).value();
  EXPECT_LT(bytes, 5'544'328'424);
  EXPECT_GT(bytes, 5'544'328'424 - (std::int64_t{64} << 10));
}

TEST(Dflash2Config, ADrafterOfTheFirstKindHasNoSelector) {
  const auto config = load_drafter_config(kNetworkDirs + "dflash-qwen3");
  ASSERT_TRUE(config.has_value());
  EXPECT_FALSE(config->has_selector());
}

TEST(Dflash2Config, RefusesHalfOfIt) {
  for (const char* key :
       {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}) {
    json config = fixture();
    config["dflash_config"].erase(key);
    EXPECT_THAT(
        refusal_of(config).message(),
        testing::AllOf(HasSubstr(std::string("dflash_config.") + key), HasSubstr("nothing")));
  }
  json first = fixture();
  first["architectures"] = {"DFlashDraftModel"};
  EXPECT_EQ(refusal_of(first).message(),
            "architectures: expected DFlash2DraftModel beside conv_kernel_size, conv_group_size, "
            "selector_rank, selector_top_k, got DFlashDraftModel");
  json unknown = fixture();
  unknown["architectures"] = {"DFlash3DraftModel"};
  EXPECT_EQ(refusal_of(unknown).code(), StatusCode::kUnimplemented);
}

TEST(Dflash2Config, RefusesImpossibleSizes) {
  EXPECT_THAT(refusal_with("conv_kernel_size", 0), HasSubstr("from 1 to 64, got 0"));
  EXPECT_EQ(refusal_with("conv_group_size", 48),
            "dflash_config.conv_group_size: expected a divisor of hidden_size, 6656, got 48");
  EXPECT_THAT(refusal_with("selector_rank", 0), HasSubstr("selector_rank"));
  EXPECT_THAT(refusal_with("selector_top_k", 0), HasSubstr("selector_top_k"));
  EXPECT_EQ(refusal_with("selector_top_k", 202048),
            "selector_top_k: expected less than vocab_size, 202048, got 202048");
  json longer = fixture();
  longer["sliding_window"] = 15;
  EXPECT_EQ(refusal_of(longer).message(),
            "block_size: expected at most sliding_window, 15, where is_causal is false, got 16");
}

TEST(Dflash2Config, RefusesWhatWouldChangeResults) {
  EXPECT_THAT(refusal_with("markov_order", 2), HasSubstr("dflash_config.markov_order"));
  const std::vector<std::pair<std::string, json>> fields = {
      {"attention_sink_bias", true}, {"attention_value_scale", 0.5}, {"use_swa", true},
      {"swa_window_size", 128},      {"backbone_rotary_base", 1e4},  {"partial_rotary_factor", 0.5},
      {"is_neox_style", false},      {"rope_is_neox_style", false},  {"attention_bias", true},
      {"hidden_act", "gelu"},        {"draft_ffn_type", "moe"},      {"draft_vocab_size", 32000},
      {"target_hidden_size", 4096},  {"sample_from_anchor", true}};
  for (const auto& [key, value] : fields) {
    json config = fixture();
    config[key] = value;
    const Error error = refusal_of(config);
    EXPECT_THAT(error.message(), HasSubstr(key)) << key;
  }
  json same = fixture();
  same["draft_vocab_size"] = 202048;
  same["target_hidden_size"] = 6656;
  same["use_swa"] = false;
  same["dflash_config"]["loss_decay_gamma"] = 4.0;
  EXPECT_TRUE(parse_drafter_config(same.dump()).has_value());
}

// As vLLM's speculators write the drafter of a golden.
json as_speculators(const json& config) {
  json layers = config;
  const json dflash = layers["dflash_config"];
  for (const char* key : {"architectures", "dflash_config", "is_causal", "num_target_layers"}) {
    layers.erase(key);
  }
  json made = {{"architectures", {"DFlash2Speculator"}},
               {"speculators_model_type", "dflash2"},
               {"speculators_version", "0.5.0"},
               {"speculators_config", {{"algorithm", "dflash2"}}},
               {"transformer_layer_config", layers},
               {"draft_vocab_size", layers["vocab_size"]},
               {"sample_from_anchor", false},
               {"sliding_window_non_causal", config.contains("is_causal")},
               {"tie_word_embeddings", false}};
  for (const auto& [key, value] : dflash.items()) {
    if (key != "target_layer_ids") made[key] = value;
  }
  for (const int tap : dflash["target_layer_ids"]) {
    made["aux_hidden_state_layer_ids"].push_back(tap + 1);
  }
  return made;
}

TEST(Dflash2Config, OfSpeculatorsIsThatOfThePublisher) {
  const ScratchFolder scratch;
  for (const char* name : {"dflash2-qwen3", "dflash2-qwen3-edge", "dflash2-gemma4"}) {
    const std::string text = read_file(kNetworkDirs + name + "/config.json");
    const DrafterConfig want = parse_drafter_config(text).value();
    scratch.write("config.json", as_speculators(json::parse(text)).dump());
    const auto got = load_drafter_config(scratch.root());
    ASSERT_TRUE(got.has_value()) << got.error().message();
    EXPECT_TRUE(is_drafter_folder(scratch.root()));
    EXPECT_EQ(got->target_layer_ids, want.target_layer_ids);
    EXPECT_EQ(got->is_causal, want.is_causal);
    EXPECT_EQ(got->block_size, want.block_size);
    EXPECT_EQ(got->mask_token_id, want.mask_token_id);
    EXPECT_EQ(got->selector_rank, want.selector_rank);
    EXPECT_EQ(got->selector_top_k, want.selector_top_k);
    EXPECT_EQ(got->conv_kernel_size, want.conv_kernel_size);
    EXPECT_EQ(got->conv_group_size, want.conv_group_size);
    EXPECT_EQ(got->output_multiplier, want.output_multiplier);
    EXPECT_EQ(got->layers.final_logit_softcapping, want.layers.final_logit_softcapping);
    EXPECT_EQ(got->layers.layer_types, want.layers.layer_types);
    EXPECT_EQ(got->layers.rope_full.rope_theta, want.layers.rope_full.rope_theta);
  }
}

TEST(Dflash2Config, RefusesSpeculatorsThatAreOthers) {
  const json good =
      as_speculators(json::parse(read_file(kNetworkDirs + "dflash2-qwen3/config.json")));
  const auto with = [&](const char* key, const json& value) {
    json config = good;
    config[key] = value;
    return refusal_of(config).message();
  };
  EXPECT_EQ(with("speculators_model_type", "eagle3"),
            "speculators_model_type: expected \"dflash\" or \"dflash2\", got \"eagle3\"");
  EXPECT_EQ(with("markov_order", 2), "markov_order: what it stands for is not known");
  EXPECT_EQ(with("sample_from_anchor", true), "sample_from_anchor: expected false, got true");
  EXPECT_THAT(with("draft_vocab_size", 128), HasSubstr("draft_vocab_size: expected vocab_size"));
  EXPECT_THAT(with("aux_hidden_state_layer_ids", {0, 3}), HasSubstr("aux_hidden_state_layer_ids"));
  EXPECT_THAT(with("transformer_layer_config", 3), HasSubstr("expected an object, got 3"));
}

TEST(Dflash2Config, OfAGgufFileIsThatOfItsFolder) {
  const ScratchFolder scratch;
  for (const char* name : {"dflash2-qwen3", "dflash2-qwen3-edge", "dflash2-gemma4"}) {
    const DrafterConfig want = load_drafter_config(kNetworkDirs + name).value();
    const std::string path = drafter_as_gguf(kNetworkDirs + name).write(scratch.path("d.gguf"));
    const auto got = load_drafter_config(path);
    ASSERT_TRUE(got.has_value()) << got.error().message();
    EXPECT_EQ(got->selector_rank, want.selector_rank);
    EXPECT_EQ(got->selector_top_k, want.selector_top_k);
    EXPECT_EQ(got->conv_kernel_size, want.conv_kernel_size);
    EXPECT_EQ(got->conv_group_size, want.conv_group_size);
    EXPECT_EQ(got->layers.vocab_size, want.layers.vocab_size);
    EXPECT_EQ(got->output_multiplier, want.output_multiplier);
    EXPECT_EQ(got->is_causal, want.is_causal);
    const auto file = GgufCheckpoint::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    const auto tensors = resolve_tensors(*file, expected_tensors(*got));
    EXPECT_TRUE(tensors.has_value()) << tensors.error().message();
  }
}

// Trainers keep the codebooks as embeddings, or as bare parameters.
TEST(Dflash2Config, CodebooksMayHaveEitherName) {
  const ScratchFolder scratch;
  const std::string dir = kNetworkDirs + "dflash2-qwen3";
  const DrafterConfig config = load_drafter_config(dir).value();
  std::string file = read_file(dir + "/model.safetensors");
  const std::string bare = "predecessor_codebook\"";
  const std::string table = "predecessor_codebook.weight\"";
  const std::size_t at = file.find(bare);
  ASSERT_NE(at, std::string::npos);
  file.replace(at, bare.size(), table);
  file[0] = static_cast<char>(file[0] + 7);  // the length of the header
  scratch.write("model.safetensors", file);
  const auto renamed = Checkpoint::open(scratch.root());
  ASSERT_TRUE(renamed.has_value()) << renamed.error().message();
  const auto tensors = resolve_tensors(*renamed, expected_tensors(config));
  EXPECT_TRUE(tensors.has_value()) << tensors.error().message();
}

}  // namespace
}  // namespace kakeya
