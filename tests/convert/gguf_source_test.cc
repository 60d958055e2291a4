// GGUF files as what is converted: folders and files made of them against those that they were made
// of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "convert/gguf_model.h"
#include "convert/hf_checkpoint.h"
#include "convert/mlx_checkpoint.h"
#include "convert/tiny_tokenizer.h"
#include "formats/config_comparison.h"
#include "formats/scratch_files.h"
#include "formats/tensor_request.h"
#include "kakeya/tokenizer.h"

namespace kakeya {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kDemo = KAKEYA_DEMO_MODEL;
const std::string kNetworks = std::string(KAKEYA_TEST_DATA) + "/networks/";

Result<ConversionReport> to_gguf(const std::string& source,
                                 const std::string& target,
                                 const char* type = "bf16",
                                 const std::string& drafter_target = "") {
  MemoryBudget budget;
  return convert_to_gguf(source, target, find_gguf_file_type(type).value(),
                         {.replace = true, .threads = 1, .drafter_target = drafter_target}, budget);
}

Result<ConversionReport> to_folder(const std::string& source,
                                   const std::string& target,
                                   std::optional<DType> type = std::nullopt) {
  MemoryBudget budget;
  return convert_to_hf(source, target, type, {.threads = 1}, budget);
}

void expect_made(const Result<ConversionReport>& report) {
  ASSERT_TRUE(report.has_value()) << report.error().message();
}

// The network with a tokenizer of three tokens.
std::string network_with_tokenizer(const ScratchFolder& folder, const std::string& name) {
  fs::create_directory(folder.path(name));
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy(kNetworks + name + "/" + file, folder.path(name + "/" + file));
  }
  folder.write(name + "/tokenizer.json", tiny_tokenizer_json(name.starts_with("gemma")));
  return folder.path(name);
}

// All tensors of one folder are those of the other, bit for bit, whatever their prefix.
void expect_same_tensors(const std::string& got_dir, const std::string& expected_dir) {
  const auto got = Checkpoint::open(got_dir);
  const auto expected = Checkpoint::open(expected_dir);
  ASSERT_TRUE(got.has_value() && expected.has_value());
  std::map<std::string, const TensorView*> found;
  for (const SafetensorsFile& file : got->files()) {
    for (const TensorView& view : file.tensors()) {
      found.emplace(strip_model_prefix(view.name), &view);
    }
  }
  std::size_t compared = 0;
  for (const SafetensorsFile& file : expected->files()) {
    for (const TensorView& view : file.tensors()) {
      const auto it = found.find(std::string(strip_model_prefix(view.name)));
      ASSERT_NE(it, found.end()) << view.name;
      EXPECT_EQ(it->second->dtype, view.dtype) << view.name;
      ASSERT_EQ(it->second->shape, view.shape) << view.name;
      ASSERT_EQ(it->second->bytes(), view.bytes()) << view.name;
      EXPECT_TRUE(std::equal(view.data, view.data + view.bytes(), it->second->data)) << view.name;
      ++compared;
    }
  }
  EXPECT_EQ(found.size(), compared);
}

TEST(GgufSource, GivesBackTheTensorsAndTheConfigurationOfEveryNetwork) {
  for (const std::string name : {"gemma4-moe", "gemma4-moe-edge", "gemma4-dense", "gemma4-e",
                                 "gemma4-e4", "qwen3-tied", "qwen3-untied"}) {
    SCOPED_TRACE(name);
    const ScratchFolder folder;
    const std::string source = network_with_tokenizer(folder, name);
    expect_made(to_gguf(source, folder.path("model.gguf")));
    expect_made(to_folder(folder.path("model.gguf"), folder.path("out")));
    expect_same_tensors(folder.path("out"), source);
    const auto config = load_model_config(folder.path("out"));
    ASSERT_TRUE(config.has_value()) << config.error().message();
    const ModelConfig expected = load_model_config(source).value();
    expect_same_network(*config, expected);
    EXPECT_EQ(config->eos_token_ids, expected.eos_token_ids);
    EXPECT_EQ(config->pad_token_id, expected.pad_token_id);
  }
}

