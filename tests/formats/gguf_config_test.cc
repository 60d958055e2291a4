// Configurations read from GGUF files: what llama.cpp's converter wrote against the config.json it
// read (tools/make_gguf_goldens.py), files written here for every small network, and wrong ones.
#include "formats/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "formats/config_comparison.h"
#include "formats/gguf_model_scratch.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

const std::string kNetworks = std::string(KAKEYA_TEST_DATA) + "/networks/";
const std::string kMoeGolden = std::string(KAKEYA_TEST_DATA) + "/gguf/gemma4-moe.gguf";

TEST(GgufConfig, OfTheConverterIsThatOfConfigJson) {
  const auto got = load_model_config(kMoeGolden);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  expect_same_network(*got, load_model_config(kNetworks + "gemma4-moe").value());
  // The ends of turns are told by the texts of tokens.
  EXPECT_THAT(got->eos_token_ids, ElementsAre(1, 106, 50));
  EXPECT_EQ(got->pad_token_id, 0);
}

TEST(GgufConfig, OfEverySmallNetworkIsThatOfConfigJson) {
  const ScratchFolder scratch;
  for (const char* name :
       {"gemma4-moe", "gemma4-moe-edge", "gemma4-dense", "gemma4-e", "gemma4-e4", "qwen3-tied",
        "qwen3-untied", "llama", "llama-biased", "mistral", "gemma3", "qwen2", "qwen3moe"}) {
    SCOPED_TRACE(name);
    const auto got =
        load_model_config(model_as_gguf(kNetworks + name).write(scratch.path("m.gguf")));
    ASSERT_TRUE(got.has_value()) << got.error().message();
    expect_same_network(*got, load_model_config(kNetworks + name).value());
  }
}

TEST(GgufConfig, RecommendedSamplingIsRead) {
  GgufContent content = model_as_gguf(kNetworks + "qwen3-tied");
  const ScratchFolder scratch;
  const auto plain = load_generation_config(content.write(scratch.path("m.gguf")));
  ASSERT_TRUE(plain.has_value()) << plain.error().message();
  EXPECT_FALSE(plain->do_sample);
  content.set("general.sampling.temp", 0.5F);
  content.set("general.sampling.top_k", std::int32_t{64});
  content.set("general.sampling.top_p", 0.95F);
  content.set("tokenizer.ggml.suppress_tokens", std::vector<std::int32_t>{7, 3});
  const auto got = load_generation_config(content.write(scratch.path("m.gguf")));
  ASSERT_TRUE(got.has_value()) << got.error().message();
  EXPECT_TRUE(got->do_sample);
  EXPECT_EQ(got->temperature, 0.5F);
  EXPECT_EQ(got->top_k, 64);
  EXPECT_EQ(got->top_p, 0.95F);
  EXPECT_THAT(got->suppress_tokens, ElementsAre(7, 3));
}

TEST(GgufConfig, BeginningOfTextIsLeftOutWhereTheFileSaysSo) {
  GgufContent content = model_as_gguf(kNetworks + "qwen3-tied");
  content.set("tokenizer.ggml.bos_token_id", std::uint32_t{5});
  const ScratchFolder scratch;
  EXPECT_EQ(load_model_config(content.write(scratch.path("m.gguf")))->bos_token_id, 5);
  content.set("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(load_model_config(content.write(scratch.path("m.gguf")))->bos_token_id.has_value());
  GgufContent gemma = model_as_gguf(kNetworks + "gemma4-dense");
  gemma.set("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(load_model_config(gemma.write(scratch.path("m.gguf")))->bos_token_id, 2);
}

TEST(GgufConfig, WhatChangesNothingIsTaken) {
  const auto taken = [](const std::string& network, const std::string& key, auto value) {
    GgufContent content = model_as_gguf(kNetworks + network);
    content.set(key, GgufMetadataValue(value));
    const ScratchFolder scratch;
    const auto config = load_model_config(content.write(scratch.path("m.gguf")));
    ASSERT_TRUE(config.has_value()) << config.error().message();
    expect_same_network(*config, load_model_config(kNetworks + network).value());
    EXPECT_FALSE(key.ends_with("padding_token_id") && config->pad_token_id.has_value());
  };
  const auto scale = static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(load_model_config(kNetworks + "qwen3-tied")->head_dim)));
  taken("qwen3-tied", "qwen3.attention.scale", scale);
  taken("qwen3-tied", "qwen3.rope.scaling.factor", 1.0F);
  taken("gemma4-dense", "gemma4.attention.scale", 1.0F);
  taken("gemma4-dense", "gemma4.rope.scaling.factor", 1.0F);
  taken("gemma4-dense", "tokenizer.ggml.padding_token_id", std::uint32_t{4294967295});
  taken("gemma4-dense", "tokenizer.ggml.padding_token_id", std::int32_t{-1});
}

