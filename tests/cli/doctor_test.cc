// `kakeya doctor` where no more than the shape of a model is there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"
#include "formats/named_shapes.h"

namespace kakeya::test {
namespace {

const std::string kConfigs = std::string(KAKEYA_TEST_DATA) + "/configs/";

class DoctorOfShapes : public Cli {
 protected:
  nlohmann::json sizes(const std::string& flags) {
    const Outcome outcome = kakeya("doctor --json " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << flags << "\n" << outcome.err;
    return nlohmann::json::parse(outcome.out)["sizes"];
  }
};

TEST_F(DoctorOfShapes, TellsTheSizesOfAFolderWithAConfigurationAlone) {
  const auto json = sizes("--model " + kConfigs + "meta-llama-Llama-3.1-8B-Instruct");
  EXPECT_EQ(json["architecture"], "llama");
  EXPECT_EQ(json["parameters"]["total"], 8030261248);
  EXPECT_EQ(json["weights"][0]["bytes"], 2 * 8030261248);
  // 4 bits and two bf16 numbers for 64 weights.
  EXPECT_EQ(json["weights"][2]["flags"], "--bits 4");
  EXPECT_NEAR(json["weights"][2]["bytes"].get<double>(), 8030261248 * 4.5 / 8, 1e7);
  EXPECT_NEAR(json["weights"][1]["bytes"].get<double>(), 8030261248 * 8.5 / 8, 1e7);
  // 32 layers, 8 heads of 128, keys and values.
  EXPECT_EQ(json["kv"][0]["full_bytes_per_token"], 2 * 32 * 8 * 128 * 2);
  EXPECT_EQ(json["kv"][0]["sliding_bytes_per_token"], 0);
  EXPECT_LT(json["kv"][1]["full_bytes_per_token"], 70000);
  EXPECT_LT(json["kv"][2]["full_bytes_per_token"], 40000);
  EXPECT_NE(json["missing"].get<std::string>().find("model.safetensors"), std::string::npos);
}

TEST_F(DoctorOfShapes, TellsWhatSlidingLayersHoldAtMost) {
  const auto json = sizes("--shape gemma3-1b --chunk 512");
  // 22 of 26 layers, a head of 256.
  EXPECT_EQ(json["kv"][0]["sliding_bytes_per_token"], 2 * 22 * 256 * 2);
  EXPECT_EQ(json["kv"][0]["full_bytes_per_token"], 2 * 4 * 256 * 2);
  EXPECT_EQ(json["kv"][0]["most_sliding_tokens"], 512 + 512 - 1);
}

TEST_F(DoctorOfShapes, TellsHowFarMemoryReaches) {
  const auto far = [&](const std::string& memory) {
    return sizes("--shape smollm2-135m --memory " + memory)["kv"][0]["longest_context"];
  };
  const auto json = far("250MiB");
  EXPECT_EQ(json["bf16"], 0);
  EXPECT_GT(json["--bits 8"], 1024);
  EXPECT_LT(json["--bits 8"], json["--bits 4"]);
  EXPECT_EQ(far("700MiB")["bf16"], 8192);
}

TEST_F(DoctorOfShapes, KnowsEveryPublishedModel) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs)) {
    const std::string name = entry.path().filename();
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    if (name.starts_with("z-lab-") || name.starts_with("SpecForge-")) continue;
    ++models;
    const Outcome outcome = kakeya("doctor --model " + entry.path().string());
    EXPECT_EQ(outcome.exit_code, 0) << name << "\n" << outcome.err;
    EXPECT_EQ(outcome.err, "") << name;
    const bool gemma = name.find("gemma") != std::string::npos;
    EXPECT_NE(outcome.out.find(gemma                       ? "architecture  gemma"
                               : name.starts_with("Qwen-") ? "architecture  qwen"
                                                           : "architecture  llama ("),
              std::string::npos)
        << outcome.out;
    EXPECT_NE(outcome.out.find("missing: download model.safetensors"), std::string::npos);
  }
  EXPECT_GE(models, 20);
}

TEST_F(DoctorOfShapes, KnowsEveryShape) {
  for (const std::string_view name : shape_names()) {
    const auto json = sizes("--shape " + std::string(name));
    EXPECT_EQ(json["name"], name);
    EXPECT_EQ(json["kv"].size(), 5U) << name;
  }
  expect_refusal("doctor --shape none", "--shape must be one of gemma4-26b-a4b, ");
  expect_refusal("doctor --shape gemma3-1b " + kDemoFlag, "exclude each other");
  expect_refusal("doctor --shape gemma3-1b --ctx 99999", "--ctx must be 1 to 32768");
}

TEST_F(DoctorOfShapes, ReadsTheBeginningOfAGgufFile) {
  const std::string whole_path = folder_ + "/whole.gguf";
  ASSERT_EQ(kakeya("convert " + std::string(KAKEYA_DEMO_MODEL) + " " + whole_path).exit_code, 0);
  const std::string whole = slurp(whole_path);
  const std::string path = folder_ + "/cut.gguf";
  std::ofstream(path) << whole.substr(0, whole.size() / 2);
  const auto json = sizes("--model " + path);
  EXPECT_EQ(json["architecture"], "gemma4");
  const auto of_folder = nlohmann::json::parse(kakeya("inspect --json " + whole_path).out);
  EXPECT_EQ(json["parameters"], of_folder["parameters"]);
  EXPECT_NE(json["missing"].get<std::string>().find(std::to_string(whole.size() / 2) + " of "),
            std::string::npos);
  EXPECT_GT(json["weights"][0]["bytes"], whole.size() / 2);
  EXPECT_LT(json["weights"][0]["bytes"], whole.size());
  expect_refusal("run --prompt hello --model " + path, "the file holds");
  // Half a header says nothing.
  std::ofstream(path) << whole.substr(0, 1000);
  expect_refusal("doctor --model " + path, "cut.gguf");
}

}  // namespace
}  // namespace kakeya::test
