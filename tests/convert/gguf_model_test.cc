// Models as GGUF files, against what llama.cpp's converter makes of the same folder
// (tests/data/gguf) and what its quantiser was seen to choose.
#include "convert/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/memory_budget.h"
#include "convert/gguf_metadata.h"
#include "convert/relative_error.h"
#include "convert/tiny_tokenizer.h"
#include "formats/gguf.h"
#include "formats/named_shapes.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

GgufFileType type_of(const char* name) {
  return find_gguf_file_type(name).value();
}

Result<ConversionReport> convert(const std::string& source,
                                 const std::string& target,
                                 const char* type,
                                 bool replace = false) {
  MemoryBudget budget;
  return convert_to_gguf(source, target, type_of(type), {.replace = replace, .threads = 1}, budget);
}

const std::string kDrafter = std::string(KAKEYA_TEST_DATA) + "/networks/dflash-gemma4";

Result<ConversionReport> convert_drafter(const std::string& model,
                                         const std::string& target,
                                         const std::string& drafter = kDrafter) {
  MemoryBudget budget;
  return convert_to_gguf(drafter, target, type_of("bf16"), {.threads = 1, .drafter_target = model},
                         budget);
}

// The small network with the demo model's tokenizer, as the golden file was made. Its embedding has
// 512 rows: with `cut`, the tokenizer has no more.
std::string network_with_tokenizer(const ScratchFolder& folder, bool cut) {
  const std::string dir = folder.path("gemma4-moe");
  fs::create_directory(dir);
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy(std::string(KAKEYA_TEST_DATA) + "/networks/gemma4-moe/" + name, dir + "/" + name);
  }
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    fs::copy(std::string(KAKEYA_DEMO_MODEL) + "/" + name, dir + "/" + name);
  }
  if (!cut) return dir;
  auto tokenizer = nlohmann::json::parse(read_file(dir + "/tokenizer.json"));
  auto& vocabulary = tokenizer["model"]["vocab"];
  for (auto token = vocabulary.begin(); token != vocabulary.end();) {
    token = *token < 512 ? std::next(token) : vocabulary.erase(token);
  }
  tokenizer["model"]["merges"] = nlohmann::json::array();
  folder.write("gemma4-moe/tokenizer.json", tokenizer.dump());
  return dir;
}

