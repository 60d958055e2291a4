// Projections trained by gradient in seconds: what they are trained on falls, they load, are the
// same again, and keep no more rows than they may.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "captured_arrays.h"
#include "cli/program.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"
#include "projection_moments.h"
#include "projection_writer.h"
#include "train/random_rows.h"
#include "train_projection.h"

namespace kakeya::train {
namespace {

ProjectionTraining quick_training(const std::string& out, ProjectionLoss loss) {
  return {.engine = {.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2, .pin_threads = false},
          .rank = 8,
          .tokens = 1500,
          .ridge = 1e-3,  // of so few tokens
          .gradient = {.loss = loss, .steps = 30},
          .seed = 1,
          .out = out};
}

Result<ProjectionReport> train(const ProjectionTraining& training) {
  return train_projection(
      training, [](const EngineImpl&, const ProjectionReport&) { return std::string("{}\n"); },
      projection_refiner());
}

class MlxProjectionTraining : public testing::Test {
 protected:
  const ScratchFolder folder_;
};

TEST_F(MlxProjectionTraining, MakesEveryLossFallOnTextThatItIsNotTrainedOn) {
  const auto engine =
      EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2, .pin_threads = false});
  ASSERT_OK(engine);
  for (const auto& [name, loss] : kProjectionLosses) {
    if (loss == ProjectionLoss::kClosed) continue;
    ProjectionTraining training = quick_training(folder_.path(std::string(name)), loss);
    training.gradient.init = ProjectionInit::kRandom;
    const auto report = train(training);
    ASSERT_OK(report);
    EXPECT_EQ(report->steps, 30);
    ASSERT_EQ(report->losses.size(), 31U) << "with what it was before";
    const RefinementPoint& before = report->losses.front();
    const RefinementPoint& after = report->losses.back();
    EXPECT_FALSE(before.loss.has_value());
    EXPECT_LT(after.validation_loss, 0.8 * before.validation_loss) << name;
    // The projection that is written is the one that was measured last.
    double keys = 0.0;
    for (const std::size_t layer : {2U, 5U}) keys += 0.5 * report->layers[layer].key_validation;
    EXPECT_NEAR(keys, after.explained_keys, 1e-9) << name;
    ASSERT_OK((*engine)->load_projection(training.out)) << name;
  }
}

// The encoder that keys and values share goes on from the fit, and the folder loads.
TEST_F(MlxProjectionTraining, MakesOneCodeBetterForWhatAttentionGives) {
  ProjectionTraining training = quick_training(folder_.path("codes"), ProjectionLoss::kAttnDistill);
  training.code_bytes = 20;
  const auto report = train(training);
  ASSERT_OK(report);
  EXPECT_LT(report->losses.back().validation_loss, 0.98 * report->losses.front().validation_loss);
  const auto engine =
      EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2, .pin_threads = false});
  ASSERT_OK(engine);
  const auto projection = (*engine)->load_projection(training.out);
  ASSERT_OK(projection);
  EXPECT_TRUE((*projection)->config().one_code);
  training.gradient.init = ProjectionInit::kRandom;
  EXPECT_EQ(code_of(train(training)), StatusCode::kInvalidArgument);
}

// The fit in closed form leaves least of what relmse measures: steps have nothing to find, and of
// another loss they find something.
TEST_F(MlxProjectionTraining, BeginsWithTheFitInClosedForm) {
  const auto fallen = [&](const std::string& name, ProjectionLoss loss) {
    ProjectionTraining training = quick_training(folder_.path(name), loss);
    training.gradient.steps = 40;
    const auto report = train(training);
    EXPECT_TRUE(report.has_value());
    return report->losses.back().validation_loss / report->losses.front().validation_loss;
  };
  EXPECT_NEAR(fallen("relmse", ProjectionLoss::kRelmse), 1.0, 0.01);
  EXPECT_LT(fallen("cos_mag", ProjectionLoss::kCosMag), 0.95);
}

