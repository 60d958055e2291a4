// kakeya-train as a user meets it; Cli::kakeya() runs it here.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

const std::string kProjection = "projection " + kDemoFlag;

TEST_F(Cli, TrainsAProjectionAndSaysHow) {
  const Outcome outcome =
      kakeya(kProjection + "--tokens 800 --rank 8 --ridge 1e-3 --out " + folder_ + "/mine");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("2 *"), std::string::npos) << outcome.out;
  const auto json = nlohmann::json::parse(slurp(folder_ + "/mine/training.json"));
  EXPECT_EQ(json["schema"], "kakeya.train.projection/1");
  EXPECT_EQ(json["command"][0], "kakeya-train");
  EXPECT_EQ(json["options"]["rank"], 8);
  EXPECT_EQ(json["options"]["features"], "aux");
  EXPECT_EQ(json["options"]["layers"], "full");
  EXPECT_GE(json["training"]["tokens"].get<int>() + json["validation"]["tokens"].get<int>(), 800);
  ASSERT_EQ(json["layers"].size(), 6U);
  for (const auto& layer : json["layers"]) {
    const bool full = layer["layer"] == 2 || layer["layer"] == 5;
    EXPECT_EQ(layer["fitted"], full);
    EXPECT_LE(layer["explained_keys"]["training"].get<double>(), 1.0);
  }
  const auto config = nlohmann::json::parse(slurp(folder_ + "/mine/f_theta_config.json"));
  EXPECT_EQ(config["fitted_layers"], (nlohmann::json{2, 5}));
  expect_refusal(kProjection + "--out " + folder_ + "/mine", "expected no such folder");
}

TEST_F(Cli, TrainsCodesAndSaysWhatTheirBytesAreSpentOn) {
  const std::string codes = "codes " + kDemoFlag + "--tokens 800 --ridge 1e-3 --out ";
  const Outcome outcome = kakeya(codes + folder_ + "/codes --bytes 20");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("bytes a token"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("rows e8"), std::string::npos) << outcome.out;
  const auto json = nlohmann::json::parse(slurp(folder_ + "/codes/training.json"));
  EXPECT_EQ(json["schema"], "kakeya.train.codes/1");
  EXPECT_EQ(json["options"]["bytes"], 20);
  EXPECT_EQ(json["options"]["rank"], json["chosen"]["rank"]);
  const auto config = nlohmann::json::parse(slurp(folder_ + "/codes/f_theta_config.json"));
  EXPECT_EQ(config["codes"], "one");
  EXPECT_EQ(config["code_format"], json["chosen"]["format"]);
  expect_refusal(codes + folder_ + "/none --bytes 0", "--bytes");
  expect_refusal(codes + folder_ + "/none --bytes 1", "bytes: expected");
}

TEST_F(Cli, RefusesToTrainInOneLine) {
  const std::string out = "--out " + folder_ + "/new ";
  expect_refusal("projection --model /nowhere " + out, "/nowhere");
  expect_refusal("projektion", "'projektion'; did you mean projection? (see kakeya-train --help)");
  expect_refusal(kProjection, "--out is required (see kakeya-train projection --help)");
  expect_refusal(kProjection + out + "--ridg 1", "did you mean --ridge? (see kakeya-train proj");
  expect_refusal(kProjection + out + "--features own", "--features");
  expect_refusal(kProjection + out + "--layers some", "--layers");
  expect_refusal(kProjection + out + "--rank 0", "rank: expected 1 to 256");
  expect_refusal(kProjection + out + "--rank 257", "rank: expected 1 to 256");
  expect_refusal(kProjection + out + "--ridge -1", "ridge: expected 0 or more");
  expect_refusal(kProjection + out + "--tokens 0", "tokens: expected 1 to");
  for (const char* flag :
       {"--steps 1", "--minutes 1", "--learning-rate 1e-3", "--rows 1000", "--init random"}) {
    expect_refusal(kProjection + out + flag, "expected a loss that is trained by gradient");
  }
  expect_refusal(kProjection + out + "--loss kl", "--loss");
  expect_refusal(kProjection + out + "--texts /nowhere.txt", "/nowhere.txt");
  std::ofstream(folder_ + "/short.txt") << "Hello.";
  expect_refusal(kProjection + out + "--texts " + folder_ + "/short.txt", "short.txt: expected");
  expect_refusal(kProjection + "--out /dev/null/new",
                 "cannot create a folder beside /dev/null/new");
  expect_refusal("projection --model " + damaged_model() + " " + out,
                 "expected a model with a drafter");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new"));
}

}  // namespace
}  // namespace kakeya::test
