#include "formats/tensor_request.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<TensorSpec> kWanted = {
    {"embed_tokens.weight", {4, 2}},
    {"norm.weight", {2}},
    {"layers.0.bias", {2}, TensorPresence::kOptional},
    {"layers.1.self_attn.k_proj.weight", {2, 2}, TensorPresence::kRedundant}};

struct Stored {
  std::string name;
  Shape shape;
  DType dtype = DType::kBF16;
};

// A checkpoint of zeros in `folder` with these tensors.
Checkpoint checkpoint_of(const ScratchFolder& folder, const std::vector<Stored>& stored) {
  static const std::vector<std::byte> kZeros(4096);
  std::vector<TensorView> views;
  for (const Stored& tensor : stored) {
    views.push_back({kZeros.data(), tensor.shape, tensor.dtype, tensor.name});
  }
  EXPECT_TRUE(write_safetensors(folder.path("model.safetensors"), views, {}).has_value());
  auto checkpoint = Checkpoint::open(folder.root());
  EXPECT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
  return std::move(checkpoint).value();
}

std::string problems_of(const std::vector<Stored>& stored) {
  const ScratchFolder folder;
  const Checkpoint checkpoint = checkpoint_of(folder, stored);
  const auto resolved = resolve_tensors(checkpoint, kWanted);
  EXPECT_FALSE(resolved.has_value());
  return resolved ? "" : resolved.error().message();
}

TEST(ResolveTensors, AcceptsEveryPrefixOfATextDecoder) {
  for (const std::string prefix :
       {"model.language_model.", "language_model.model.", "language_model.", "model.", ""}) {
    const ScratchFolder folder;
    const Checkpoint checkpoint = checkpoint_of(
        folder, {{prefix + "embed_tokens.weight", {4, 2}}, {prefix + "norm.weight", {2}}});
    const auto resolved = resolve_tensors(checkpoint, kWanted);
    ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
    EXPECT_EQ(resolved->at("norm.weight").name, prefix + "norm.weight");
    EXPECT_EQ(resolved->find("layers.0.bias"), nullptr);
    EXPECT_EQ(resolved->size(), 2U);
  }
}

TEST(ResolveTensors, SkipsOtherModalitiesAndRedundantTensors) {
  const ScratchFolder folder;
  const Checkpoint checkpoint =
      checkpoint_of(folder, {{"model.language_model.embed_tokens.weight", {4, 2}},
                             {"model.language_model.norm.weight", {2}},
                             {"model.vision_tower.patch.weight", {3}},
                             {"model.audio_tower.layers.0.weight", {3}},
                             {"model.embed_vision.weight", {1}},
                             {"model.embed_audio.weight", {1}},
                             {"model.vision_embedder.weight", {1}},
                             {"model.language_model.layers.0.mlp.input_max", {}},
                             {"model.language_model.layers.1.self_attn.k_proj.weight", {2, 2}}});
  const auto resolved = resolve_tensors(checkpoint, kWanted);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
  EXPECT_EQ(resolved->size(), 2U);
  EXPECT_EQ(resolved->find("layers.1.self_attn.k_proj.weight"), nullptr);
}

TEST(ResolveTensors, NamesEveryProblemInOneLine) {
  const std::string message = problems_of({{"model.embed_tokens.weight", {2, 4}},
                                           {"model.layers.0.bias", {2}, DType::kI32},
                                           {"model.layers.7.mystery", {1}},
                                           {"lm_head.weight", {4, 2}}});
  EXPECT_THAT(message,
              AllOf(HasSubstr("5 tensors do not fit"), HasSubstr("embed_tokens.weight in "),
                    HasSubstr("model.safetensors: expected shape [4, 2], got [2, 4]"),
                    HasSubstr("expected F32, F16 or BF16, got I32"),
                    HasSubstr("unexpected model.layers.7.mystery [1]"),
                    HasSubstr("unexpected lm_head.weight [4, 2]"),
                    HasSubstr("missing norm.weight [2]"), Not(HasSubstr("\n"))));
}

TEST(ResolveTensors, RefusesTwoSpellingsOfOneTensor) {
  EXPECT_THAT(problems_of({{"model.embed_tokens.weight", {4, 2}},
                           {"embed_tokens.weight", {4, 2}},
                           {"norm.weight", {2}}}),
              AllOf(HasSubstr("1 tensor does not fit"), HasSubstr("is the same tensor as")));
}

TEST(ResolveTensors, StopsSpellingOutProblemsAfterAHundred) {
  std::vector<Stored> many;
  for (int i = 0; i < 500; ++i) many.push_back({fmt::format("x{}", i), {1}});
  const std::string message = problems_of(many);
  EXPECT_THAT(message, AllOf(HasSubstr("502 tensors do not fit"), HasSubstr("and 402 more")));
}

TEST(ResolveTensors, FindsEveryTensorOfTheGoldenNetworks) {
  for (const std::string name : {"gemma4-moe", "gemma4-moe-edge", "gemma4-dense", "gemma4-e",
                                 "gemma4-e4", "qwen3-tied", "qwen3-untied"}) {
    const std::string folder = std::string(KAKEYA_TEST_DATA) + "/networks/" + name;
    const auto config = load_model_config(folder);
    ASSERT_TRUE(config.has_value()) << config.error().message();
    const auto checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
    const std::vector<TensorSpec> wanted = expected_tensors(*config);
    const auto resolved = resolve_tensors(*checkpoint, wanted);
    ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
    const auto required = std::count_if(wanted.begin(), wanted.end(), [](const TensorSpec& spec) {
      return spec.presence == TensorPresence::kRequired;
    });
    EXPECT_EQ(resolved->size(), static_cast<std::size_t>(required));
    for (const TensorView& tensor : checkpoint->files()[0].tensors()) {
      EXPECT_TRUE(check_finite(tensor).has_value());
    }
  }
}

TEST(ResolveTensors, ReportsAConfigurationOfOtherSizes) {
  const std::string folder = std::string(KAKEYA_TEST_DATA) + "/networks/gemma4-moe";
  auto config = load_model_config(folder);
  ASSERT_TRUE(config.has_value()) << config.error().message();
  config->moe_intermediate_size += 1;
  const auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
  const auto resolved = resolve_tensors(*checkpoint, expected_tensors(*config));
  ASSERT_FALSE(resolved.has_value());
  EXPECT_THAT(resolved.error().message(),
              AllOf(HasSubstr("12 tensors do not fit"), HasSubstr("expected shape [8, 50, 64]")));
}

}  // namespace
}  // namespace kakeya