TEST_F(MlxProjectionTraining, GivesTheSameBytesForTheSameSeed) {
  ProjectionTraining training = quick_training(folder_.path("first"), ProjectionLoss::kCombined);
  training.gradient.steps = 5;
  ASSERT_OK(train(training));
  training.out = folder_.path("second");
  ASSERT_OK(train(training));
  const auto weights = [&](const char* name) {
    return read_file(folder_.path(name) + "/model.safetensors");
  };
  EXPECT_TRUE(weights("first") == weights("second"));
  training.out = folder_.path("longer");
  training.gradient.steps = 6;
  ASSERT_OK(train(training));
  EXPECT_FALSE(weights("first") == weights("longer"));
}

// Ended between two steps, as a kill would: the program's memory is gone, the checkpoint is there.
TEST_F(MlxProjectionTraining, GoesOnFromACheckpointWithTheSameBits) {
  ProjectionTraining training = quick_training(folder_.path("whole"), ProjectionLoss::kCombined);
  training.gradient.steps = 50;  // two to a point
  const auto whole = train(training);
  ASSERT_OK(whole);

  training.out = folder_.path("resumed");
  training.gradient.checkpoint = folder_.path("checkpoint.safetensors");
  training.gradient.save_minutes = 0.0;
  struct Killed {};
  training.progress = [](std::string_view stage, std::int64_t done, std::int64_t) {
    if (stage == "steps" && done == 7) throw Killed();
  };
  EXPECT_THROW(train(training), Killed);
  EXPECT_FALSE(std::filesystem::exists(training.out));
  std::vector<std::int64_t> steps;
  training.progress = [&](std::string_view stage, std::int64_t done, std::int64_t) {
    if (stage == "steps") steps.push_back(done);
  };
  ProjectionTraining other = training;
  const auto resumed = train(training);
  ASSERT_OK(resumed);
  EXPECT_EQ(steps.front(), 8);
  EXPECT_EQ(steps.back(), 50);
  EXPECT_TRUE(read_file(folder_.path("whole/model.safetensors")) ==
              read_file(folder_.path("resumed/model.safetensors")));
  ASSERT_EQ(resumed->losses.size(), whole->losses.size());
  for (std::size_t i = 0; i < whole->losses.size(); ++i) {
    EXPECT_EQ(resumed->losses[i].step, whole->losses[i].step);
    EXPECT_EQ(resumed->losses[i].loss, whole->losses[i].loss);
    EXPECT_EQ(resumed->losses[i].validation_loss, whole->losses[i].validation_loss);
    EXPECT_EQ(resumed->losses[i].explained_keys, whole->losses[i].explained_keys);
  }

  other.out = folder_.path("other");
  other.gradient.steps = 40;
  EXPECT_NE(message_of(train(other)).find("got steps 50 there and 40 here"), std::string::npos);
  other.gradient.steps = 50;
  other.gradient.loss = ProjectionLoss::kMse;
  EXPECT_EQ(code_of(train(other)), StatusCode::kFailedPrecondition);
  other.gradient.checkpoint = folder_.path("none/checkpoint.safetensors");
  EXPECT_EQ(code_of(train(other)), StatusCode::kUnavailable);
}

