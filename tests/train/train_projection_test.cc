// Projections trained in a second: better than nothing, better with a higher rank, the same again.
#include "train_projection.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "eval/kv/kv_eval.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::train {
namespace {

ProjectionTraining quick_training(const std::string& out, std::int64_t rank) {
  return {.engine = {.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2, .pin_threads = false},
          .rank = rank,
          .tokens = 2500,
          .ridge = 1e-3,  // of so few tokens
          .seed = 1,
          .out = out};
}

std::string no_description(const EngineImpl& /*engine*/, const ProjectionReport& /*report*/) {
  return "{}\n";
}

class TrainProjection : public testing::Test {
 protected:
  Result<ProjectionReport> train(const ProjectionTraining& training) {
    return train_projection(training, no_description);
  }

  const ScratchFolder folder_;
};

// Explained energy of the validation text's keys, by layer.
std::map<std::int64_t, double> explained_keys(const ProjectionReport& report) {
  std::map<std::int64_t, double> explained;
  for (const LayerReport& layer : report.layers) explained[layer.layer] = layer.key_validation;
  return explained;
}

// Mean divergence from the exact model, of the modes by their names.
std::map<std::string, double> divergences(const std::string& projection) {
  auto engine =
      EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2, .pin_threads = false});
  EXPECT_TRUE(engine.has_value());
  auto texts = eval::parse_prompts(read_file(KAKEYA_SOURCE_DIR "/eval/data/prose.jsonl"), "prose");
  EXPECT_TRUE(texts.has_value());
  texts->resize(1);
  const auto whole = eval::encode_prompts(**engine, "prose", *texts, eval::PromptForm::kPlain);
  const eval::PromptSet set = eval::cut_texts(*whole, 320).value();
  const auto modes = eval::choose_kv_modes({"restore-full-aux"});
  eval::KvEvalOptions options;
  auto loaded = (*engine)->load_projection(projection);
  EXPECT_TRUE(loaded.has_value()) << loaded.error().message();
  options.projections["aux"] = std::move(*loaded);
  const auto report = eval::evaluate_kv_texts(**engine, *modes, set, 320, options);
  EXPECT_TRUE(report.has_value()) << report.error().message();
  std::map<std::string, double> result;
  for (const eval::KvTextResult& mode : report->modes) {
    result[mode.mode] = mode.statistics.mean_divergence();
  }
  return result;
}

TEST_F(TrainProjection, RestoresBetterThanDroppingAndBetterWithAHigherRank) {
  const auto small = train(quick_training(folder_.path("small"), 4));
  const auto large = train(quick_training(folder_.path("large"), 48));
  ASSERT_OK(small);
  ASSERT_OK(large);
  for (const std::int64_t layer : {2, 5}) {
    EXPECT_GT(explained_keys(*small)[layer], 0.05);
    EXPECT_GT(explained_keys(*large)[layer], explained_keys(*small)[layer] + 0.1) << layer;
    EXPECT_LT(explained_keys(*large)[layer], 1.0);
  }
  const auto of_small = divergences(folder_.path("small"));
  const auto of_large = divergences(folder_.path("large"));
  EXPECT_EQ(of_small.at("drop-full"), of_large.at("drop-full"));
  EXPECT_GT(of_large.at("drop-full"), 0.0);
  EXPECT_LT(of_large.at("restore-full-aux"), of_small.at("restore-full-aux"));
  EXPECT_LT(of_large.at("restore-full-aux"), 0.5 * of_large.at("drop-full"));
}

TEST_F(TrainProjection, OneCodeIsSpentAsItServesBestAndLoadsSo) {
  std::map<std::int64_t, double> left;
  for (const std::int64_t bytes : {10, 68}) {
    const std::string out = folder_.path(std::to_string(bytes));
    ProjectionTraining training = quick_training(out, 0);
    training.code_bytes = bytes;
    const auto report = train(training);
    ASSERT_OK(report);
    ASSERT_EQ(report->choices.size(), 3U);  // bf16, int8 and e8
    for (const CodeChoice& choice : report->choices) {
      EXPECT_LE(choice.bytes, bytes);
      EXPECT_LE(choice.explained, report->chosen.explained);
    }
    const auto config = load_projection_config(out);
    ASSERT_OK(config);
    EXPECT_TRUE(config->one_code);
    EXPECT_EQ(config->rank, report->chosen.rank);
    EXPECT_EQ(config->code_format, report->chosen.format);
    const auto of_mode = divergences(out);
    left[bytes] = of_mode.at("restore-full-aux") / of_mode.at("drop-full");
  }
  EXPECT_LT(left[68], 0.5);
  EXPECT_LT(left[68], left[10]);
}

TEST_F(TrainProjection, GivesTheSameBytesForTheSameSeed) {
  ProjectionTraining training = quick_training(folder_.path("first"), 8);
  training.tokens = 800;
  ASSERT_OK(train(training));
  training.out = folder_.path("second");
  training.engine.num_threads = 1;
  ASSERT_OK(train(training));
  for (const char* file : {"model.safetensors", "f_theta_config.json"}) {
    EXPECT_EQ(read_file(folder_.path("first/") + file), read_file(folder_.path("second/") + file));
  }
  training.out = folder_.path("third");
  training.seed = 2;
  ASSERT_OK(train(training));
  EXPECT_NE(read_file(folder_.path("first/model.safetensors")),
            read_file(folder_.path("third/model.safetensors")));
}

TEST_F(TrainProjection, TakesAllFeaturesAndLayers) {
  for (const auto features : {ProjectionFeatures::kAux, ProjectionFeatures::kContext}) {
    const std::string name(projection_features_name(features));
    ProjectionTraining training = quick_training(folder_.path(name), 16);
    training.features = features;
    training.layers = FittedLayers::kAll;
    training.tokens = 800;
    const auto report = train(training);
    ASSERT_OK(report);
    ASSERT_EQ(report->layers.size(), 6U);
    for (const LayerReport& layer : report->layers) {
      EXPECT_TRUE(layer.fitted);
      // A layer's rows of one token resemble one another, whatever the text: a code of 16 elements
      // finds a part of each.
      EXPECT_GT(layer.key_validation, 0.1) << name << " " << layer.layer;
      EXPECT_GT(layer.value_validation, 0.1) << name << " " << layer.layer;
    }
    EXPECT_GT(divergences(folder_.path(name)).at("restore-full-aux"), 0.0) << "loads and runs";
  }
}

// As a build without MLX is.
TEST_F(TrainProjection, SaysThatALossWantsMlxWhereThereIsNone) {
  ProjectionTraining training = quick_training(folder_.path("out"), 8);
  training.gradient = {.loss = ProjectionLoss::kMse, .steps = 1};
  const auto refused = train(training);
  EXPECT_EQ(code_of(refused), StatusCode::kUnimplemented);
  EXPECT_NE(message_of(refused).find("`make mlx`"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.root()));
}

TEST_F(TrainProjection, LeavesNothingBehindWhereItFails) {
  ProjectionTraining training = quick_training(folder_.path("out"), 300);
  EXPECT_EQ(message_of(train(training)),
            "rank: expected 1 to 256 (768 features, 256 keys a token in these layers), got 300");
  training.rank = 200;
  training.tokens = 100;
  EXPECT_EQ(code_of(train(training)), StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.root()));
}

}  // namespace
}  // namespace kakeya::train
