// `kakeya quantize` and `kakeya convert`, as a user would run them.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

const std::string kDemo = std::string(KAKEYA_DEMO_MODEL) + " ";

TEST_F(Cli, QuantisesAModelThatThenRuns) {
  const std::string target = folder_ + "/demo-8bit";
  const Outcome made = kakeya("quantize " + kDemo + target + " --bits 8 --json", "", "umask 022; ");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto report = nlohmann::json::parse(made.out);
  EXPECT_EQ(report["target"], target);
  // 8 bits, and scale and bias of 16 bits for each 64.
  EXPECT_NEAR(report["bits_per_weight"].get<double>(), 8.5, 0.02);
  EXPECT_LT(report["bytes_after"], report["bytes_before"]);
  EXPECT_EQ(report["not_taken_along"][0], "README.md");
  struct stat info = {};
  ASSERT_EQ(::stat((target + "/model.safetensors").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0644U);

  const std::string prompt = " --prompt 'Count from 5 to 12.' --max-tokens 60 --json";
  const Outcome exact = kakeya("run " + kDemoFlag + prompt);
  const Outcome quantized = kakeya("run --model " + target + prompt);
  ASSERT_EQ(quantized.exit_code, 0) << quantized.err;
  // 8 bits change no token of an answer that the model is sure of.
  EXPECT_EQ(nlohmann::json::parse(quantized.out)["text"], nlohmann::json::parse(exact.out)["text"]);
}

TEST_F(Cli, AQuantisedDrafterChangesNoToken) {
  const std::string target = folder_ + "/drafter-4bit";
  const Outcome made = kakeya("quantize " + std::string(KAKEYA_DEMO_MODEL) + "/drafter " + target);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.out.find(" bits a weight; "), std::string::npos) << made.out;
  const std::string prompt = "run " + kDemoFlag +
                             "--prompt 'Count from 5 to 12.' --max-tokens 60 "
                             "--json --draft ";
  const auto plain = nlohmann::json::parse(kakeya(prompt + "none").out);
  const auto drafted = nlohmann::json::parse(kakeya(prompt + target + " --draft-length 7").out);
  EXPECT_EQ(drafted["output_ids"], plain["output_ids"]);
  EXPECT_GT(drafted["accepted"], 0);
}

TEST_F(Cli, ADrafterAsAGgufFileDraftsTheSame) {
  const std::string drafter = std::string(KAKEYA_DEMO_MODEL) + "/drafter";
  const std::string exact = folder_ + "/drafter.gguf";
  const std::string small = folder_ + "/drafter-q8.gguf";
  expect_refusal("convert " + drafter + " " + exact, "expected the folder of that (--model)");
  expect_refusal("convert " + drafter + " " + folder_ + "/folder " + kDemoFlag,
                 "--model is for a drafter that becomes a .gguf file");
  ASSERT_EQ(kakeya("convert " + drafter + " " + exact + " " + kDemoFlag).exit_code, 0);
  ASSERT_EQ(kakeya("quantize " + drafter + " " + small + " --type q8_0 " + kDemoFlag).exit_code, 0);
  const auto run = [&](const std::string& draft) {
    return nlohmann::json::parse(kakeya("run " + kDemoFlag +
                                        "--prompt 'Count from 5 to 12.' --max-tokens 60 --json "
                                        "--draft-length 7 --draft " +
                                        draft)
                                     .out);
  };
  const auto expected = run(drafter);
  const auto got = run(exact);
  EXPECT_GT(got["accepted"], 0);
  for (const char* field : {"output_ids", "drafted", "accepted", "rounds"}) {
    EXPECT_EQ(got[field], expected[field]) << field;
  }
  const auto quantized = run(small);
  EXPECT_EQ(quantized["output_ids"], expected["output_ids"]);
  EXPECT_GT(quantized["accepted"], 0);
}

TEST_F(Cli, ConvertsAQuantisedModelBackToOneThatRunsTheSame) {
  const std::string quantized = folder_ + "/4bit";
  const std::string decoded = folder_ + "/decoded";
  ASSERT_EQ(kakeya("quantize " + kDemo + quantized).exit_code, 0);
  expect_refusal("convert " + quantized + " " + decoded,
                 "expected a type to decode it to (--type)");
  const Outcome made = kakeya("convert " + quantized + " " + decoded + " --type f32");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto config = nlohmann::json::parse(slurp(decoded + "/config.json"));
  EXPECT_FALSE(config.contains("quantization") || config.contains("quantization_config"));
  EXPECT_EQ(config["dtype"], "float32");
  const std::string prompt = " --compute f32 --prompt 'Count from 5 to 12.' --max-tokens 40 --json";
  const auto from_codes = nlohmann::json::parse(kakeya("run --model " + quantized + prompt).out);
  const auto from_numbers = nlohmann::json::parse(kakeya("run --model " + decoded + prompt).out);
  EXPECT_EQ(from_codes["output_ids"], from_numbers["output_ids"]);
}

