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
                             {"model.language_model.layers.0.self_attn.rotary_emb.inv_freq", {8}},
                             {"model.language_model.rotary_emb.inv_freq", {8}},
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

// Codes, scales and biases of a tensor [4, 64], in 4 bits and groups of 32 unless changed.
std::vector<Stored> affine(const Shape& codes = {4, 8},
                           const Shape& scales = {4, 2},
                           const Shape& biases = {4, 2},
                           DType scale_type = DType::kBF16,
                           DType bias_type = DType::kBF16) {
  return {{"x.weight", codes, DType::kU32},
          {"x.scales", scales, scale_type},
          {"x.biases", biases, bias_type}};
}

TEST(ResolveTensors, SeesBitsAndGroupsOfAffineTensorsByTheirShapes) {
  const std::vector<TensorSpec> wanted = {{"x.weight", {4, 64}}};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const std::int64_t group_size : {32, 64}) {
      const ScratchFolder folder;
      const Shape groups = {4, 64 / group_size};
      const Checkpoint checkpoint =
          checkpoint_of(folder, affine({4, 2 * bits}, groups, groups, DType::kF16, DType::kF16));
      const auto resolved = resolve_tensors(checkpoint, wanted);
      ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
      const TensorView& view = resolved->at("x.weight");
      EXPECT_EQ(view.shape, (Shape{4, 64}));
      const auto& got = std::get<AffineGroups>(view.quantization);
      EXPECT_EQ(got.format, (AffineFormat{bits, static_cast<int>(group_size)}));
      EXPECT_EQ(got.dtype, DType::kF16);
      EXPECT_EQ(got.scales, checkpoint.find("x.scales")->data);
      EXPECT_EQ(got.biases, checkpoint.find("x.biases")->data);
    }
  }
}

TEST(ResolveTensors, RefusesCodesThatAreNoAffineForm) {
  const std::vector<TensorSpec> wanted = {{"x.weight", {4, 64}}};
  const auto refusal = [&](const std::vector<Stored>& stored) {
    const ScratchFolder folder;
    const Checkpoint checkpoint = checkpoint_of(folder, stored);
    const auto resolved = resolve_tensors(checkpoint, wanted);
    EXPECT_FALSE(resolved.has_value());
    return resolved ? "" : resolved.error().message();
  };
  for (const auto& [codes, scales, biases] :
       {std::tuple<Shape, Shape, Shape>({4, 9}, {4, 2}, {4, 2}),  // 4.5 bits
        {{4, 14}, {4, 2}, {4, 2}},                                // 7 bits
        {{4, 8}, {4, 3}, {4, 3}},                                 // no whole groups
        {{4, 8}, {4, 4}, {4, 4}},                                 // groups of 16
        {{4, 8}, {4, 2}, {4, 1}},
        {{3, 8}, {3, 2}, {3, 2}},  // rows
        {{4, 8}, {3, 2}, {3, 2}},
        {{32}, {4, 2}, {4, 2}},
        {{4, 0}, {4, 2}, {4, 2}},
        {{4, 8}, {4, 0}, {4, 0}},
        {{1, 4, 8}, {1, 4, 2}, {1, 4, 2}}}) {
    EXPECT_THAT(refusal(affine(codes, scales, biases)),
                AllOf(HasSubstr("x.weight in "), HasSubstr("are no affine form of [4, 64]")));
  }
  std::vector<Stored> lone = affine();
  lone.pop_back();
  EXPECT_THAT(refusal(lone), HasSubstr("expected scales and biases beside codes, got no biases"));
  lone.pop_back();
  EXPECT_THAT(refusal(lone), HasSubstr("expected scales and biases beside codes, got no scales"));
  EXPECT_THAT(refusal(affine({4, 8}, {4, 2}, {4, 2}, DType::kF16)),
              HasSubstr("expected scales and biases of F32, F16 or BF16, got F16 and BF16"));
  EXPECT_THAT(refusal(affine({4, 8}, {4, 2}, {4, 2}, DType::kI8, DType::kI8)),
              HasSubstr("expected scales and biases of F32, F16 or BF16, got I8 and I8"));
  EXPECT_THAT(refusal({{"x.weight", {4, 64}}, {"x.scales", {4, 2}}}),
              HasSubstr("unexpected x.scales"));
}