// Back and forth, nothing changes any more.
TEST(GgufSource, GivesBackTheTokenizerTheTemplateAndTheSampling) {
  const ScratchFolder folder;
  const std::string file = folder.path("demo.gguf");
  const std::string out = folder.path("demo");
  expect_made(to_gguf(kDemo, file));
  expect_made(to_folder(file, out));
  EXPECT_EQ(read_file(out + "/chat_template.jinja"), read_file(kDemo + "/chat_template.jinja"));
  const auto got = Tokenizer::load(out + "/tokenizer.json");
  const auto expected = Tokenizer::load(kDemo + "/tokenizer.json");
  ASSERT_TRUE(got.has_value()) << got.error().message();
  const std::string text = read_file(kDemo + "/README.md") + "<|turn>user\n\xF0\x9F\x98\x80";
  EXPECT_EQ(got->encode(text).value(), expected->encode(text).value());
  using nlohmann::json;
  EXPECT_EQ(json::parse(read_file(out + "/generation_config.json")),
            json::parse(read_file(kDemo + "/generation_config.json")));
  const json config = json::parse(read_file(out + "/tokenizer_config.json"));
  const json original = json::parse(read_file(kDemo + "/tokenizer_config.json"));
  for (const char* key :
       {"tokenizer_class", "bos_token", "eos_token", "unk_token", "pad_token", "mask_token"}) {
    EXPECT_EQ(config[key], original[key]) << key;
  }
  expect_made(to_gguf(out, folder.path("again.gguf")));
  EXPECT_TRUE(read_file(folder.path("again.gguf")) == read_file(file));
}

// All of config.json that the demo's has and that says something of the network.
TEST(GgufSource, ConfigJsonSaysWhatThePublishedOneSays) {
  const ScratchFolder folder;
  expect_made(to_gguf(kDemo, folder.path("demo.gguf")));
  expect_made(to_folder(folder.path("demo.gguf"), folder.path("out")));
  using nlohmann::json;
  const json got = json::parse(read_file(folder.path("out/config.json")));
  const json original = json::parse(read_file(kDemo + "/config.json"));
  for (const auto& [key, value] : got.items()) EXPECT_EQ(value, original.value(key, json())) << key;
  for (const char* key : {"architectures", "dtype", "rms_norm_eps", "hidden_activation",
                          "rope_parameters", "num_experts", "layer_types"}) {
    EXPECT_TRUE(got.contains(key)) << key;
  }
}

TEST(GgufSource, BecomesTheSameFileAndTheSameMlxFolder) {
  const ScratchFolder folder;
  const std::string file = folder.path("demo.gguf");
  expect_made(to_gguf(kDemo, file));
  expect_made(to_gguf(file, folder.path("again.gguf")));
  EXPECT_TRUE(read_file(folder.path("again.gguf")) == read_file(file));
  expect_made(to_gguf(kDemo, folder.path("q4.gguf"), "q4_k_m"));
  expect_made(to_gguf(file, folder.path("q4-again.gguf"), "q4_k_m"));
  EXPECT_TRUE(read_file(folder.path("q4-again.gguf")) == read_file(folder.path("q4.gguf")));
  MemoryBudget budget;
  for (const std::string& source : {kDemo, file}) {
    const bool first = source == kDemo;
    const auto made = quantize_to_mlx(source, folder.path(first ? "mlx" : "mlx-again"), {},
                                      {.threads = 1}, budget);
    expect_made(made);
  }
  EXPECT_TRUE(read_file(folder.path("mlx-again/model.safetensors")) ==
              read_file(folder.path("mlx/model.safetensors")));
}