// Captured attention with the model's own keys and values gives the outputs that were captured: the
// demo's full layers, whose values are keys, and its sliding ones, in a text longer than their
// window. 1e-8 of the outputs' squares: 1e-4 of the outputs, as bf16 products round otherwise.
TEST_F(MlxProjectionTraining, AttendsAsTheModelDoes) {
  RecordedRows recorded;
  recorded.wants_attention = true;
  const auto engine = EngineImpl::open(
      {.model_dir = KAKEYA_DEMO_MODEL,
       .compute = Compute::kF32,
       .num_threads = 2,
       .pin_threads = false},
      [&](auto inner) { return std::make_unique<RecordingBackend>(std::move(inner), recorded); });
  ASSERT_OK(engine);
  const ModelConfig& target = (*engine)->config();
  const ProjectionConfig config =
      make_projection_config(target, (*engine)->drafter()->config(), ProjectionFeatures::kAux, 1);
  const std::string folder = folder_.path("projection");
  std::filesystem::create_directory(folder);
  ASSERT_OK(write_projection(folder, config, {}, zero_weights(config)));
  const auto projection = (*engine)->load_projection(folder);
  ASSERT_OK(projection);
  constexpr int kTokens = 200;
  std::vector<TokenId> ids;
  for (int i = 0; i < kTokens; ++i) ids.push_back(static_cast<TokenId>(i * 37 % 500));
  ThreadPool pool({.num_threads = 1, .pin = false});
  ProjectionMoments moments(target, config);
  const std::vector<std::vector<TokenId>> documents = {ids};
  ASSERT_OK(add_documents(**engine, **projection, recorded, documents, {}, pool, moments));
  CapturePlan plan = make_capture_plan(target, config, moments.layers());
  plan.has_attention = true;
  const CapturedDocument document = capture(plan, recorded);
  const auto parts = read_attention_parts(plan, KAKEYA_DEMO_MODEL, target, recorded);
  ASSERT_OK(parts);
  const auto attention = make_layer_attention(plan, document, *parts);
  ASSERT_EQ(attention.size(), 6U);
  for (std::size_t l = 0; l < attention.size(); ++l) {
    const CapturePlan::Layer& layer = plan.layers[l];
    EXPECT_LT(layer.window, kTokens) << "or the text is too short";
    const auto heads = [&](const std::vector<float>& rows) {
      return mx::array(rows.data(),
                       mx::Shape{kTokens, to_int(layer.num_kv_heads), to_int(layer.head_dim)});
    };
    const mx::array keys = heads(document.keys[l]);
    const mx::array values = layer.values_are_keys ? keys : heads(document.values[l]);
    const LayerRows rows{.made_keys = keys, .keys = keys, .made_values = values, .values = values};
    const double loss = attn_distill_loss({&rows, 1}, {&attention[l], 1}).item<float>();
    const double squares = mx::mean(attention[l].outputs * attention[l].outputs).item<float>();
    EXPECT_LT(loss, 1e-8 * squares) << l;
  }
}

// Rows of the demo model: 768 features, 128 keys in each of two layers, whose values are keys.
TEST_F(MlxProjectionTraining, KeepsNoMoreRowsThanItMay) {
  ProjectionTraining training = quick_training(folder_.path("out"), ProjectionLoss::kMse);
  training.gradient.steps = 1;
  training.gradient.rows = GradientTraining::kLeastRows;
  const auto report = train(training);
  ASSERT_OK(report);
  EXPECT_GT(report->training_tokens, 1000);
  EXPECT_GT(report->captured_training, 300);
  EXPECT_LE(report->captured_training, 512);
  EXPECT_LE(report->captured_validation, 512);
  EXPECT_EQ(report->captured_bytes, 4U * (768 + 2 * 128) *
                                        static_cast<std::uint64_t>(report->captured_training +
                                                                   report->captured_validation));
}

// Rows that are made of 6 features through a code of 3 elements, which steps find again.
struct KnownMap {
  static constexpr std::int64_t kRows = 50;
  CapturePlan plan{.num_features = 6,
                   .features_are_shared = true,
                   .layers = {{.num_kv_heads = 2, .head_dim = 4, .values_are_keys = true}}};
  std::vector<CapturedDocument> documents;
  ProjectionMatrices start;

