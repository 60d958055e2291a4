// Models and drafters in GGUF against the same in checkpoint folders. Equal bits throughout: the
// same numbers under other names, or blocks against a folder with what they stand for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "formats/gguf_model_scratch.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

std::string golden_file(const std::string& name) {
  return std::string(KAKEYA_TEST_DATA) + "/gguf/" + name;
}

std::vector<float> logits_of(const std::string& path, const BackendChoice& choice) {
  const auto model = TestModel::load(path, choice);
  if (model == nullptr) return {};
  std::vector<TokenId> ids = random_ids(11, 5);
  for (TokenId& id : ids) id %= static_cast<TokenId>(model->config().vocab_size);
  const auto timeline = model->timeline({.context = 16, .max_rows = 16}, 16);
  return run(*timeline, ids, {}, 7).logits;
}

std::string label_of(const std::tuple<std::string, BackendChoice>& parameter) {
  std::string label = std::get<0>(parameter) + "_" + std::get<1>(parameter).label();
  std::replace(label.begin(), label.end(), '-', '_');
  return label;
}

// Replaces the fused experts of all layers by their halves.
void split_experts(GgufContent& content) {
  const std::vector<GgufTensorSource> before = content.tensors;
  for (const GgufTensorSource& fused : before) {
    constexpr std::string_view kFused = "ffn_gate_up_exps.weight";
    if (!fused.name.ends_with(kFused)) continue;
    std::vector<std::byte> all;
    ASSERT_TRUE(fused.write([&](std::span<const std::byte> bytes) {
      all.insert(all.end(), bytes.begin(), bytes.end());
      return Status();
    }));
    const std::size_t half = all.size() / static_cast<std::size_t>(2 * fused.shape[0]);
    const std::string prefix = fused.name.substr(0, fused.name.size() - kFused.size());
    for (const std::size_t up : {0U, 1U}) {
      std::vector<std::byte> part;
      for (std::size_t begin = up * half; begin < all.size(); begin += 2 * half) {
        part.insert(part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                    all.begin() + static_cast<std::ptrdiff_t>(begin + half));
      }
      content.add_tensor(prefix + (up == 1 ? "ffn_up_exps.weight" : "ffn_gate_exps.weight"),
                         {fused.shape[0], fused.shape[1] / 2, fused.shape[2]}, fused.encoding,
                         std::move(part));
    }
    content.erase_tensor(fused.name);
  }
}

class GgufNetworks : public testing::TestWithParam<std::tuple<std::string, BackendChoice>> {};

TEST_P(GgufNetworks, GiveTheBitsOfTheCheckpoint) {
  const auto& [name, choice] = GetParam();
  const std::string dir = network_dir(name);
  const ScratchFolder scratch;
  GgufContent content = model_as_gguf(dir);
  const std::string path = content.write(scratch.path("model.gguf"));
  const auto expected = logits_of(dir, choice);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits_of(path, choice), expected);
  // Parts for images and sound that a writer put into the same file are passed over.
  for (const char* other : {"v.patch_embd.weight", "a.blk.0.attn_q.weight", "mm.0.weight"}) {
    content.add_floats(other, {1.0F, 2.0F});
  }
  EXPECT_EQ(logits_of(content.write(scratch.path("whole.gguf")), choice), expected);
  if (!name.starts_with("gemma4-moe")) return;
  split_experts(content);
  EXPECT_EQ(logits_of(content.write(scratch.path("split.gguf")), choice), expected);
}

INSTANTIATE_TEST_SUITE_P(Networks,
                         GgufNetworks,
                         testing::Combine(testing::Values("gemma4-moe",
                                                          "gemma4-moe-edge",
                                                          "gemma4-dense",
                                                          "gemma4-e",
                                                          "gemma4-e4",
                                                          "qwen3-tied",
                                                          "qwen3-untied",
                                                          "llama",
                                                          "llama-biased",
                                                          "mistral",
                                                          "gemma3",
                                                          "qwen2",
                                                          "qwen3moe"),
                                          testing::ValuesIn(all_backends())),
                         [](const auto& test) { return label_of(test.param); });