TEST(GgufSource, GivesBackADrafter) {
  const ScratchFolder folder;
  const std::string file = folder.path("drafter.gguf");
  expect_made(to_gguf(kDemo, folder.path("demo.gguf")));
  expect_made(to_gguf(kDemo + "/drafter", file, "bf16", kDemo));
  expect_made(to_folder(file, folder.path("drafter")));
  expect_same_tensors(folder.path("drafter"), kDemo + "/drafter");
  const auto got = load_drafter_config(folder.path("drafter"));
  ASSERT_TRUE(got.has_value()) << got.error().message();
  const DrafterConfig expected = load_drafter_config(kDemo + "/drafter").value();
  EXPECT_EQ(got->mask_token_id, expected.mask_token_id);
  EXPECT_EQ(got->target_layer_ids, expected.target_layer_ids);
  EXPECT_EQ(got->input_embedding_scale, expected.input_embedding_scale);
  EXPECT_EQ(got->layers.layer_types, expected.layers.layer_types);
  // Its own tokenizer, or that of a target that is a file, is that of the folder.
  expect_made(to_gguf(file, folder.path("own.gguf")));
  EXPECT_TRUE(read_file(folder.path("own.gguf")) == read_file(file));
  expect_made(
      to_gguf(folder.path("drafter"), folder.path("other.gguf"), "bf16", folder.path("demo.gguf")));
  EXPECT_TRUE(read_file(folder.path("other.gguf")) == read_file(file));
  EXPECT_THAT(
      message_of(to_gguf(file, folder.path("x.gguf"), "bf16", kDemo)),
      HasSubstr(
          "where its model is given (GgufOptions::drafter_target), got a file with a tokenizer"));
}

TEST(GgufSource, ThatIsQuantisedIsOnlyDecodedToAGivenType) {
  const ScratchFolder folder;
  const std::string file = folder.path("demo.gguf");
  expect_made(to_gguf(kDemo, file, "q8_0"));
  EXPECT_THAT(message_of(to_folder(file, folder.path("out"))),
              HasSubstr("is quantised: expected a type to decode it to (convert_to_hf::dtype)"));
  EXPECT_THAT(message_of(to_gguf(file, folder.path("q4.gguf"), "q4_0")),
              HasSubstr("is quantised already"));
  MemoryBudget budget;
  EXPECT_THAT(message_of(quantize_to_mlx(file, folder.path("out"), {}, {.threads = 1}, budget)),
              HasSubstr("is quantised already"));
  EXPECT_FALSE(fs::exists(folder.path("out")) || fs::exists(folder.path("q4.gguf")));
  expect_made(to_folder(file, folder.path("out"), DType::kF32));
  const auto blocks = GgufFile::open(file);
  const auto decoded = Checkpoint::open(folder.path("out"));
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
  const TensorView* query = decoded->find("model.layers.0.self_attn.q_proj.weight");
  ASSERT_NE(query, nullptr);
  EXPECT_EQ(to_f32(*query).value(), to_f32(*blocks->find("blk.0.attn_q.weight")).value());
  EXPECT_EQ(nlohmann::json::parse(read_file(folder.path("out/config.json")))["dtype"], "float32");
}

TEST(GgufSource, IsNotOverwritten) {
  const ScratchFolder folder;
  const std::string file = folder.path("demo.gguf");
  expect_made(to_gguf(kDemo, file));
  EXPECT_THAT(message_of(to_gguf(file, file, "f32")),
              HasSubstr("expected another file than the source"));
  EXPECT_THAT(message_of(to_gguf(folder.path("none.gguf"), file)), HasSubstr("none.gguf"));
}

// Numbers that a type of 16 bits cannot hold stay as they are.
TEST(TensorRowsTest, AreNarrowedOnlyWithoutLoss) {
  const std::vector<float> exact = {1.0F, -0.5F, 3.0F};
  const std::vector<float> fine = {1.0F, 1.0F + 0x1p-20F, 3.0F};
  const auto type_of = [](const std::vector<float>& values, DType dtype) {
    TensorRows rows(TensorView{.data = reinterpret_cast<const std::byte*>(values.data()),
                               .shape = {3},
                               .dtype = DType::kF32});
    rows.narrow(dtype);
    return rows.dtype();
  };
  EXPECT_EQ(type_of(exact, DType::kBF16), DType::kBF16);
  EXPECT_EQ(type_of(exact, DType::kF16), DType::kF16);
  EXPECT_EQ(type_of(exact, DType::kF32), DType::kF32);
  EXPECT_EQ(type_of(fine, DType::kBF16), DType::kF32);
  EXPECT_EQ(type_of(fine, DType::kF16), DType::kF32);
}

}  // namespace
}  // namespace kakeya
