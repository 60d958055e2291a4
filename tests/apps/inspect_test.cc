#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "formats/gguf_write.h"
#include "formats/scratch_files.h"
#include "inspect_gguf.h"
#include "inspect_report.h"

namespace kakeya::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string network(const std::string& name) {
  return std::string(KAKEYA_TEST_DATA) + "/networks/" + name;
}

TEST(Inspect, DescribesAModelFolder) {
  const auto report = inspect(network("gemma4-moe"));
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->problem, "");
  EXPECT_THAT(to_text(*report),
              AllOf(HasSubstr("architecture  gemma4 (gemma4_text)\n"),
                    HasSubstr("layers        6: 2 full, 4 sliding\n"),
                    HasSubstr("kv, full      1 x 32, values are keys\n"),
                    HasSubstr("experts       8 of 24, 2 a token\n"),
                    HasSubstr("metadata      format = pt\n"),
                    HasSubstr("dtype         BF16: 132 tensors, 803564 bytes\n"),
                    HasSubstr("BF16            6144  model.layers.0.mlp.gate_proj.weight [48, 64]"),
                    Not(HasSubstr("problem"))));
}

TEST(Inspect, GivesTheSameAsOneJsonObject) {
  const auto report = inspect(network("gemma4-moe"));
  ASSERT_TRUE(report.has_value()) << report.error().message();
  const auto json = to_json(*report);
  EXPECT_EQ(json["architecture"], "gemma4");
  EXPECT_EQ(json["config"]["num_experts"], 8);
  EXPECT_EQ(json["tensors"].size(), 132U);
  EXPECT_EQ(json["dtypes"]["BF16"]["bytes"], json["total_bytes"]);
  // Every parameter is stored once, two bytes each.
  EXPECT_EQ(json["parameters"]["total"].get<std::int64_t>() * 2,
            json["total_bytes"].get<std::int64_t>());
  EXPECT_TRUE(json["problem"].is_null());
  EXPECT_EQ(json["files"][0]["metadata"]["format"], "pt");
}

TEST(Inspect, DescribesTheFolderOfADrafter) {
  const auto report = inspect(network("dflash-gemma4"));
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->problem, "");
  EXPECT_THAT(to_text(*report),
              AllOf(HasSubstr("architecture  dflash, a drafter\n"),
                    HasSubstr("layers        3: 1 full, 2 sliding\n"),
                    HasSubstr("vocabulary    512, embedding and output head of the target\n"),
                    HasSubstr("taps          1, 2, 4\n"),
                    HasSubstr("block         4: 1 token and 3 drafts, mask id 4\n"),
                    HasSubstr("mask rule     causal in sliding layers, both ways in full ones\n"),
                    HasSubstr("parameters    95840 (0.10 M)\n"), HasSubstr("fc.weight [64, 192]"),
                    Not(HasSubstr("problem"))));
  const auto json = to_json(*report);
  EXPECT_EQ(json["architecture"], "dflash");
  EXPECT_EQ(json["config"]["target_layer_ids"], (nlohmann::ordered_json{1, 2, 4}));
  EXPECT_TRUE(json["config"]["is_causal"].is_null());
  // Every parameter is stored once, two bytes each.
  EXPECT_EQ(json["parameters"]["total"].get<std::int64_t>() * 2,
            json["total_bytes"].get<std::int64_t>());
}

TEST(Inspect, SaysWhatADrafterOverrides) {
  const auto report = inspect(std::string(KAKEYA_DEMO_MODEL) + "/drafter");
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_THAT(to_text(*report),
              AllOf(HasSubstr("mask rule     both ways\n"), HasSubstr("input scale   16\n")));
  EXPECT_EQ(to_json(*report)["config"]["is_causal"], false);
  EXPECT_EQ(to_json(*report)["config"]["input_embedding_scale"], 16.0);
}

TEST(Inspect, ShowsTheTensorsOfADrafterItCannotRunAndSaysWhy) {
  const ScratchFolder folder;
  std::string config = read_file(network("dflash-gemma4") + "/config.json");
  const std::string name = "DFlashDraftModel";
  config.replace(config.find(name), name.size(), "DFlash3DraftModel");
  folder.write("config.json", config);
  folder.write("model.safetensors", read_file(network("dflash-gemma4") + "/model.safetensors"));
  const auto report = inspect(folder.root());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_THAT(report->problem, HasSubstr("DFlash3"));
  EXPECT_THAT(to_text(*report),
              AllOf(HasSubstr("problem       "), HasSubstr("fc.weight [64, 192]")));
}