  KnownMap() {
    const Eigen::MatrixXd features = matrix_of(random_rows(kRows, 6, 1), 6);
    const Eigen::MatrixXd map =
        matrix_of(random_rows(6, 3, 2), 3) * matrix_of(random_rows(3, 8, 3), 8);
    documents.push_back({.count = kRows,
                         .key_features = rows_of(features),
                         .value_features = {},
                         .keys = {rows_of(features * map)},
                         .values = {{}}});
    start = {{.name = "encoder_k", .shape = {3, 6}, .values = random_rows(3, 6, 4)},
             {.name = "encoder_v", .shape = {3, 6}, .values = random_rows(3, 6, 5)},
             {.name = "decoder_k", .shape = {8, 3}, .values = random_rows(8, 3, 6)},
             {.name = "decoder_v", .shape = {8, 3}, .values = random_rows(8, 3, 7)}};
  }
  RefinementTask task(std::int64_t steps) const {
    return {.plan = plan,
            .first_row = 2,
            .training = documents,
            .validation = documents,
            .rate = 0.03,
            .steps = steps};
  }
};

TEST(MlxProjectionRefiner, FindsAMapThatIsKnown) {
  const KnownMap known;
  RefinementTask task = known.task(600);
  std::vector<double> losses;
  task.on_point = [&](const RefinementPoint& point, std::int64_t steps, const ProjectionMatrices&) {
    EXPECT_EQ(steps, 600);
    losses.push_back(point.validation_loss);
    return Status();
  };
  ASSERT_OK(projection_refiner()(task, known.start));
  EXPECT_LT(losses.back(), 1e-3 * losses.front());
}

// Rows before the first one are not looked at; one that is, and is not finite, is refused.
TEST(MlxProjectionRefiner, RefusesALossThatIsNotFinite) {
  KnownMap known;
  known.documents[0].keys[0][0] = INFINITY;
  ASSERT_OK(projection_refiner()(known.task(3), known.start));
  known.documents[0].keys[0][2 * 8] = INFINITY;
  const auto refused = projection_refiner()(known.task(3), known.start);
  EXPECT_EQ(code_of(refused), StatusCode::kDataLoss);
  EXPECT_NE(message_of(refused).find("step 1: expected a finite loss"), std::string::npos);
}

class MlxProjectionCli : public test::Cli {};

TEST_F(MlxProjectionCli, SaysHowALossFellAndRefusesInOneLine) {
  const std::string command =
      "projection " + test::kDemoFlag + "--tokens 800 --rank 4 --ridge 1e-3 --out " + folder_;
  const test::Outcome outcome = kakeya(command + "/mine --loss cos_mag --steps 2 --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("step 2 of 2: loss 0."), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("are kept to train on"), std::string::npos) << outcome.err;
  const auto json = nlohmann::json::parse(test::slurp(folder_ + "/mine/training.json"));
  EXPECT_EQ(json["options"]["loss"], "cos_mag");
  EXPECT_EQ(json["options"]["init"], "closed");
  EXPECT_EQ(json["options"]["learning_rate"], 0.003);
  EXPECT_EQ(json["steps"], 2);
  EXPECT_GT(json["kept_rows"]["bytes"].get<int>(), 0);
  ASSERT_EQ(json["losses"].size(), 3U);
  EXPECT_TRUE(json["losses"][0]["loss"].is_null());
  EXPECT_GT(json["losses"][2]["loss"].get<double>(), 0.0);
  EXPECT_GT(json["losses"][2]["explained_keys"].get<double>(), 0.0);
  expect_refusal(command + "/new --loss mse", "minutes up to 100,000 or steps");
  expect_refusal(command + "/new --loss mse --steps -1", "minutes up to 100,000 or steps");
  expect_refusal(command + "/new --loss mse --steps 1 --minutes 1", "--minutes");
  expect_refusal(command + "/new --loss mse --steps 1 --learning-rate 2",
                 "learning-rate: expected above 0 and at most 1, got 2");
  expect_refusal(command + "/new --loss mse --steps 1 --rows 511", "rows: expected 512 to");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new"));
}

}  // namespace
}  // namespace kakeya::train
