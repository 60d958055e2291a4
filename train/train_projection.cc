#include "train_projection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "base/atomic_folder.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/status.h"
#include "calibrate/text_windows.h"
#include "projection_moments.h"
#include "projection_writer.h"
#include "reduced_rank.h"

namespace kakeya::train {
namespace {

// Of little text, documents are short, so that there are some to hold back.
constexpr std::int64_t kLeastDocuments = 20;
constexpr std::int64_t kLeastWindow = 32;

constexpr std::array kSides = {Side::kKeys, Side::kValues};

bool is_wanted(FittedLayers layers, const ModelConfig& target, std::int64_t layer) {
  if (layers == FittedLayers::kAll) return true;
  return target.is_sliding(layer) == (layers == FittedLayers::kSliding);
}

std::uint64_t hash_of(std::span<const std::vector<TokenId>> documents) {
  std::uint64_t hash = 0;
  for (const auto& ids : documents) hash = checksum(std::as_bytes(std::span(ids)), hash);
  return hash;
}

// Everything of one training, stage after stage.
class Training {
 public:
  Training(const ProjectionTraining& options, AtomicFolder& folder)
      : options_(options),
        folder_(folder),
        pool_({.num_threads = options.engine.num_threads, .pin = false}) {}

  Status open();
  Status take_text();
  Status run_passes();
  Status fit();
  Status write(const DescribeTraining& describe);
  ProjectionReport report() && { return std::move(report_); }

 private:
  const ModelConfig& target() const { return engine_->config(); }
  Status check_rank() const;
  TextProgress progress(std::string_view stage) const;
  // For each target of a side's moments, whether codes are made for it.
  std::vector<bool> fitted_targets(const ProjectionMoments& moments, Side side) const;
  std::vector<std::int64_t> fitted_layers() const;
  void describe_layers();

  const ProjectionTraining& options_;
  AtomicFolder& folder_;
  ThreadPool pool_;
  RecordedRows recorded_;
  std::unique_ptr<EngineImpl> engine_;
  ProjectionConfig config_;
  TrainingText text_;
  std::optional<ProjectionMoments> training_;
  std::optional<ProjectionMoments> validation_;
  std::vector<ReducedRankFit> fits_;  // of keys, of values
  ProjectionReport report_;
};

TextProgress Training::progress(std::string_view stage) const {
  if (!options_.progress) return {};
  return [this, stage](std::int64_t done, std::int64_t total) {
    options_.progress(stage, done, total);
  };
}

std::vector<std::int64_t> Training::fitted_layers() const {
  std::vector<std::int64_t> layers;
  for (std::int64_t l = 0; l < target().num_hidden_layers; ++l) {
    if (target().owns_kv(l) && is_wanted(options_.layers, target(), l)) layers.push_back(l);
  }
  return layers;
}

Status Training::check_rank() const {
  std::vector<std::int64_t> widths;
  for (const std::int64_t l : fitted_layers()) widths.push_back(config_.layer_width(l));
  if (widths.empty()) {
    return invalid_argument("layers: expected some that {} has, got {}", options_.engine.model_dir,
                            fitted_layers_name(options_.layers));
  }
  const std::int64_t most =
      std::min(most_rank(config_.input_width(), widths, {}), ProjectionConfig::kMaxRank);
  if (options_.rank < 1 || options_.rank > most) {
    return invalid_argument(
        "rank: expected 1 to {} ({} features, {} keys a token in these layers), got {}", most,
        config_.input_width(), std::accumulate(widths.begin(), widths.end(), std::int64_t{0}),
        options_.rank);
  }
  return {};
}

Status Training::open() {
  KAKEYA_ASSIGN_OR_RETURN(engine_,
                          EngineImpl::open(options_.engine, [this](std::unique_ptr<Backend> inner) {
                            return std::make_unique<RecordingBackend>(std::move(inner), recorded_);
                          }));
  if (engine_->drafter() == nullptr) {
    return error(StatusCode::kFailedPrecondition,
                 "{}: expected a model with a drafter, of which {} features are made, got none "
                 "(--draft names its folder)",
                 options_.engine.model_dir, projection_features_name(options_.features));
  }
  const DrafterConfig& drafter = engine_->drafter()->config();
  config_ = make_projection_config(target(), drafter, options_.features, options_.rank);
  return check_rank();
}

Status Training::take_text() {
  const Stopwatch clock;
  const std::int64_t window =
      std::clamp(options_.tokens / kLeastDocuments, kLeastWindow, kTextWindow);
  const TextOptions options = {.tokens = options_.tokens,
                               .window = std::min(window, engine_->max_context()),
                               .seed = options_.seed,
                               .progress = progress("text")};
  if (options_.texts.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(text_, sample_own_text(*engine_, options));
  } else {
    KAKEYA_ASSIGN_OR_RETURN(text_, read_training_files(*engine_, options_.texts, options));
  }
  report_.training_documents = std::ssize(text_.training);
  report_.training_tokens = count_tokens(text_.training);
  report_.validation_documents = std::ssize(text_.validation);
  report_.validation_tokens = count_tokens(text_.validation);
  report_.training_hash = hash_of(text_.training);
  report_.validation_hash = hash_of(text_.validation);
  report_.text_seconds = clock.seconds();
  return {};
}

Status Training::run_passes() {
  const Stopwatch clock;
  // Features are those that a projection is given; this one makes nothing of them.
  ProjectionConfig stand_in = config_;
  stand_in.rank = 1;
  KAKEYA_TRY(write_projection(folder_.path(), stand_in, {}, zero_weights(stand_in)));
  KAKEYA_ASSIGN_OR_RETURN(const auto projection, engine_->load_projection(folder_.path()));
  training_.emplace(target(), config_);
  validation_.emplace(target(), config_);
  KAKEYA_TRY(add_documents(*engine_, *projection, recorded_, text_.training, progress("passes"),
                           pool_, *training_));
  KAKEYA_TRY(add_documents(*engine_, *projection, recorded_, text_.validation,
                           progress("validation"), pool_, *validation_));
  report_.pass_seconds = clock.seconds();
  const std::int64_t rows = training_->of(Side::kKeys).rows();
  if (rows < options_.rank || validation_->of(Side::kKeys).rows() == 0) {
    return invalid_argument(
        "expected text of {} tokens at least for this rank and some for validation, got {} and {} "
        "behind the first {} of each document (--tokens, --texts)",
        options_.rank, rows, validation_->of(Side::kKeys).rows(), kSink);
  }
  return {};
}

std::vector<bool> Training::fitted_targets(const ProjectionMoments& moments, Side side) const {
  std::vector<bool> fitted(moments.of(side).num_targets(), false);
  for (std::size_t i = 0; i < moments.layers().size(); ++i) {
    if (is_wanted(options_.layers, target(), moments.layers()[i])) {
      fitted[moments.target(side, i)] = true;
    }
  }
  return fitted;
}

Status Training::fit() {
  const Stopwatch clock;
  if (!validation_->of(Side::kKeys).finite() || !validation_->of(Side::kValues).finite()) {
    return data_loss("{}: expected finite features, keys and values, got others on validation text",
                     options_.engine.model_dir);
  }
  for (const Side side : kSides) {
    if (options_.progress) options_.progress("fit", std::ssize(fits_), std::ssize(kSides));
    KAKEYA_ASSIGN_OR_RETURN(
        ReducedRankFit fit,
        fit_reduced_rank(training_->of(side), {.rank = options_.rank,
                                               .ridge = options_.ridge,
                                               .fitted = fitted_targets(*training_, side)}));
    fits_.push_back(std::move(fit));
  }
  describe_layers();
  report_.fit_seconds = clock.seconds();
  return {};
}

void Training::describe_layers() {
  for (std::size_t i = 0; i < training_->layers().size(); ++i) {
    const std::int64_t l = training_->layers()[i];
    const auto explained = [&](const ProjectionMoments& moments, Side side) {
      return explained_energy(moments.of(side), fits_[static_cast<std::size_t>(side)],
                              moments.target(side, i));
    };
    report_.layers.push_back({.layer = l,
                              .fitted = is_wanted(options_.layers, target(), l),
                              .key_training = explained(*training_, Side::kKeys),
                              .key_validation = explained(*validation_, Side::kKeys),
                              .value_training = explained(*training_, Side::kValues),
                              .value_validation = explained(*validation_, Side::kValues)});
  }
}

std::vector<float> row_major(const Eigen::MatrixXd& matrix) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(matrix.size()));
  for (Eigen::Index row = 0; row < matrix.rows(); ++row) {
    for (Eigen::Index column = 0; column < matrix.cols(); ++column) {
      values.push_back(static_cast<float>(matrix(row, column)));
    }
  }
  return values;
}