TEST(Inspect, SaysWhatDoesNotFitTheConfiguration) {
  const ScratchFolder folder;
  folder.write("config.json", read_file(network("qwen3-tied") + "/config.json"));
  folder.write("model.safetensors", read_file(network("qwen3-untied") + "/model.safetensors"));
  const auto report = inspect(folder.root());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_THAT(report->problem, HasSubstr("unexpected model.layers.5.mlp.up_proj.weight"));
}

TEST(Inspect, DescribesAWeightFileWithHostileNames) {
  const ScratchFolder folder;
  const std::string path = folder.write(
      "w.safetensors",
      safetensors_bytes(R"({"a\u001b[31m\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                        "x"));
  const auto report = inspect(path);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_THAT(to_text(*report), AllOf(HasSubstr("a\\x1b[31m\\x0a [1]"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(to_json(*report)["tensors"][0]["name"], "a\x1b[31m\n");
}

TEST(Inspect, FailsInOneLineWithoutWeights) {
  const ScratchFolder folder;
  EXPECT_EQ(code_of(inspect(folder.root())), StatusCode::kNotFound);
  EXPECT_EQ(code_of(inspect(folder.path("absent"))), StatusCode::kNotFound);
}

TEST(InspectGguf, ListsMetadataTypesAndTensors) {
  const auto file = inspect_gguf(std::string(KAKEYA_TEST_DATA) + "/quantized/small.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const std::string text = to_text(*file);
  for (const char* line :
       {"GGUF version 3: 9 tensors, 27 keys\n", " general.architecture = \"kakeya-test\"\n",
        " types.int64 = -9223372036854775808\n", " types.uint64 = null\n",
        " arrays.bool = [true,false,true]\n", " arrays.nested = null\n",
        "Q6_K: 1 tensors, 420 bytes\n", " blocks.q8_0 [2, 3, 32]\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const nlohmann::ordered_json json = to_json(*file);
  EXPECT_EQ(json["metadata"]["types.uint32"], 4294967295U);
  EXPECT_EQ(json["metadata"]["arrays.string"][1], "a");
  EXPECT_EQ(json["types"]["Q4_K"]["bytes"], 288);
  EXPECT_EQ(json["tensors"][4]["type"], "Q4_0");
  EXPECT_THAT(file->model.problem, HasSubstr("expected one of gemma4, qwen3, llama"));
}

// A file is described as the folder of the same model is.
TEST(InspectGguf, DescribesModelsAndDrafters) {
  const std::string folder = std::string(KAKEYA_TEST_DATA) + "/gguf/";
  const auto model = inspect_gguf(folder + "gemma4-moe.gguf");
  ASSERT_TRUE(model.has_value()) << model.error().message();
  EXPECT_EQ(model->model.problem, "");
  EXPECT_THAT(to_text(*model),
              AllOf(HasSubstr("layers        6: 2 full, 4 sliding\n"),
                    HasSubstr("kv, full      1 x 32, values are keys\n"),
                    HasSubstr("experts       8 of 24, 2 a token\n"), Not(HasSubstr("problem"))));
  EXPECT_EQ(to_json(*model)["parameters"],
            to_json(inspect(network("gemma4-moe")).value())["parameters"]);
  const auto drafter = inspect_gguf(folder + "dflash-gemma4.gguf");
  ASSERT_TRUE(drafter.has_value()) << drafter.error().message();
  EXPECT_EQ(drafter->model.problem, "");
  EXPECT_THAT(to_text(*drafter), HasSubstr("taps          1, 2, 4\n"));
  EXPECT_EQ(to_json(*drafter)["architecture"], "dflash");
}

TEST(InspectGguf, CutsLongValues) {
  const ScratchFolder folder;
  std::vector<std::int32_t> numbers(100);
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::vector<GgufMetadata> metadata = {{"text", std::string(500, 'x')},
                                              {"numbers", numbers},
                                              {"bytes", std::string("a\xff\x1b[31m")}};
  const std::string path = folder.path("long.gguf");
  ASSERT_TRUE(write_gguf(path, metadata, {}).has_value());
  const auto file = inspect_gguf(path);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const std::string text = to_text(*file);
  EXPECT_THAT(text, HasSubstr("xxx... (502 bytes)\n"));
  EXPECT_THAT(text, HasSubstr(R"({"type":"int32","count":100,"first":[0,1,2,3,4,5,6,7]})"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(to_json(*file)["metadata"]["text"], std::string(500, 'x'));
}

}  // namespace
}  // namespace kakeya::cli
