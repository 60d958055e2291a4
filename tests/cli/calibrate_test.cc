// `kakeya calibrate`, and the KV cache stored by what it has learned.
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

// Some hundred tokens, and no two lines alike.
std::string calibration_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += "Line " + std::to_string(i * 37 % 101) + " tells of " + std::to_string(i) + " ships.\n";
  }
  return text;
}

TEST_F(Cli, CalibratesAModelWhoseCacheThenTakesFewBits) {
  const std::string model = damaged_model();  // whole, without statistics
  std::ofstream(folder_ + "/text.txt") << calibration_text(200);
  const std::string ask = "run -m " + model + " -p 'Count from 5 to 12.' -n 40 --json --kv-full ";
  expect_refusal(ask + "k4v4", "run `kakeya calibrate " + model + "`");
  const Outcome made = kakeya("calibrate " + model + " --text " + folder_ + "/text.txt");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.out.find(model + "/kv-codes.safetensors: statistics of 6 layers from "), 0U);
  EXPECT_NE(made.out.find(" of text.txt, "), std::string::npos) << made.out;
  const Outcome coded = kakeya(ask + "k5v5");
  ASSERT_EQ(coded.exit_code, 0) << coded.err;
  const auto exact = nlohmann::json::parse(kakeya(ask + "auto").out);
  EXPECT_EQ(nlohmann::json::parse(coded.out)["text"], exact["text"]);
}

// Other statistics are other codes.
TEST_F(Cli, ReadsTheStatisticsThatItIsTold) {
  const std::string elsewhere = folder_ + "/elsewhere.safetensors";
  std::ofstream(folder_ + "/text.txt") << calibration_text(200);
  ASSERT_EQ(
      kakeya("calibrate " + kDemoFlag + " --text " + folder_ + "/text.txt --output " + elsewhere)
          .exit_code,
      0);
  const std::string ask = "eval kl " + kDemoFlag + "--file " + folder_ +
                          "/text.txt --compute f32 --length 512 --limit 1 --kv-exact 1 --json "
                          "--kv-full k2v2 --kv-statistics ";
  const auto divergence = [&](const std::string& file) {
    const Outcome outcome = kakeya(ask + file);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["sets"][0]["mean"].get<double>();
  };
  const double own = divergence(elsewhere);
  EXPECT_GT(own, 0.0);
  EXPECT_NE(divergence("auto"), own);
}

TEST_F(Cli, RefusesStatisticsOfAnotherModel) {
  const std::string model = damaged_model();
  const std::string statistics = std::string(KAKEYA_DEMO_MODEL) + "/kv-codes.safetensors";
  const std::string ask = "run -m " + model + " -p Count -n 2 --kv-full k4v4 --kv-statistics ";
  // Another weight, the same shapes.
  std::fstream weights(model + "/model.safetensors",
                       std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-2, std::ios::end);
  weights.write("\x01\x3c", 2);
  weights.close();
  expect_refusal(ask + statistics, "were made of other weights");
  std::ofstream(folder_ + "/short.safetensors") << slurp(statistics).substr(0, 5000);
  expect_refusal(ask + folder_ + "/short.safetensors", "short.safetensors");
  expect_refusal(ask + folder_ + "/none.safetensors", "none.safetensors");
}

TEST_F(Cli, RefusesWhatCalibratedTypesCannotDo) {
  const std::string ask = "run " + kDemoFlag + "-p Count -n 2 ";
  expect_refusal(ask + "--kv-exact 8", "--kv-exact is for calibrated types");
  expect_refusal(ask + "--kv-full k4v7", "k4v7");
  expect_refusal(ask + "--kv-sliding k4v4", "--kv-sliding");
  expect_refusal(ask + "--kv-drafter k4v4", "--kv-drafter");
  expect_refusal(ask + "--kv-full k4v4 --window 64 --evicted-full drop", "keep all rows");
  std::ofstream(folder_ + "/short.txt") << "A few words.";
  expect_refusal("calibrate " + kDemoFlag + " --text " + folder_ + "/short.txt",
                 "expected texts of 1024 tokens at least");
}

}  // namespace
}  // namespace kakeya::test
