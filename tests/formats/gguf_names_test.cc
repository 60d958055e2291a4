// Names of tensors in GGUF files, as llama.cpp's converter writes them.
#include "formats/gguf_names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "formats/drafter_config.h"
#include "formats/model_tensors.h"

namespace kakeya {
namespace {

constexpr GgufArchitecture kGemma4 = GgufArchitecture::kGemma4;
constexpr GgufArchitecture kQwen3 = GgufArchitecture::kQwen3;
constexpr GgufArchitecture kDflash = GgufArchitecture::kDflash;

const std::string kConfigs = std::string(KAKEYA_TEST_DATA) + "/configs/";

TEST(GgufNames, SpellArchitecturesBothWays) {
  for (const GgufArchitecture each : {kGemma4, kQwen3, kDflash}) {
    EXPECT_EQ(parse_gguf_architecture(gguf_architecture_name(each)), each);
  }
  EXPECT_EQ(gguf_architecture_name(kDflash), "dflash");
  EXPECT_FALSE(parse_gguf_architecture("llama").has_value());
}

TEST(GgufNames, AreThoseOfTheConverter) {
  struct Case {
    GgufArchitecture architecture;
    const char* gguf;
    const char* checkpoint;
  };
  const std::vector<Case> cases = {
      {kGemma4, "blk.29.ffn_norm.weight", "layers.29.pre_feedforward_layernorm.weight"},
      {kQwen3, "blk.29.ffn_norm.weight", "layers.29.post_attention_layernorm.weight"},
      {kDflash, "blk.4.ffn_norm.weight", "layers.4.post_attention_layernorm.weight"},
      {kGemma4, "blk.0.post_attention_norm.weight", "layers.0.post_attention_layernorm.weight"},
      {kGemma4, "blk.0.ffn_down_exps.scale", "layers.0.router.per_expert_scale"},
      {kGemma4, "blk.0.ffn_gate_inp.scale", "layers.0.router.scale"},
      {kGemma4, "blk.0.ffn_gate_up_exps.weight", "layers.0.experts.gate_up_proj"},
      {kGemma4, "blk.0.ffn_up_exps.weight", "layers.0.experts.up_proj"},
      {kDflash, "enc.output_norm.weight", "hidden_norm.weight"},
      {kDflash, "output_norm.weight", "norm.weight"},
      {kQwen3, "token_embd.weight", "embed_tokens.weight"},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(checkpoint_tensor_name(each.architecture, each.gguf), each.checkpoint);
    EXPECT_EQ(gguf_tensor_name(each.architecture, each.checkpoint), each.gguf);
  }
}

TEST(GgufNames, OthersHaveNoTranslation) {
  for (const char* name :
       {"", "blk.", "blk.3", "blk.3.", "blk..attn_q.weight", "blk.03.attn_q.weight",
        "blk.-1.attn_q.weight", "blk.12345678.attn_q.weight", "blk.3.attn_q.bias",
        "rope_freqs.weight", "attn_q.weight", "fc.weight", "layers.3.self_attn.q_proj.weight"}) {
    EXPECT_EQ(checkpoint_tensor_name(kGemma4, name), "") << name;
  }
  EXPECT_EQ(checkpoint_tensor_name(kQwen3, "blk.0.post_ffw_norm.weight"), "");
  EXPECT_EQ(gguf_tensor_name(kQwen3, "layers.0.router.scale"), "");
}

// Every tensor goes to a name of its own and back.
void expect_round_trip(GgufArchitecture architecture, const std::vector<TensorSpec>& specs) {
  std::set<std::string> seen;
  for (const TensorSpec& spec : specs) {
    const std::string name = gguf_tensor_name(architecture, spec.name);
    EXPECT_FALSE(name.empty()) << spec.name;
    EXPECT_TRUE(seen.insert(name).second) << name;
    EXPECT_EQ(checkpoint_tensor_name(architecture, name), spec.name);
  }
}

TEST(GgufNames, CoverEveryTensorOfPublishedModels) {
  for (const char* model : {"google-gemma-4-26B-A4B-it", "google-gemma-4-31B-it",
                            "google-gemma-4-E2B-it", "google-gemma-4-E4B-it"}) {
    const auto config = load_model_config(kConfigs + model);
    ASSERT_TRUE(config.has_value()) << config.error().message();
    expect_round_trip(kGemma4, expected_tensors(*config));
  }
  const auto qwen = load_model_config(kConfigs + "Qwen-Qwen3-8B");
  ASSERT_TRUE(qwen.has_value()) << qwen.error().message();
  expect_round_trip(kQwen3, expected_tensors(*qwen));
  const auto drafter = load_drafter_config(kConfigs + "z-lab-gemma-4-26B-A4B-it-DFlash");
  ASSERT_TRUE(drafter.has_value()) << drafter.error().message();
  expect_round_trip(kDflash, expected_tensors(*drafter));
}

}  // namespace
}  // namespace kakeya