Status Training::write(const DescribeTraining& describe) {
  // Layers that read another's rows have no decoder that is used: theirs stay zero.
  ProjectionWeights weights = zero_weights(config_);
  std::size_t first = 0;
  for (const Side side : kSides) {
    const ReducedRankFit& fit = fits_[static_cast<std::size_t>(side)];
    weights[first] = row_major(fit.encoder);
    for (std::size_t i = 0; i < training_->layers().size(); ++i) {
      weights[first + 1 + static_cast<std::size_t>(training_->layers()[i])] =
          row_major(fit.decoders[training_->target(side, i)]);
    }
    first += 1 + static_cast<std::size_t>(config_.num_layers());
  }
  for (const std::vector<float>& matrix : weights) {
    if (!std::ranges::all_of(matrix, [](float value) { return std::isfinite(value); })) {
      return data_loss("expected finite weights, got others: try a larger ridge than {}",
                       options_.ridge);
    }
  }
  KAKEYA_TRY(write_projection(folder_.path(), config_, fitted_layers(), weights));
  KAKEYA_TRY(write_file(folder_.path() + "/training.json", describe(*engine_, report_)));
  return folder_.commit();
}

Status check_training(const ProjectionTraining& training) {
  if (training.tokens < 1 || training.tokens > ProjectionTraining::kMostTokens) {
    return invalid_argument("tokens: expected 1 to {}, got {}", ProjectionTraining::kMostTokens,
                            training.tokens);
  }
  if (!(training.ridge >= 0.0) || !std::isfinite(training.ridge)) {
    return invalid_argument("ridge: expected 0 or more, got {}", training.ridge);
  }
  return {};
}

}  // namespace

std::string_view fitted_layers_name(FittedLayers layers) {
  if (layers == FittedLayers::kFull) return "full";
  return layers == FittedLayers::kSliding ? "sliding" : "all";
}

Result<ProjectionReport> train_projection(const ProjectionTraining& training,
                                          const DescribeTraining& describe) {
  KAKEYA_TRY(check_training(training));
  KAKEYA_ASSIGN_OR_RETURN(AtomicFolder folder,
                          AtomicFolder::create(training.out, AtomicFolder::Existing::kRefuse));
  Training run(training, folder);
  KAKEYA_TRY(run.open());
  KAKEYA_TRY(run.take_text());
  KAKEYA_TRY(run.run_passes());
  KAKEYA_TRY(run.fit());
  KAKEYA_TRY(run.write(describe));
  return std::move(run).report();
}

}  // namespace kakeya::train