// Whatever types a converter gave them, and whichever of them it names by id.
TEST(GgufConfig, TextEndsAtTheTokensOfTheFamily) {
  const ScratchFolder scratch;
  for (const std::int32_t type : {1, 3, 4}) {
    GgufContent content = model_as_gguf(kNetworks + "gemma4-dense");
    content.set("tokenizer.ggml.tokens",
                std::vector<std::string>{"<pad>", "<eos>", "<bos>", "a", "<turn|>"});
    content.set("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, type, 3, 1, type});
    content.set("tokenizer.ggml.eos_token_id", std::uint32_t{4});
    const auto config = load_model_config(content.write(scratch.path("m.gguf")));
    ASSERT_TRUE(config.has_value()) << config.error().message();
    EXPECT_THAT(config->eos_token_ids, UnorderedElementsAre(1, 4)) << type;
  }
}

// The error of a network with one thing changed, in one line that names the file.
template <typename Change>
Error config_refusal(const std::string& name, Change change) {
  GgufContent content = model_as_gguf(kNetworks + name);
  change(content);
  const ScratchFolder scratch;
  return error_naming("m.gguf", load_model_config(content.write(scratch.path("m.gguf"))));
}

TEST(GgufConfig, EveryKeyIsNeeded) {
  const std::vector<std::string> optional = {"general.architecture",
                                             "gemma4.final_logit_softcapping",
                                             "gemma4.attention.value_length",
                                             "gemma4.attention.value_length_swa",
                                             "gemma4.attention.shared_kv_layers",
                                             "gemma4.rope.freq_base_swa",
                                             "gemma4.rope.dimension_count",
                                             "gemma4.rope.dimension_count_swa",
                                             "gemma4.embedding_length_per_layer_input",
                                             "gemma4.expert_count",
                                             "tokenizer.ggml.bos_token_id",
                                             "tokenizer.ggml.eos_token_id"};
  for (const GgufMetadata& each : model_as_gguf(kNetworks + "gemma4-moe").metadata) {
    if (std::ranges::count(optional, each.key) > 0) continue;
    const Error error =
        config_refusal("gemma4-moe", [&](GgufContent& content) { content.erase(each.key); });
    EXPECT_THAT(error.message(), HasSubstr("key " + each.key + ": expected")) << each.key;
    EXPECT_EQ(error.code(), StatusCode::kNotFound);
  }
}

TEST(GgufConfig, OtherNetworksAreRefused) {
  const Error other = config_refusal(
      "qwen3-tied", [](GgufContent& it) { it.set("general.architecture", std::string("mamba")); });
  EXPECT_EQ(other.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(
      other.message(),
      HasSubstr(
          "expected one of gemma4, qwen3, llama, gemma3, qwen2, qwen3moe, dflash, got \"mamba\""));

  const auto unsupported = [](const std::string& network, const std::string& key, auto value) {
    const Error error = config_refusal(
        network, [&](GgufContent& content) { content.set(key, GgufMetadataValue(value)); });
    EXPECT_EQ(error.code(), StatusCode::kUnimplemented) << error.message();
  };
  unsupported("qwen3-tied", "qwen3.rope.scaling.type", std::string("yarn"));
  unsupported("qwen3-tied", "qwen3.rope.scaling.factor", 2.0F);
  unsupported("qwen3-tied", "qwen3.rope.dimension_count", std::uint32_t{16});
  unsupported("qwen3-tied", "qwen3.attention.value_length", std::uint32_t{16});
  unsupported("qwen3-tied", "qwen3.attention.causal", false);
  unsupported("qwen3-tied", "qwen3.attention.scale", 1.0F);
  unsupported("gemma4-dense", "gemma4.rope.scaling.factor", 8.0F);
  unsupported("gemma4-dense", "gemma4.attention.scale", 0.0625F);
  unsupported("gemma4-dense", "gemma4.attention.value_length_swa", std::uint32_t{8});
  unsupported("gemma4-dense", "gemma4.attention.head_count_kv",
              std::vector<std::int32_t>{2, 2, 1, 2, 4, 1});
  unsupported("gemma4-dense", "gemma4.feed_forward_length",
              std::vector<std::int32_t>{96, 96, 96, 96, 96, 192});
}

TEST(GgufConfig, ListsHaveOneValueALayer) {
  for (const char* key : {"gemma4.attention.head_count_kv", "gemma4.feed_forward_length"}) {
    EXPECT_THAT(config_refusal("gemma4-dense",
                               [&](GgufContent& content) {
                                 content.set(key, std::vector<std::int32_t>{2, 2});
                               })
                    .message(),
                HasSubstr("expected one value or one a layer (6), got 2"));
  }
  EXPECT_THAT(config_refusal("gemma4-dense",
                             [&](GgufContent& content) {
                               content.set("gemma4.attention.sliding_window_pattern",
                                           std::vector<bool>{true});
                             })
                  .message(),
              HasSubstr("expected one value a layer (6), got 1"));
}

// rope_freqs.weight is read, not believed: it must be what the network computes.
TEST(GgufConfig, FrequencyFactorsMustBeOnesThenVanishing) {
  const auto with = [](std::vector<float> factors) {
    return [factors = std::move(factors)](GgufContent& content) {
      content.erase_tensor("rope_freqs.weight");
      if (!factors.empty()) content.add_floats("rope_freqs.weight", factors);
    };
  };
  EXPECT_THAT(config_refusal("gemma4-dense", with({})).message(),
              HasSubstr("rope_freqs.weight: expected shape [16], got no tensor"));
  EXPECT_THAT(config_refusal("gemma4-dense", with({1.0F, 1e30F})).message(),
              HasSubstr("expected shape [16], got [2]"));
  std::vector<float> factors(16, 1e30F);
  EXPECT_EQ(config_refusal("gemma4-dense", with([&] {
                             auto scaled = factors;
                             scaled[0] = 8.0F;
                             return scaled;
                           }()))
                .code(),
            StatusCode::kUnimplemented);
  // Ones behind pairs that stand still.
  factors[15] = 1.0F;
  EXPECT_EQ(config_refusal("gemma4-dense", with(factors)).code(), StatusCode::kUnimplemented);
}

// 98 dimensions: 1 of 49 pairs as a fraction, times 49, is less than 1.
TEST(GgufConfig, EveryNumberOfRotatingPairsIsCountedBack) {
  constexpr std::uint32_t kDimensions = 98;
  for (std::int64_t rotating = 0; rotating <= kDimensions / 2; ++rotating) {
    GgufContent content = model_as_gguf(kNetworks + "gemma4-dense");
    for (const char* key :
         {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
      content.set(std::string("gemma4.") + key, kDimensions);
    }
    content.erase_tensor("rope_freqs.weight");
    std::vector<float> factors(kDimensions / 2, 1e30F);
    std::fill_n(factors.begin(), rotating, 1.0F);
    content.add_floats("rope_freqs.weight", factors);
    const ScratchFolder scratch;
    const auto config = load_model_config(content.write(scratch.path("m.gguf")));
    ASSERT_TRUE(config.has_value()) << config.error().message();
    const double pairs = config->rope_full.partial_rotary_factor * kDimensions / 2.0;
    EXPECT_EQ(static_cast<std::int64_t>(pairs), rotating);
  }
}

TEST(GgufConfig, ModelsAndDraftersAreNotTakenForEachOther) {
  const ScratchFolder scratch;
  const std::string drafter =
      drafter_as_gguf(kNetworks + "dflash-gemma4").write(scratch.path("d.gguf"));
  EXPECT_THAT(message_of(load_model_config(drafter)), HasSubstr("this is a DFlash drafter"));
  EXPECT_THAT(message_of(load_drafter_config(kMoeGolden)), HasSubstr("expected a DFlash drafter"));
  EXPECT_FALSE(is_drafter_folder(kMoeGolden));
}

TEST(GgufConfig, DraftersOfOtherKindsAreRefused) {
  const ScratchFolder scratch;
  const auto config_refusal = [&](const std::string& key, GgufMetadataValue value) {
    GgufContent content = drafter_as_gguf(kNetworks + "dflash-gemma4");
    content.set(key, std::move(value));
    return error_of(load_drafter_config(content.write(scratch.path("d.gguf"))));
  };
  EXPECT_THAT(config_refusal("dflash.selector_rank", std::uint32_t{256}).message(),
              HasSubstr("dflash_config.conv_kernel_size: expected an integer from 1 to 64"));
  EXPECT_EQ(config_refusal("dflash.hidden_activation", std::string("gelu")).code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(config_refusal("dflash.target_layers", std::vector<std::int32_t>{0, 2}).code(),
            StatusCode::kInvalidArgument);
  GgufContent content = drafter_as_gguf(kNetworks + "dflash-gemma4");
  content.erase("tokenizer.ggml.mask_token_id");
  EXPECT_THAT(message_of(load_drafter_config(content.write(scratch.path("d.gguf")))),
              HasSubstr("tokenizer.ggml.mask_token_id"));
}

}  // namespace
}  // namespace kakeya