// The file is what llama.cpp's converter made of a network (tools/make_gguf_goldens.py).
TEST(GgufGolden, ModelOfTheConverterGivesTheBitsOfTheCheckpoint) {
  const BackendChoice ref;
  const auto expected = logits_of(network_dir("gemma4-moe"), ref);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits_of(golden_file("gemma4-moe.gguf"), ref), expected);
}

std::vector<float> weights_of(TensorSource& source, std::span<const TensorSpec> specs) {
  std::vector<float> all;
  for (const TensorSpec& spec : specs) {
    if (spec.presence != TensorPresence::kRequired) continue;
    const auto view = source.tensor(spec.name);
    EXPECT_TRUE(view.has_value()) << view.error().message();
    const std::vector<float> values = to_f32(*view).value();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Everything that loading a drafter reads.
void expect_same_drafter(const std::string& path, const std::string& dir) {
  const auto got = load_drafter_config(path);
  const auto expected = load_drafter_config(dir);
  ASSERT_OK(got);
  ASSERT_OK(expected);
  EXPECT_EQ(got->block_size, expected->block_size);
  EXPECT_EQ(got->mask_token_id, expected->mask_token_id);
  EXPECT_EQ(got->target_layer_ids, expected->target_layer_ids);
  EXPECT_EQ(got->output_multiplier, expected->output_multiplier);
  EXPECT_EQ(got->is_causal, expected->is_causal);
  EXPECT_EQ(got->input_embedding_scale, expected->input_embedding_scale);
  EXPECT_EQ(got->layers.layer_types, expected->layers.layer_types);
  EXPECT_EQ(got->layers.num_attention_heads, expected->layers.num_attention_heads);
  EXPECT_EQ(got->layers.final_logit_softcapping, expected->layers.final_logit_softcapping);
  EXPECT_EQ(got->layers.rms_norm_eps, expected->layers.rms_norm_eps);
  EXPECT_EQ(got->layers.rope_full.rope_theta, expected->layers.rope_full.rope_theta);
  const bool sliding = std::ranges::count(got->layers.layer_types, LayerType::kSliding) > 0;
  EXPECT_EQ(got->layers.sliding_window, sliding ? expected->layers.sliding_window : 0);
  const auto specs = expected_tensors(*got);
  const auto a = CheckpointSource::open(path, specs);
  const auto b = CheckpointSource::open(dir, expected_tensors(*expected));
  ASSERT_OK(a);
  ASSERT_OK(b);
  EXPECT_EQ(weights_of(**a, specs), weights_of(**b, specs));
}

TEST(GgufDrafters, AreThoseOfTheCheckpoint) {
  const ScratchFolder scratch;
  for (const char* name : {"dflash-gemma4", "dflash-qwen3"}) {
    SCOPED_TRACE(name);
    GgufContent content = drafter_as_gguf(network_dir(name));
    expect_same_drafter(content.write(scratch.path("drafter.gguf")), network_dir(name));
    EXPECT_TRUE(is_drafter_folder(scratch.path("drafter.gguf")));
  }
  const std::string demo = std::string(KAKEYA_DEMO_MODEL) + "/drafter";
  GgufContent content = drafter_as_gguf(demo);
  expect_same_drafter(content.write(scratch.path("drafter.gguf")), demo);
}

TEST(GgufDrafters, OfTheConverterAreThoseOfTheCheckpoint) {
  expect_same_drafter(golden_file("dflash-gemma4.gguf"), network_dir("dflash-gemma4"));
}

// Blocks of random codes with small scales: what stands where a block's scales are is f16 below 1.
std::vector<std::byte> random_blocks(QuantizedFormat format,
                                     std::int64_t count,
                                     std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto size = static_cast<std::size_t>(quantized_block_bytes(format));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xffU);
  const bool has_minimum = format == QuantizedFormat::kQ41 || format == QuantizedFormat::kQ51;
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    for (std::size_t half = 0; half < (has_minimum ? 2U : 1U); ++half) {
      bytes[at + 2 * half + 1] = static_cast<std::byte>(0x10U + random() % 8);
    }
  }
  return bytes;
}

struct Twins {
  GgufContent blocks;
  GgufContent decoded;  // the same in F32
};

