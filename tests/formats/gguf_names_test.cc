// Names of tensors in GGUF files, as llama.cpp's converter writes them.
#include "formats/gguf_names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "formats/drafter_config.h"
#include "formats/families.h"
#include "formats/gguf.h"
#include "formats/model_tensors.h"

namespace kakeya {
namespace {

constexpr GgufArchitecture kGemma4 = GgufArchitecture::kGemma4;
constexpr GgufArchitecture kQwen3 = GgufArchitecture::kQwen3;
constexpr GgufArchitecture kDflash = GgufArchitecture::kDflash;

const std::string kConfigs = std::string(KAKEYA_TEST_DATA) + "/configs/";

TEST(GgufNames, SpellArchitecturesBothWays) {
  for (const Family& family : families()) {
    const GgufArchitecture each = gguf_architecture_of(family.architecture);
    EXPECT_EQ(parse_gguf_architecture(gguf_architecture_name(each)), each);
  }
  EXPECT_EQ(parse_gguf_architecture("dflash"), kDflash);
  EXPECT_EQ(gguf_architecture_name(kDflash), "dflash");
  EXPECT_FALSE(parse_gguf_architecture("mamba").has_value());
}

struct NamePair {
  const char* gguf;
  const char* checkpoint;
};

// Names that llama.cpp gives (gguf-py: constants.py and tensor_mapping.py), written down once more:
// those behind "blk.N." and "layers.N.", in all architectures.
const std::vector<NamePair> kInEveryLayer = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};
const std::vector<NamePair> kInLayersOfQwen3 = {
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
};
const std::vector<NamePair> kInLayersOfGemma4 = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {"layer_output_scale.weight", "layer_scalar"},
    // Experts.
    {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
    {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
    {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
    {"ffn_gate_inp.weight", "router.proj.weight"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
    {"ffn_gate_exps.weight", "experts.gate_proj"},
    {"ffn_up_exps.weight", "experts.up_proj"},
    {"ffn_down_exps.weight", "experts.down_proj"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    // Per-layer inputs.
    {"inp_gate.weight", "per_layer_input_gate.weight"},
    {"proj.weight", "per_layer_projection.weight"},
    {"post_norm.weight", "post_per_layer_input_norm.weight"},
};
const std::vector<NamePair> kOfTheModel = {
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
};
const std::vector<NamePair> kOfGemma4 = {
    {"per_layer_token_embd.weight", "embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "per_layer_projection_norm.weight"},
};
const std::vector<NamePair> kOfDflash = {
    {"fc.weight", "fc.weight"},
    {"enc.output_norm.weight", "hidden_norm.weight"},
    {"selector_predecessor.weight", "candidate_selector.predecessor_codebook.weight"},
    {"selector_successor.weight", "candidate_selector.successor_codebook.weight"},
    {"selector_hidden.weight", "candidate_selector.hidden_projection.weight"},
};
const std::vector<NamePair> kInLayersOfDflash2 = {
    {"attn_conv_base", "attention_conv.base_kernel"},
    {"attn_conv_proj.weight", "attention_conv.kernel_projection.weight"},
    {"ffn_conv_base", "mlp_conv.base_kernel"},
    {"ffn_conv_proj.weight", "mlp_conv.kernel_projection.weight"},
};

void expect_names(GgufArchitecture architecture,
                  const std::vector<NamePair>& pairs,
                  const std::string& gguf_layer = "",
                  const std::string& checkpoint_layer = "") {
  for (const NamePair& pair : pairs) {
    EXPECT_EQ(checkpoint_tensor_name(architecture, gguf_layer + pair.gguf),
              checkpoint_layer + pair.checkpoint);
    EXPECT_EQ(gguf_tensor_name(architecture, checkpoint_layer + pair.checkpoint),
              gguf_layer + pair.gguf);
  }
}

TEST(GgufNames, AreThoseOfTheConverter) {
  for (const GgufArchitecture each : {kGemma4, kQwen3, kDflash}) {
    expect_names(each, kOfTheModel);
    expect_names(each, kInEveryLayer, "blk.29.", "layers.29.");
    expect_names(each, each == kGemma4 ? kInLayersOfGemma4 : kInLayersOfQwen3, "blk.0.",
                 "layers.0.");
  }
  expect_names(kGemma4, kOfGemma4);
  expect_names(kDflash, kOfDflash);
  expect_names(kDflash, kInLayersOfDflash2, "blk.4.", "layers.4.");
}

TEST(GgufNames, OfOlderDflash2FilesAreRead) {
  for (const NamePair& pair : std::vector<NamePair>{
           {"selector.pred_codebook", "candidate_selector.predecessor_codebook.weight"},
           {"selector.succ_codebook", "candidate_selector.successor_codebook.weight"},
           {"selector.hidden_proj.weight", "candidate_selector.hidden_projection.weight"},
           {"blk.2.attn_conv.base", "layers.2.attention_conv.base_kernel"},
           {"blk.2.attn_conv.proj.weight", "layers.2.attention_conv.kernel_projection.weight"},
           {"blk.2.ffn_conv.base", "layers.2.mlp_conv.base_kernel"},
           {"blk.2.ffn_conv.proj.weight", "layers.2.mlp_conv.kernel_projection.weight"}}) {
    EXPECT_EQ(checkpoint_tensor_name(kDflash, pair.gguf), pair.checkpoint);
  }
}

// No name of the kinds that llama.cpp's converter made files of is missing above.
TEST(GgufNames, OfTheConvertersFilesAreInTheList) {
  std::set<std::string> listed = {std::string(kGgufRopeFactors)};
  for (const auto* pairs : {&kInEveryLayer, &kInLayersOfQwen3, &kInLayersOfGemma4, &kOfTheModel,
                            &kOfGemma4, &kOfDflash}) {
    for (const NamePair& pair : *pairs) listed.insert(pair.gguf);
  }
  for (const char* file : {"gemma4-moe", "dflash-gemma4"}) {
    const auto gguf =
        GgufFile::open(std::string(KAKEYA_TEST_DATA) + "/gguf/" + file + ".gguf").value();
    for (const GgufTensor& tensor : gguf.tensors()) {
      const std::string name(tensor.name);
      const std::size_t tail = name.starts_with("blk.") ? name.find('.', 4) + 1 : 0;
      EXPECT_TRUE(listed.contains(name.substr(tail))) << name;
    }
  }
}

TEST(GgufNames, OthersHaveNoTranslation) {
  for (const char* name :
       {"", "blk.", "blk.3", "blk.3.", "blk..attn_q.weight", "blk.03.attn_q.weight",
        "blk.-1.attn_q.weight", "blk.12345678.attn_q.weight", "blk.3.attn_q.beta",
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
  for (const char* network : {"llama", "llama-biased", "mistral", "gemma3", "qwen2", "qwen3moe"}) {
    const auto config =
        load_model_config(std::string(KAKEYA_TEST_DATA) + "/networks/" + network).value();
    expect_round_trip(gguf_architecture_of(config.architecture), expected_tensors(config));
  }
  for (const char* name : {"z-lab-gemma-4-26B-A4B-it-DFlash", "z-lab-DFlash2-fixture"}) {
    const auto drafter = load_drafter_config(kConfigs + name);
    ASSERT_TRUE(drafter.has_value()) << drafter.error().message();
    expect_round_trip(kDflash, expected_tensors(*drafter));
  }
}

}  // namespace
}  // namespace kakeya