TEST(ResolveTensors, TakesExpertsThatAreNotFused) {
  const std::vector<TensorSpec> wanted = {{"layers.0.experts.gate_up_proj", {2, 6, 4}},
                                          {"layers.0.experts.down_proj", {2, 4, 3}}};
  const std::string prefix = "language_model.model.layers.0.experts.switch_glu.";
  const std::vector<Stored> stored = {{prefix + "gate_proj.weight", {2, 3, 4}},
                                      {prefix + "up_proj.weight", {2, 3, 4}},
                                      {prefix + "down_proj.weight", {2, 4, 3}}};
  const ScratchFolder folder;
  const auto checkpoint = checkpoint_of(folder, stored);
  const auto resolved = resolve_tensors(checkpoint, wanted);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
  EXPECT_EQ(resolved->find("layers.0.experts.gate_up_proj"), nullptr);
  EXPECT_EQ(resolved->at("layers.0.experts.up_proj").name, prefix + "up_proj.weight");
  EXPECT_EQ(resolved->at("layers.0.experts.down_proj").shape, (Shape{2, 4, 3}));

  const ScratchFolder half;
  const auto without = checkpoint_of(half, {stored[0], stored[2]});
  const auto refused = resolve_tensors(without, wanted);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("missing layers.0.experts.gate_up_proj"));

  const ScratchFolder twice;
  std::vector<Stored> both = stored;
  both.push_back({"language_model.model.layers.0.experts.gate_up_proj", {2, 6, 4}});
  const auto doubled = checkpoint_of(twice, both);
  const auto ambiguous = resolve_tensors(doubled, wanted);
  ASSERT_FALSE(ambiguous.has_value());
  EXPECT_THAT(ambiguous.error().message(),
              HasSubstr("layers.0.experts.gate_up_proj is there fused and not fused"));
}

TEST(ResolveTensors, TakesExpertsOneByOne) {
  const std::vector<TensorSpec> wanted = {{"layers.0.mlp.experts.gate_up_proj", {2, 6, 4}},
                                          {"layers.0.mlp.experts.down_proj", {2, 4, 3}}};
  const std::string prefix = "model.layers.0.mlp.experts.";
  std::vector<Stored> stored;
  for (const char* expert : {"0.", "1."}) {
    stored.push_back({prefix + expert + "gate_proj.weight", {3, 4}});
    stored.push_back({prefix + expert + "up_proj.weight", {3, 4}});
    stored.push_back({prefix + expert + "down_proj.weight", {4, 3}});
  }
  const auto problem = [&](const std::vector<Stored>& tensors) -> std::string {
    const ScratchFolder folder;
    const auto checkpoint = checkpoint_of(folder, tensors);
    const auto resolved = resolve_tensors(checkpoint, wanted);
    if (!resolved) return resolved.error().message();
    const auto matrices = resolved->find_matrices("layers.0.mlp.experts.up_proj");
    EXPECT_EQ(matrices.size(), 2U);
    EXPECT_EQ(matrices.back().name, prefix + "1.up_proj.weight");
    EXPECT_EQ(resolved->size(), 3U);
    return "";
  };
  EXPECT_EQ(problem(stored), "");
  EXPECT_THAT(problem({stored.begin(), stored.end() - 1}),
              HasSubstr("missing layers.0.mlp.experts.1.down_proj.weight [4, 3], as other"));
  std::vector<Stored> changed = stored;
  changed[5].dtype = DType::kF32;
  EXPECT_THAT(problem(changed), HasSubstr("floating point numbers of the type of"));
  for (const char* odd : {"2.up_proj.weight", "01.up_proj.weight", "-1.up_proj.weight",
                          "99999999999999999999.up_proj.weight", "1.side_proj.weight"}) {
    changed = stored;
    changed.push_back({prefix + odd, {3, 4}});
    EXPECT_THAT(problem(changed), HasSubstr("unexpected " + prefix + odd)) << odd;
  }
  changed = stored;
  changed.push_back({prefix + "down_proj", {2, 4, 3}});
  EXPECT_THAT(problem(changed),
              HasSubstr("layers.0.mlp.experts.down_proj is there for all experts and one by one"));
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