// A network whose matrices are blocks of several formats, and what they stand for.
Twins quantized_network(const std::string& dir) {
  constexpr std::array kFormats = {QuantizedFormat::kQ80, QuantizedFormat::kQ40,
                                   QuantizedFormat::kQ51, QuantizedFormat::kIq4Nl,
                                   QuantizedFormat::kQ50, QuantizedFormat::kQ41};
  Twins twins = {model_as_gguf(dir), model_as_gguf(dir)};
  std::uint32_t seed = 0;
  const std::vector<GgufTensorSource> tensors = twins.blocks.tensors;
  for (const GgufTensorSource& tensor : tensors) {
    if (tensor.shape.size() < 2 || tensor.shape.back() % 32 != 0) continue;
    const QuantizedFormat format = kFormats[seed % kFormats.size()];
    const std::int64_t elements = num_elements(tensor.shape);
    const auto blocks = random_blocks(format, elements / 32, ++seed);
    std::vector<float> values(static_cast<std::size_t>(elements));
    dequantize_row(format, blocks.data(), elements, values.data());
    const auto bytes = std::as_bytes(std::span(values));
    twins.blocks.erase_tensor(tensor.name);
    twins.blocks.add_tensor(tensor.name, tensor.shape, format, blocks);
    twins.decoded.erase_tensor(tensor.name);
    twins.decoded.add_tensor(tensor.name, tensor.shape, DType::kF32, {bytes.begin(), bytes.end()});
  }
  return twins;
}

class GgufBlocks : public testing::TestWithParam<std::tuple<std::string, BackendChoice>> {};

TEST_P(GgufBlocks, GiveTheLogitsOfWhatTheyStandFor) {
  const auto& [name, choice] = GetParam();
  const Twins twins = quantized_network(network_dir(name));
  const ScratchFolder scratch;
  const auto expected = logits_of(twins.decoded.write(scratch.path("decoded.gguf")), choice);
  ASSERT_FALSE(expected.empty());
  EXPECT_TRUE(std::ranges::all_of(expected, [](float each) { return std::isfinite(each); }));
  EXPECT_EQ(logits_of(twins.blocks.write(scratch.path("blocks.gguf")), choice), expected);
  EXPECT_NE(logits_of(network_dir(name), choice), expected);
}

INSTANTIATE_TEST_SUITE_P(Networks,
                         GgufBlocks,
                         testing::Combine(testing::Values("gemma4-moe", "gemma4-e", "qwen3-untied"),
                                          testing::ValuesIn(all_backends())),
                         [](const auto& test) { return label_of(test.param); });

// Not a number where a block's scale is: found when the tensor is loaded, by its name in the file.
TEST(GgufScales, OfBlocksMustBeNumbers) {
  GgufContent content = model_as_gguf(network_dir("qwen3-tied"));
  const Shape shape = content.tensor("blk.1.attn_q.weight").shape;
  const std::int64_t count = num_elements(shape) / 32;
  std::vector<std::byte> blocks = random_blocks(QuantizedFormat::kQ80, count, 1);
  blocks[5 * 34 + 1] = std::byte{0x7e};
  content.erase_tensor("blk.1.attn_q.weight");
  content.add_tensor("blk.1.attn_q.weight", shape, QuantizedFormat::kQ80, std::move(blocks));
  const ScratchFolder scratch;
  const std::string path = content.write(scratch.path("model.gguf"));
  const auto source = CheckpointSource::open(path, load_model_config(path).value());
  ASSERT_OK(source);
  for (const BackendChoice& choice : all_backends()) {
    const auto backend =
        create_test_backend({.name = choice.name, .threads = {.num_threads = 1, .pin = false}})
            .value();
    for (const Compute compute : {Compute::kF32, Compute::kFast}) {
      MemoryBudget budget;
      WeightLoader loader(**source, *backend, budget, {});
      EXPECT_NE(loader.matrix("layers.0.self_attn.q_proj.weight", compute), nullptr);
      EXPECT_EQ(loader.matrix("layers.1.self_attn.q_proj.weight", compute), nullptr);
      EXPECT_EQ(code_of(loader.status()), StatusCode::kDataLoss);
      EXPECT_NE(
          message_of(loader.status()).find("model.gguf: tensor blk.1.attn_q.weight: block 5 of"),
          std::string::npos)
          << message_of(loader.status());
    }
  }
}

}  // namespace
}  // namespace kakeya::test
