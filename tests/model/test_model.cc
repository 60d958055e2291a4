#include "model/test_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "backend/mlx/mlx_backend.h"
#include "base/random.h"
#include "base/status.h"
#include "decode/pass.h"
#include "model/random_source.h"

namespace kakeya::test {
namespace {

// The weights of a folder whose configuration was read; a test failure and nullptr on an error.
template <typename Config>
std::unique_ptr<CheckpointSource> open_source(const std::string& dir,
                                              const Result<Config>& config) {
  if (!config) {
    ADD_FAILURE() << config.error().message();
    return nullptr;
  }
  auto source = CheckpointSource::open(dir, expected_tensors(*config));
  if (!source) {
    ADD_FAILURE() << source.error().message();
    return nullptr;
  }
  return std::move(source).value();
}

}  // namespace

std::vector<BackendChoice> all_backends(int num_threads) {
  std::vector<BackendChoice> choices = {{.name = "ref"}, {.name = "guarded"}};
  for (const TestUnit& unit : test_units()) {
    if (unit.run == UnitRun::kNeither) continue;
    choices.push_back({.name = "cpu/" + unit.instruction_set, .num_threads = num_threads});
  }
  if (mlx::missing().empty()) {
    choices.push_back({.name = "mlx/cpu"});
    choices.push_back({.name = std::string(kMlxKernels)});
  }
  return choices;
}

std::vector<BackendChoice> selectable_backends(int num_threads) {
  std::vector<BackendChoice> choices = all_backends(num_threads);
  std::erase_if(choices, [](const BackendChoice& choice) {
    return choice.name.find("twin") != std::string::npos || choice.name == kMlxKernels;
  });
  return choices;
}

std::vector<BackendChoice> card_backends() {
  if (std::getenv("KAKEYA_TEST_CARD") == nullptr) return {};
  return {{.name = "cuda"}};
}

std::unique_ptr<TestModel> TestModel::load(const std::string& dir,
                                           const BackendChoice& choice,
                                           Compute compute) {
  const auto config = load_model_config(dir);
  if (!config) {
    ADD_FAILURE() << config.error().message();
    return nullptr;
  }
  auto source = CheckpointSource::open(dir, *config);
  if (!source) {
    ADD_FAILURE() << source.error().message();
    return nullptr;
  }
  auto backend = create_test_backend(
      {.name = choice.name, .threads = {.num_threads = choice.num_threads, .pin = false}});
  if (!backend) {
    ADD_FAILURE() << backend.error().message();
    return nullptr;
  }
  auto model = load(*config, **source, std::move(backend).value(), compute);
  if (model) model->source_ = std::move(source).value();
  return model;
}

std::unique_ptr<TestModel> TestModel::load(const ModelConfig& config,
                                           TensorSource& source,
                                           std::unique_ptr<Backend> backend,
                                           Compute compute) {
  auto model = std::make_unique<TestModel>();
  model->compute_ = compute;
  model->backend_ = std::move(backend);
  model->workspace_ = std::make_unique<Workspace>(*model->backend_, model->budget_);
  WeightLoader loader(source, *model->backend_, model->budget_, {});
  auto decoder = load_decoder(config, loader, compute);
  if (!decoder) {
    ADD_FAILURE() << decoder.error().message();
    return nullptr;
  }
  model->decoder_ = std::move(decoder).value();
  return model;
}

std::unique_ptr<Timeline> TestModel::timeline(const SessionOptions& options,
                                              std::int64_t logit_rows,
                                              const RestoringWeights& restoring,
                                              const Comparison& comparison) {
  RestoringConfigs configs;
  if (restoring.projection != nullptr) {
    configs = {&restoring.projection->config(), &restoring.drafter->config()};
  }
  const auto plan = plan_timeline(config(), options, compute_, logit_rows, configs, comparison);
  EXPECT_TRUE(plan.has_value()) << plan.error().message();
  auto timeline = Timeline::create(*decoder_, *workspace_, *plan, budget_, restoring);
  EXPECT_TRUE(timeline.has_value()) << timeline.error().message();
  return std::move(timeline).value();
}

std::unique_ptr<dflash::Drafter> TestModel::load_drafter(const DrafterConfig& config,
                                                         TensorSource& source) {
  WeightLoader loader(source, *backend_, budget_, {});
  auto drafter = dflash::Drafter::load(config, *decoder_, loader, compute_);
  if (!drafter) {
    ADD_FAILURE() << drafter.error().message();
    return nullptr;
  }
  return std::move(drafter).value();
}

std::unique_ptr<dflash::Drafter> TestModel::drafter(
    const std::string& dir, const std::function<void(DrafterConfig&)>& change) {
  auto config = load_drafter_config(dir);
  auto source = open_source(dir, config);
  if (source == nullptr) return nullptr;
  if (change) change(*config);
  drafter_sources_.push_back(std::move(source));
  return load_drafter(*config, *drafter_sources_.back());
}

std::unique_ptr<dflash::Drafter> TestModel::random_drafter(const DrafterConfig& config,
                                                           std::uint64_t seed) {
  ThreadPool pool({.num_threads = 1, .pin = false});
  RandomSource source(expected_tensors(config), seed, pool);
  return load_drafter(config, source);
}

std::unique_ptr<Projection> TestModel::projection(const std::string& dir) {
  const auto config = load_projection_config(dir);
  const auto source = open_source(dir, config);
  if (source == nullptr) return nullptr;
  WeightLoader loader(*source, *backend_, budget_, {});
  auto projection = Projection::load(*config, loader, compute_);
  if (!projection) {
    ADD_FAILURE() << projection.error().message();
    return nullptr;
  }
  return std::move(projection).value();
}

std::unique_ptr<DflashSource> TestModel::dflash_source(const dflash::Drafter& drafter,
                                                       const SessionOptions& options,
                                                       const Projection* projection) {
  RestoringConfigs configs;
  if (projection != nullptr) configs = {&projection->config(), &drafter.config()};
  const auto target =
      plan_timeline(config(), options, compute_, drafter.config().block_size, configs);
  EXPECT_TRUE(target.has_value()) << target.error().message();
  const DflashPlan plan = plan_dflash(drafter.config(), *target);
  auto source = DflashSource::create(drafter, *workspace_, plan, budget_);
  EXPECT_TRUE(source.has_value()) << source.error().message();
  return std::move(source).value();
}

std::vector<TokenId> random_ids(std::size_t count, std::uint64_t seed) {
  SequenceRng random(seed);
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = static_cast<TokenId>(random.below(4096));
  return ids;
}

Result<HostRows> run_drafts(Timeline& timeline, std::span<const TokenId> drafts) {
  Pass pass(timeline.workspace());
  KAKEYA_TRY(pass.add(timeline, timeline.pending(), drafts, std::ssize(drafts) + 1));
  KAKEYA_TRY(pass.run());
  return pass.host_logits(0);
}

std::vector<float> draft_at_random(Timeline& timeline,
                                   std::vector<TokenId>& tokens,
                                   std::size_t until,
                                   std::uint64_t most_drafts) {
  const std::int64_t vocab = timeline.decoder().config().vocab_size;
  const auto expect_ok = [](const Status& status) {
    EXPECT_TRUE(status.has_value()) << status.error().message();
  };
  SequenceRng random(7);
  expect_ok(timeline.push(tokens));
  expect_ok(timeline.run_pending());
  const auto next = static_cast<TokenId>(random.below(4096));
  expect_ok(timeline.push({&next, 1}));
  tokens.push_back(next);
  std::vector<float> last;
  while (tokens.size() < until) {
    const std::vector<TokenId> drafts = random_ids(random.below(most_drafts), tokens.size());
    const auto rows = run_drafts(timeline, drafts);
    if (!rows) {
      ADD_FAILURE() << rows.error().message();
      return last;
    }
    const auto accepted = static_cast<std::int64_t>(random.below(drafts.size() + 1));
    last.assign(rows->data + accepted * vocab, rows->data + (accepted + 1) * vocab);
    for (std::int64_t i = 0; i <= accepted; ++i) {
      const TokenId id = i < accepted ? drafts[static_cast<std::size_t>(i)]
                                      : static_cast<TokenId>(random.below(4096));
      timeline.accept({&id, 1});
      tokens.push_back(id);
    }
  }
  return last;
}

ForwardRecord run(Timeline& timeline,
                  std::span<const TokenId> ids,
                  std::span<const std::int64_t> taps,
                  std::int64_t chunk) {
  const ModelConfig& config = timeline.decoder().config();
  const auto tap_width = static_cast<std::int64_t>(taps.size()) * config.hidden_size;
  ForwardRecord record;
  record.logits.resize(ids.size() * static_cast<std::size_t>(config.vocab_size));
  record.taps.resize(ids.size() * static_cast<std::size_t>(tap_width));
  for (std::size_t begin = 0; begin < ids.size(); begin += static_cast<std::size_t>(chunk)) {
    const auto rows =
        static_cast<std::int64_t>(std::min(ids.size() - begin, static_cast<std::size_t>(chunk)));
    const auto first = static_cast<std::int64_t>(begin);
    const HostOutput output{
        .logits = {record.logits.data() + first * config.vocab_size, rows, config.vocab_size},
        .tap_points = taps,
        .taps = {record.taps.data() + first * tap_width, rows, tap_width}};
    const Status done =
        timeline.forward(ids.subspan(begin, static_cast<std::size_t>(rows)), output);
    EXPECT_TRUE(done.has_value()) << done.error().message();
  }
  return record;
}

std::vector<float> golden_floats(const SafetensorsFile& file, const std::string& name) {
  const TensorView* view = file.find(name);
  EXPECT_NE(view, nullptr) << name;
  return to_f32(*view).value();
}

std::vector<TokenId> golden_ids(const SafetensorsFile& file, const std::string& name) {
  const TensorView* view = file.find(name);
  EXPECT_NE(view, nullptr) << name;
  EXPECT_EQ(view->dtype, DType::kI32);
  std::vector<TokenId> ids(static_cast<std::size_t>(num_elements(view->shape)));
  std::memcpy(ids.data(), view->data, ids.size() * sizeof(TokenId));
  return ids;
}

float max_abs_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0.0F;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // keeps NaN
  }
  return largest;
}

double root_mean_square(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

std::vector<float> logits_behind(Timeline& timeline, std::int64_t chunk) {
  std::vector<float> logits;
  const auto look = [&](Position, std::span<const float> row) -> Status {
    logits.assign(row.begin(), row.end());
    return {};
  };
  Status ran = timeline.run_until(static_cast<Position>(timeline.tokens().size()) - 1, chunk);
  if (ran) ran = timeline.run_with_rows(RowKind::kLogits, look);
  EXPECT_TRUE(ran.has_value()) << ran.error().message();
  EXPECT_FALSE(logits.empty());
  return logits;
}

}  // namespace kakeya::test
