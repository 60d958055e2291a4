// Drafters trained in seconds: they load, learn, go on where they were stopped, and refuse in a
// line.
#include "train_drafter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::train {
namespace {

DrafterTraining quick_training(const std::string& out) {
  return {.engine = {.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2, .pin_threads = false},
          .init = "random",
          .layers = 1,
          .block_size = 4,
          .num_prompts = 12,
          .reply_tokens = 12,
          .steps = 8,
          .anchors = 8,
          .save_minutes = 0.0,
          .out = out};
}

std::string no_description(const EngineImpl& /*engine*/, const DrafterReport& /*report*/) {
  return "{}\n";
}

Result<DrafterReport> train(const DrafterTraining& training) {
  return train_drafter(training, no_description);
}

class MlxDrafterTraining : public testing::Test {
 protected:
  void expect_same_files(const std::string& a, const std::string& b) const {
    for (const char* file : {"/model.safetensors", "/config.json", "/checkpoint.safetensors"}) {
      EXPECT_TRUE(read_file(folder_.path(a) + file) == read_file(folder_.path(b) + file)) << file;
    }
  }

  const ScratchFolder folder_;
};

TEST_F(MlxDrafterTraining, MakesTheLossFallAndADrafterThatLoadsAndChangesNoReply) {
  DrafterTraining training = quick_training(folder_.path("out"));
  training.steps = 40;
  training.rate = 3e-3;
  const auto report = train(training);
  ASSERT_OK(report);
  EXPECT_TRUE(report->finished);
  const auto losses = nlohmann::json::parse(report->losses);
  ASSERT_EQ(losses.size(), 41U);  // with what it was before
  const auto mean = [&](std::size_t first) {
    double sum = 0.0;
    for (std::size_t i = first; i < first + 5; ++i) sum += losses[i][1].get<double>();
    return sum / 5.0;
  };
  // At first every row says what it holds, the mask, since embedding and head are the same.
  EXPECT_LT(mean(36), 0.5 * mean(1));
  EXPECT_GT(report->after.prompts, 0);
  EXPECT_GE(report->after.tokens, report->after.rounds);
  EXPECT_EQ(report->before.different + report->after.different, 0);
}

TEST_F(MlxDrafterTraining, GoesOnAsIfItHadNotBeenStopped) {
  ASSERT_OK(train(quick_training(folder_.path("whole"))));
  DrafterTraining training = quick_training(folder_.path("stopped"));
  std::atomic<bool> stop = false;
  training.interrupted = &stop;
  training.on_line = [&](const std::string& line) { stop = line.starts_with("step 3 of"); };
  const auto first = train(training);
  ASSERT_OK(first);
  EXPECT_FALSE(first->finished);
  EXPECT_EQ(first->steps_done, 3);
  training.interrupted = nullptr;
  training.resume = training.out;
  const auto second = train(training);
  ASSERT_OK(second);
  EXPECT_TRUE(second->finished);
  expect_same_files("whole", "stopped");

  training.rate = 1e-5;
  EXPECT_NE(message_of(train(training)).find("got lr"), std::string::npos);
  training = quick_training(folder_.path("other"));
  training.resume = folder_.path("stopped");
  training.seed = 1;
  EXPECT_EQ(code_of(train(training)), StatusCode::kFailedPrecondition);
  training.seed = 0;
  training.layers = 2;
  EXPECT_EQ(code_of(train(training)), StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("other")));
}

TEST_F(MlxDrafterTraining, RefusesTextsThatAreTooShort) {
  DrafterTraining training = quick_training(folder_.path("out"));
  training.prompts = folder_.write("one.txt", "Hello.\n\nHello.\n");
  EXPECT_NE(message_of(train(training)).find("expected replies to train on"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(training.out));
}

class MlxDrafterCli : public test::Cli {
 protected:
  static constexpr const char* kQuick =
      "--init random --layers 1 --block 4 --num-prompts 12 --reply-tokens 12 --anchors 8 "
      "--save-minutes 0 ";
};

TEST_F(MlxDrafterCli, GoesOnAfterAKillWithTheBitsOfATrainingThatWasNot) {
  const std::string command = "drafter " + test::kDemoFlag + kQuick + "--steps 15 ";
  const test::Outcome whole = kakeya(command + "--out " + folder_ + "/whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const std::string log = folder_ + "/log";
  const std::string killed = std::string(KAKEYA_BINARY) + " " + command + "--out " + folder_ +
                             "/killed > /dev/null 2> " + log +
                             " & pid=$!; i=0; until grep -q 'step 5 of' " + log +
                             " || [ $i -ge 3000 ]; do sleep 0.02; i=$((i + 1)); done; kill -9 $pid";
  ASSERT_EQ(std::system(killed.c_str()), 0) << test::slurp(log);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/killed/training.json"));
  const test::Outcome rest =
      kakeya(command + "--resume " + folder_ + "/killed --out " + folder_ + "/killed");
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  for (const char* file : {"/model.safetensors", "/checkpoint.safetensors", "/config.json"}) {
    EXPECT_TRUE(test::slurp(folder_ + "/whole" + file) == test::slurp(folder_ + "/killed" + file))
        << file;
  }
  const auto json = nlohmann::json::parse(test::slurp(folder_ + "/killed/training.json"));
  EXPECT_EQ(json["schema"], "kakeya.train.drafter/1");
  EXPECT_EQ(json["settings"]["steps"], 15);
  EXPECT_EQ(json["after"]["replies_that_differ"], 0);
  EXPECT_EQ(json["acceptance_by_depth"]["after"].size(), 3U);
}

TEST_F(MlxDrafterCli, RefusesInOneLine) {
  const std::string command = "drafter " + test::kDemoFlag + kQuick + "--out " + folder_ + "/new ";
  expect_refusal(command, "minutes or steps");
  expect_refusal(command + "--steps 2 --weights half", "weights: expected decay:G");
  expect_refusal(command + "--steps 2 --weights dpace:1", "weights: expected decay:G");
  expect_refusal(command + "--steps 2 --loss kl", "--loss");
  expect_refusal(command + "--steps 2 --lr -1", "lr: expected above 0");
  const std::string random =
      "drafter " + test::kDemoFlag + "--init random --steps 2 --out " + folder_ + "/new ";
  expect_refusal(random + "--layers 0", "layers: expected 1 to");
  // The model's own drafter has its layers.
  const std::string own = "drafter " + test::kDemoFlag + "--steps 2 --out " + folder_ + "/new ";
  expect_refusal(own + "--layers 2", "layers are for a random drafter");
  expect_refusal(own + "--taps 1,3", "taps are for a random drafter");
  expect_refusal(random + "--block 1", "block: expected 2 to");
  expect_refusal(command + "--steps 2 --prompts /nowhere.txt", "/nowhere.txt");
  expect_refusal(command + "--steps 2 --resume /nowhere", "/nowhere");
  expect_refusal("drafter --model /nowhere --steps 2 --out " + folder_ + "/new", "/nowhere");
  expect_refusal("drafter " + test::kDemoFlag + "--steps 2 --out " + KAKEYA_DEMO_MODEL,
                 "expected no such folder, or an empty one");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new"));
}

}  // namespace
}  // namespace kakeya::train