TEST_F(Cli, ConvertsAnUnquantisedModelWithoutChangingAByteOfItsTensors) {
  const std::string copy = folder_ + "/copy";
  ASSERT_EQ(kakeya("convert " + kDemo + copy).exit_code, 0);
  const std::string prompt = " --prompt 'Count from 5 to 12.' --max-tokens 40 --json";
  EXPECT_EQ(nlohmann::json::parse(kakeya("run --model " + copy + prompt).out)["output_ids"],
            nlohmann::json::parse(kakeya("run " + kDemoFlag + prompt).out)["output_ids"]);
  const Outcome inspected = kakeya("inspect " + copy + "/model.safetensors");
  EXPECT_NE(inspected.out.find("model.layers.0.experts.gate_up_proj"), std::string::npos);
}

TEST_F(Cli, WritesGgufFilesThatInspectReads) {
  const std::string file = folder_ + "/demo.gguf";
  const Outcome made =
      kakeya("quantize " + kDemo + file + " --type Q4_K_M");  // as llama-quantize has it
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Outcome inspected = kakeya("inspect " + file);
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("Q4_K"), std::string::npos) << inspected.out;
  ASSERT_EQ(kakeya("convert " + kDemo + file + " --force").exit_code, 0);
  EXPECT_NE(kakeya("inspect " + file).out.find("BF16"), std::string::npos);
}

TEST_F(Cli, AFileAtItsLimitIsToldAndLeavesNothing) {
  for (const char* target : {"/small.gguf --type q4_k_m", "/small"}) {
    const std::string made = std::string(target).substr(0, std::string(target).find(' '));
    const Outcome outcome = kakeya("quantize " + kDemo + folder_ + target, "", "ulimit -f 100; ");
    EXPECT_EQ(outcome.exit_code, 2) << target << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find("too large"), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ + made)) << target;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      EXPECT_EQ(entry.path().filename().string().find("partial"), std::string::npos)
          << entry.path();
    }
  }
}

// Text for the models of these tests: a set's prompts, which are long enough.
std::string prompts_file(const char* name) {
  return std::string(KAKEYA_SOURCE_DIR) + "/eval/data/" + name;
}

TEST_F(Cli, CalibrationBringsTheOutputsNearer) {
  // Prompts of one set to measure on, of another to calibrate with.
  std::ofstream(folder_ + "/seen.txt") << slurp(prompts_file("humaneval.jsonl")).substr(0, 20000);
  std::ofstream(folder_ + "/unseen.txt") << slurp(prompts_file("mt_bench.jsonl")).substr(0, 10000);
  const std::string report = " --json --report " + folder_ + "/unseen.txt";
  const std::string calibration = " --calibration " + folder_ + "/seen.txt";
  for (const char* target : {"/a.gguf --type q4_0", "/a --bits 3"}) {
    SCOPED_TRACE(target);
    const std::string quantize = "quantize " + kDemo + folder_ + target + " --force" + report;
    const Outcome plain = kakeya(quantize);
    ASSERT_EQ(plain.exit_code, 0) << plain.err;
    const Outcome weighted = kakeya(quantize + calibration);
    ASSERT_EQ(weighted.exit_code, 0) << weighted.err;
    const auto before = nlohmann::json::parse(plain.out);
    const auto after = nlohmann::json::parse(weighted.out);
    EXPECT_FALSE(before.contains("calibration"));
    EXPECT_GT(after["calibration"]["tokens"], 3000);
    EXPECT_EQ(after["bytes_after"], before["bytes_after"]);
    EXPECT_EQ(after["report"]["tokens"], before["report"]["tokens"]);
    EXPECT_EQ(after["report"]["perplexity_before"], before["report"]["perplexity_before"]);
    EXPECT_LT(after["report"]["mean_divergence"].get<double>(),
              0.97 * before["report"]["mean_divergence"].get<double>());
  }
}

TEST_F(Cli, ACalibrationReportsOnTheEndOfItsTextThatItHasNotSeen) {
  const std::string text = folder_ + "/text.txt";
  std::ofstream(text) << slurp(prompts_file("humaneval.jsonl")).substr(0, 6000);
  const Outcome made =
      kakeya("quantize " + kDemo + folder_ + "/made --calibration " + text + " --json");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto json = nlohmann::json::parse(made.out);
  const auto calibrated = json["calibration"]["tokens"].get<int>();
  EXPECT_EQ(json["report"]["file"], text);
  EXPECT_NEAR(json["report"]["tokens"].get<double>(), calibrated / 3.0, 10.0);
  const Outcome people =
      kakeya("quantize " + kDemo + folder_ + "/made --force --calibration " + text);
  EXPECT_NE(people.out.find("(its end, which calibrated nothing): divergence 0."),
            std::string::npos)
      << people.out;
}