GgufFile golden(const std::string& name = "gemma4-moe") {
  auto file = GgufFile::open(std::string(KAKEYA_TEST_DATA) + "/gguf/" + name + ".gguf");
  EXPECT_TRUE(file.has_value()) << file.error().message();
  return std::move(*file);
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// All keys of the expected file but the one for people, and so many others.
void expect_keys(const GgufFile& file, const GgufFile& expected, std::size_t others) {
  constexpr std::string_view kForPeople = "general.size_label";
  for (const GgufEntry& entry : expected.metadata()) {
    if (entry.key == kForPeople) continue;
    const GgufValue* value = file.find_value(entry.key);
    ASSERT_NE(value, nullptr) << entry.key;
    EXPECT_EQ(value->type, entry.value.type) << entry.key;
    EXPECT_EQ(value->element_type, entry.value.element_type) << entry.key;
    EXPECT_EQ(value->count, entry.value.count) << entry.key;
    EXPECT_TRUE(same_bytes(value->bytes, entry.value.bytes)) << entry.key;
  }
  EXPECT_EQ(file.metadata().size(), expected.metadata().size() - 1 + others);
}

void expect_tensors(const GgufFile& file, const GgufFile& expected) {
  EXPECT_EQ(file.tensors().size(), expected.tensors().size());
  for (const GgufTensor& tensor : expected.tensors()) {
    const GgufTensor* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    EXPECT_EQ(gguf_encoding_name(found->encoding), gguf_encoding_name(tensor.encoding))
        << tensor.name;
    EXPECT_TRUE(same_bytes(found->data, tensor.data)) << tensor.name;
  }
}

TEST(GgufModel, HasTheKeysOfLlamaCppsConverter) {
  const ScratchFolder folder;
  const auto model = open_source_model(network_with_tokenizer(folder, false));
  ASSERT_TRUE(model.has_value()) << model.error().message();
  auto metadata = gguf_model_metadata(model->config, "gemma4-moe", 32);
  auto tokenizer = gguf_tokenizer_metadata(model->path, model->config);
  ASSERT_TRUE(metadata.has_value() && tokenizer.has_value());
  std::move(tokenizer->begin(), tokenizer->end(), std::back_inserter(*metadata));
  ASSERT_TRUE(write_gguf(folder.path("keys.gguf"), *metadata, {}).has_value());
  const auto file = GgufFile::open(folder.path("keys.gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  expect_keys(*file, golden(), 0);
}

TEST(GgufModel, HasTheTensorsOfLlamaCppsConverterBitForBit) {
  const ScratchFolder folder;
  const auto report =
      convert(network_with_tokenizer(folder, true), folder.path("out.gguf"), "bf16");
  ASSERT_TRUE(report.has_value()) << report.error().message();
  const auto file = GgufFile::open(folder.path("out.gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  expect_tensors(*file, golden());
}

// Its tokenizer is that of the target, which has no merges below 512 tokens: their converter leaves
// out what is empty.
TEST(GgufModel, OfADrafterIsThatOfLlamaCppsConverter) {
  const ScratchFolder folder;
  const std::string target = network_with_tokenizer(folder, true);
  fs::remove(target + "/chat_template.jinja");
  const auto report = convert_drafter(target, folder.path("out.gguf"));
  ASSERT_TRUE(report.has_value()) << report.error().message();
  const auto file = GgufFile::open(folder.path("out.gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  expect_keys(*file, golden("dflash-gemma4"), 1);
  EXPECT_TRUE(file->texts("tokenizer.ggml.merges")->empty());
  expect_tensors(*file, golden("dflash-gemma4"));
}

// The demo's drafter says all that a configuration may.
TEST(GgufModel, OfADrafterHasItsConfiguration) {
  const ScratchFolder folder;
  const std::string demo = KAKEYA_DEMO_MODEL;
  const std::string path = folder.path("out.gguf");
  ASSERT_TRUE(convert_drafter(demo, path, demo + "/drafter").has_value());
  const auto got = load_drafter_config(path);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  const DrafterConfig expected = load_drafter_config(demo + "/drafter").value();
  EXPECT_EQ(got->block_size, expected.block_size);
  EXPECT_EQ(got->mask_token_id, expected.mask_token_id);
  EXPECT_EQ(got->target_layer_ids, expected.target_layer_ids);
  EXPECT_EQ(got->output_multiplier, expected.output_multiplier);
  EXPECT_EQ(got->is_causal, expected.is_causal);
  EXPECT_EQ(got->input_embedding_scale, expected.input_embedding_scale);
  EXPECT_EQ(got->layers.final_logit_softcapping, expected.layers.final_logit_softcapping);
  EXPECT_EQ(got->layers.layer_types, expected.layers.layer_types);
  EXPECT_EQ(got->layers.sliding_window, expected.layers.sliding_window);
  EXPECT_EQ(got->layers.rms_norm_eps, expected.layers.rms_norm_eps);
  EXPECT_EQ(got->layers.rope_full.rope_theta, expected.layers.rope_full.rope_theta);
}

TEST(GgufModel, OfADrafterNeedsTheModelThatItDraftsFor) {
  const ScratchFolder folder;
  const std::string path = folder.path("out.gguf");
  EXPECT_THAT(message_of(convert_drafter("", path)),
              HasSubstr("expected the folder of that (GgufOptions::drafter_target), got none"));
  EXPECT_THAT(message_of(convert_drafter(KAKEYA_DEMO_MODEL, path)),
              HasSubstr("hidden_size is 64 but the target's is 256"));
  EXPECT_THAT(message_of(convert_drafter(KAKEYA_DEMO_MODEL, path, KAKEYA_DEMO_MODEL)),
              HasSubstr("where its model is given (GgufOptions::drafter_target), got a model"));
  EXPECT_FALSE(fs::exists(path));
}

// The model of a named shape: names and sizes, no numbers.
SourceModel shape_of_model(const char* name) {
  SourceModel model;
  model.config = named_shape(name, 0).value();
  for (const TensorSpec& spec : expected_tensors(model.config)) {
    if (spec.presence != TensorPresence::kRequired) continue;
    model.tensors.push_back(
        {spec.name, TensorRows(TensorView{.shape = spec.shape, .dtype = DType::kBF16})});
  }
  return model;
}

std::map<std::string_view, int> type_counts(const SourceModel& model, const char* type) {
  std::map<std::string_view, int> counts;
  for (const NamedTensor& tensor : model.tensors) {
    const TensorEncoding encoding = gguf_encoding(model, tensor, type_of(type));
    const auto* dtype = std::get_if<DType>(&encoding);
    ++counts[dtype != nullptr ? dtype_name(*dtype)
                              : quantized_format_name(std::get<QuantizedFormat>(encoding))];
  }
  return counts;
}

// The loader's log of a published file: 392 F32 with rope_freqs.weight, 192 Q4_K, 14 Q6_K, and 32
// Q5_0 and 28 Q8_0 in place of K formats where rows are 704 or 2112 long.
TEST(GgufModel, MixesFormatsAsInThePublishedFileOfThe26B) {
  const std::map<std::string_view, int> published = {
      {"F32", 391}, {"Q4_K", 192}, {"Q6_K", 14}, {"Q5_0", 32}, {"Q8_0", 28}};
  EXPECT_EQ(type_counts(shape_of_model("gemma4-26b-a4b"), "q4_k_m"), published);
}

TEST(GgufModel, GivesTheHeadMoreBits) {
  const SourceModel model = shape_of_model("gemma4-26b-a4b");
  const std::map<std::string_view, int> q4_0 = {{"F32", 391}, {"Q4_0", 265}, {"Q6_K", 1}};
  EXPECT_EQ(type_counts(model, "q4_0"), q4_0);
  const std::map<std::string_view, int> q8_0 = {{"F32", 391}, {"Q8_0", 266}};
  EXPECT_EQ(type_counts(model, "q8_0"), q8_0);
  const std::map<std::string_view, int> bf16 = {{"F32", 391}, {"BF16", 266}};
  EXPECT_EQ(type_counts(model, "bf16"), bf16);
}

TEST(GgufModel, QuantisedTensorsAreNearTheirNumbers) {
  const ScratchFolder folder;
  ASSERT_TRUE(convert(KAKEYA_DEMO_MODEL, folder.path("exact.gguf"), "f32").has_value());
  const auto exact = GgufFile::open(folder.path("exact.gguf"));
  const std::map<std::string, double> bounds = {{"q8_0", 0.01}, {"q4_k_m", 0.12}, {"q6_k", 0.03}};
  for (const auto& [type, bound] : bounds) {
    SCOPED_TRACE(type);
    const auto report = convert(KAKEYA_DEMO_MODEL, folder.path("out.gguf"), type.c_str(), true);
    ASSERT_TRUE(report.has_value()) << report.error().message();
    const auto file = GgufFile::open(folder.path("out.gguf"));
    ASSERT_TRUE(file.has_value()) << file.error().message();
    std::int64_t quantized = 0;
    for (const GgufTensor& tensor : file->tensors()) {
      const auto values = to_f32(tensor);
      const auto expected = to_f32(*exact->find(tensor.name));
      ASSERT_TRUE(values.has_value() && expected.has_value());
      const bool blocks = std::holds_alternative<QuantizedFormat>(tensor.encoding);
      quantized += blocks ? 1 : 0;
      if (blocks) {
        EXPECT_LT(relative_error(*expected, *values), bound) << tensor.name;
      } else {
        EXPECT_EQ(*values, *expected) << tensor.name;
      }
    }
    EXPECT_EQ(quantized, report->quantized);
    EXPECT_GT(quantized, 50);
  }
}

TEST(GgufModel, RefusesWhatItCannotWriteAndLeavesWhatIsThere) {
  const ScratchFolder folder;
  const auto message = [](const Result<ConversionReport>& report) {
    return report.has_value() ? std::string() : report.error().message();
  };
  const std::string old = folder.write("old.gguf", "old");
  EXPECT_THAT(message(convert(KAKEYA_DEMO_MODEL, old, "bf16")),
              HasSubstr("GgufOptions::replace replaces it"));
  EXPECT_THAT(message(convert(KAKEYA_DEMO_MODEL, folder.root(), "bf16")),
              HasSubstr("got a folder"));
  EXPECT_THAT(message(convert(folder.path("none"), old, "bf16", true)),
              HasSubstr("folder of a model or a GGUF file"));
  const std::string network = network_with_tokenizer(folder, true);
  fs::remove(network + "/tokenizer.json");
  EXPECT_THAT(message(convert(network, old, "bf16", true)), HasSubstr("tokenizer.json"));
  folder.write("gemma4-moe/tokenizer.json", tiny_tokenizer_json(true, R"("a": 512)", ""));
  EXPECT_THAT(message(convert(network, old, "bf16", true)),
              HasSubstr("below the vocabulary's 512"));
  EXPECT_EQ(read_file(old), "old");
}

}  // namespace
}  // namespace kakeya
