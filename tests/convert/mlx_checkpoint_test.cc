// Models in MLX's affine format, against what mlx-lm made of them (tools/make_mlx_goldens.py).
#include "convert/mlx_checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "formats/safetensors.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const json& mlx_golden() {
  static const json cases =
      json::parse(read_file(std::string(KAKEYA_TEST_DATA) + "/quantized/mlx_models.json"));
  return cases;
}

// The first 16 digits of the SHA-256.
std::string digest(const TensorView& view) {
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(view.data), view.bytes(), hash);
  std::string text;
  for (int i = 0; i < 8; ++i) text += fmt::format("{:02x}", hash[i]);
  return text;
}

// The case's source; a multimodal configuration around it where the case says so.
std::string source_of(const json& c, const ScratchFolder& folder) {
  const std::string original =
      std::string(KAKEYA_SOURCE_DIR) + "/" + c["source"].get<std::string>();
  if (!c["wrapped"]) return original;
  const std::string wrapped = folder.path("wrapped");
  std::filesystem::create_directory(wrapped);
  const json text = json::parse(read_file(original + "/config.json"));
  std::ofstream(wrapped + "/config.json") << json{{"model_type", "gemma4"}, {"text_config", text}};
  std::filesystem::copy(original + "/model.safetensors", wrapped + "/model.safetensors");
  return wrapped;
}

Result<ConversionReport> quantize(const std::string& source,
                                  const std::string& target,
                                  AffineFormat format = {},
                                  const FolderOptions& options = {.threads = 1}) {
  MemoryBudget budget;
  return quantize_to_mlx(source, target, format, options, budget);
}

json tensors_of(const std::string& dir) {
  const auto checkpoint = Checkpoint::open(dir);
  json tensors = json::object();
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().message();
    return tensors;
  }
  for (const SafetensorsFile& file : checkpoint->files()) {
    EXPECT_EQ(file.metadata().at("format"), "mlx");
    for (const TensorView& view : file.tensors()) {
      tensors[view.name] = {dtype_name(view.dtype), view.shape, digest(view)};
    }
  }
  return tensors;
}

TEST(MlxCheckpoint, HasTheTensorsAndTheConfigurationOfMlxLmBitForBit) {
  ASSERT_EQ(mlx_golden().size(), 6U);
  for (const json& c : mlx_golden()) {
    SCOPED_TRACE(c["source"]);
    const ScratchFolder folder;
    const auto report = quantize(source_of(c, folder), folder.path("out"),
                                 {.bits = c["bits"], .group_size = c["group_size"]});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    const json tensors = tensors_of(folder.path("out"));
    EXPECT_EQ(tensors.size(), c["tensors"].size());
    for (const auto& [name, expected] : c["tensors"].items()) {
      EXPECT_EQ(tensors.value(name, json()), expected) << name;
    }
    const json config = json::parse(read_file(folder.path("out/config.json")));
    EXPECT_EQ(config["quantization"], c["quantization"]);
    EXPECT_EQ(config["quantization_config"], c["quantization"]);
  }
}

TEST(MlxCheckpoint, ShardsHoldTheSameTensorsAsOneFile) {
  const ScratchFolder folder;
  ASSERT_TRUE(quantize(KAKEYA_DEMO_MODEL, folder.path("one")).has_value());
  FolderOptions options = {.threads = 2};
  options.writer.max_shard_bytes = 1 << 20;
  const auto report = quantize(KAKEYA_DEMO_MODEL, folder.path("many"), {}, options);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_TRUE(std::filesystem::exists(folder.path("many/model-00002-of-00006.safetensors")));
  EXPECT_EQ(tensors_of(folder.path("many")), tensors_of(folder.path("one")));
  const json index = json::parse(read_file(folder.path("many/model.safetensors.index.json")));
  EXPECT_EQ(index["metadata"]["total_size"], report->bytes_after);
}