TEST_F(Cli, RefusesTextsThatSayTooLittleBeforeItWritesAnything) {
  const std::string out = folder_ + "/made";
  const std::string quantize = "quantize " + kDemo + out;
  expect_refusal(quantize + " --calibration /nonexistent.txt", "cannot open /nonexistent.txt");
  expect_refusal(quantize + " --report /nonexistent.txt", "cannot open /nonexistent.txt");
  const std::string empty = folder_ + "/empty.txt";
  std::ofstream{empty};
  expect_refusal(quantize + " --calibration " + empty,
                 empty + ": expected a text of 512 tokens at least, got 0");
  const std::string little = folder_ + "/little.txt";
  std::ofstream(little) << "A few words.";
  expect_refusal(quantize + " --report " + little, "expected a text of 256 tokens at least, got ");
  const std::string text = prompts_file("mt_bench.jsonl");
  expect_refusal(quantize + " --calibration " + little + " --report " + text, "256 tokens");
  expect_refusal(
      "quantize " + std::string(KAKEYA_DEMO_MODEL) + "/drafter " + out + " --calibration " + text,
      "got a drafter");
  expect_refusal("quantize " + kDemo + out + ".gguf --type bf16 --calibration " + text,
                 "expected a --type that is quantised, got bf16");
  expect_refusal("quantize " + kDemo + folder_ + " --calibration " + text,
                 "expected nothing of this name");
  EXPECT_FALSE(std::filesystem::exists(out) || std::filesystem::exists(out + ".gguf"));
}

TEST_F(Cli, AGgufFileBecomesAFolderThatRunsTheSame) {
  const std::string file = folder_ + "/demo.gguf";
  const std::string small = folder_ + "/demo-q8.gguf";
  const std::string out = folder_ + "/made";
  ASSERT_EQ(kakeya("convert " + kDemo + file).exit_code, 0);
  ASSERT_EQ(kakeya("quantize " + file + " " + small + " --type q8_0").exit_code, 0);
  expect_refusal("convert " + small + " " + out, "expected a type to decode it to (--type)");
  expect_refusal("convert " + small + " " + folder_ + "/x.gguf", "(--type)");
  expect_refusal("quantize " + small + " " + out, "is quantised already");
  const Outcome made = kakeya("convert " + file + " " + out + " --json");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(nlohmann::json::parse(made.out)["not_taken_along"].size(), 0U);
  const std::string prompt = " --prompt 'Count from 5 to 12.' --max-tokens 40 --json --draft none";
  const auto expected = nlohmann::json::parse(kakeya("run " + kDemoFlag + prompt).out);
  const auto got = nlohmann::json::parse(kakeya("run --model " + out + prompt).out);
  for (const char* field : {"prompt_ids", "output_ids", "text"}) {
    EXPECT_EQ(got[field], expected[field]) << field;
  }
}

TEST_F(Cli, RefusesBadConversionsWithOneLine) {
  const std::string target = folder_ + "/made ";
  expect_refusal("quantize", "source is required");
  expect_refusal("quantize /nonexistent " + target, "/nonexistent: expected the folder of a model");
  expect_refusal("quantize " + kDemo + target + "--bits 7", "--bits");
  expect_refusal("quantize " + kDemo + target + "--group-size 48", "--group-size");
  expect_refusal("quantize " + kDemo + target + "--type q4_0", "--type is for a TARGET");
  expect_refusal("quantize " + kDemo + folder_ + "/x.gguf --bits 4", "a .gguf file has --type");
  expect_refusal("quantize " + kDemo + folder_ + "/x.gguf --type q3", "expected one of f32, f16");
  expect_refusal("quantize " + kDemo + kDemo + "--force", "neither holds the source");
  expect_refusal("quantize " + kDemo + folder_ + " --force", "which is not removed");
  expect_refusal("convert " + kDemo + target + "--type q4_0", "--type");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/made"));
  const std::string damaged = damaged_model();
  const std::string whole = slurp(damaged + "/model.safetensors");
  std::ofstream(damaged + "/model.safetensors", std::ios::binary) << whole.substr(0, 1000000);
  expect_refusal("quantize " + damaged + " " + target, damaged + "/model.safetensors");
  ASSERT_EQ(kakeya("quantize " + kDemo + target).exit_code, 0);
  expect_refusal("quantize " + kDemo + target, "--force replaces it");
  EXPECT_EQ(kakeya("quantize " + kDemo + target + "--force --bits 8").exit_code, 0);
  expect_refusal("quantize " + target + folder_ + "/twice", "is quantised already");
}

}  // namespace
}  // namespace kakeya::test