TEST(MlxCheckpoint, ReportsWhatItDidAndKeepsItsMemorySmall) {
  const ScratchFolder folder;
  const auto report = quantize(KAKEYA_DEMO_MODEL, folder.path("out"));
  ASSERT_TRUE(report.has_value()) << report.error().message();
  const json& c = mlx_golden()[0];
  std::int64_t quantized = 0;
  for (const auto& [name, tensor] : c["tensors"].items()) quantized += tensor[0] == "U32" ? 1 : 0;
  EXPECT_EQ(report->quantized, quantized);
  EXPECT_EQ(report->tensors + 2 * quantized, static_cast<std::int64_t>(c["tensors"].size()));
  EXPECT_EQ(report->bytes_before, Checkpoint::open(KAKEYA_DEMO_MODEL)->total_bytes());
  EXPECT_EQ(report->bytes_after, Checkpoint::open(folder.path("out"))->total_bytes());
  EXPECT_GT(report->buffer_bytes, 0U);
  EXPECT_THAT(report->left_out, testing::Contains("projections/"));
  // One row at a time would do.
  MemoryBudget little(64 << 10);
  EXPECT_EQ(quantize_to_mlx(KAKEYA_DEMO_MODEL, folder.path("no"), {}, {.threads = 1}, little)
                .error()
                .code(),
            StatusCode::kResourceExhausted);
  EXPECT_FALSE(std::filesystem::exists(folder.path("no")));
}

TEST(MlxCheckpoint, TakesTheTokenizerTheTemplateAndTheDrafterAlong) {
  const ScratchFolder folder;
  ASSERT_TRUE(quantize(KAKEYA_DEMO_MODEL, folder.path("out")).has_value());
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json",
        "drafter/config.json", "drafter/model.safetensors"}) {
    EXPECT_EQ(read_file(folder.path("out/") + name),
              read_file(std::string(KAKEYA_DEMO_MODEL) + "/" + name))
        << name;
  }
}

// A copy of a small network in which one number of a tensor is `bad`.
std::string damaged_network(const ScratchFolder& folder, float bad) {
  const std::string original = std::string(KAKEYA_TEST_DATA) + "/networks/qwen3-tied";
  const std::string dir = folder.path("damaged");
  std::filesystem::create_directory(dir);
  std::filesystem::copy(original + "/config.json", dir + "/config.json");
  const auto file = SafetensorsFile::open(original + "/model.safetensors");
  std::vector<TensorView> views(file->tensors().begin(), file->tensors().end());
  std::vector<std::byte> copy;
  for (TensorView& view : views) {
    if (!view.name.ends_with("layers.1.mlp.up_proj.weight")) continue;
    copy.assign(view.data, view.data + view.bytes());
    const BFloat16 value = to_bfloat16(bad);
    std::memcpy(copy.data() + 200, &value, sizeof(value));
    view.data = copy.data();
  }
  EXPECT_FALSE(copy.empty());
  EXPECT_TRUE(write_safetensors(dir + "/model.safetensors", views, {}).has_value());
  return dir;
}

TEST(MlxCheckpoint, RefusesNumbersThatAreNotFiniteAndLeavesNothing) {
  for (const float bad : {NAN, -INFINITY}) {
    const ScratchFolder folder;
    const auto report = quantize(damaged_network(folder, bad), folder.path("out"), {4, 32});
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().code(), StatusCode::kDataLoss);
    EXPECT_THAT(report.error().message(), HasSubstr("layers.1.mlp.up_proj.weight: element 100 of"));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.root()), {}), 1);
  }
}

TEST(MlxCheckpoint, RefusesWhatIsQuantisedAndFormatsThatMlxDoesNotHave) {
  const ScratchFolder folder;
  ASSERT_TRUE(quantize(KAKEYA_DEMO_MODEL, folder.path("out")).has_value());
  const auto again = quantize(folder.path("out"), folder.path("twice"));
  ASSERT_FALSE(again.has_value());
  EXPECT_THAT(again.error().message(), HasSubstr("is quantised already"));
  const auto odd = quantize(KAKEYA_DEMO_MODEL, folder.path("odd"), {7, 64});
  ASSERT_FALSE(odd.has_value());
  EXPECT_THAT(odd.error().message(), HasSubstr("got 7 bits and groups of 64"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("odd")));
}

TEST(MlxCheckpoint, AnInterruptionLeavesNothing) {
  const ScratchFolder folder;
  FolderOptions options = {.threads = 1};
  std::uint64_t most = 0;
  options.writer.progress = [&](std::uint64_t done, std::uint64_t total) -> Status {
    EXPECT_GE(done, most);
    EXPECT_LE(done, total);
    most = done;
    if (2 * done < total) return {};
    return Unexpected(Error(StatusCode::kCancelled, "enough"));
  };
  const auto report = quantize(KAKEYA_DEMO_MODEL, folder.path("out"), {}, options);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), StatusCode::kCancelled);
  EXPECT_GT(most, 0U);
  EXPECT_TRUE(std::filesystem::is_empty(folder.root()));
}

}  // namespace
}  // namespace kakeya
