#include "train_projection.h"

#include <fmt/format.h>

#include <algorithm>
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
#include "convert/text_windows.h"
#include "projection_matrices.h"
#include "projection_moments.h"
#include "projection_writer.h"
#include "reduced_rank.h"

namespace kakeya::train {
namespace {

// Documents of little text are short, so that there are some to hold back.
constexpr std::int64_t kLeastDocuments = 20;
constexpr std::int64_t kLeastWindow = 32;

// One row is kept for the loss on validation text for so many that are kept for steps.
constexpr std::int64_t kHeldOutRows = 10;

std::int64_t most_kept(const GradientTraining& gradient) {
  return gradient.rows == 0 ? GradientTraining::kDefaultRows : gradient.rows;
}

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
  // Fits one code for keys and values.
  Status fit_one_code();
  void choose_code(ReducedRankFit& fit);
  Status refine(const RefineProjection& refine);
  void describe_layers();
  Status write(const DescribeTraining& describe);
  ProjectionReport report() && { return std::move(report_); }

 private:
  const ModelConfig& target() const { return engine_->config(); }
  Status check_rank() const;
  std::vector<std::int64_t> fitted_widths() const;
  // The most elements that a code can have for these layers.
  std::int64_t largest_rank() const;
  TextProgress progress(std::string_view stage) const;
  // For each target of a side's moments, whether codes are made for it.
  std::vector<bool> fitted_targets(const ProjectionMoments& moments, Side side) const;
  std::vector<std::int64_t> fitted_layers() const;
  ReducedRankOptions fit_options(Side side) const;
  // The options of one code: keys and values are targets of the same moments.
  ReducedRankOptions one_code_options() const;
  Status check_moments(const ProjectionMoments& moments, std::string_view text) const;
  // For add_documents(): takes down the rows of documents that are chosen, where steps want them.
  OnDocument capture_from(const std::vector<std::vector<TokenId>>& documents,
                          std::int64_t most_rows,
                          std::vector<CapturedDocument>& captured);
  // The settings that a checkpoint of the steps depends on.
  nlohmann::ordered_json settings() const;
  Status take_point(RefinementPoint& point, std::int64_t steps, const ProjectionMatrices& matrices);
  double explained(const ProjectionMoments& moments, Side side, std::size_t index) const;
  bool has_one_code() const { return options_.code_bytes > 0; }
  bool has_steps() const { return options_.gradient.loss != ProjectionLoss::kClosed; }

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
  CapturePlan plan_;
  std::vector<CapturedDocument> captured_training_;
  std::vector<CapturedDocument> captured_validation_;
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
  const std::vector<std::int64_t> widths = fitted_widths();
  if (widths.empty()) {
    return invalid_argument("layers: expected some that {} has, got {}", options_.engine.model_dir,
                            fitted_layers_name(options_.layers));
  }
  const std::int64_t most = largest_rank();
  if (config_.rank < 1 || config_.rank > most) {
    return invalid_argument(
        "rank: expected 1 to {} ({} features, {} keys a token in these layers), got {}", most,
        config_.input_width(), std::accumulate(widths.begin(), widths.end(), std::int64_t{0}),
        config_.rank);
  }
  return {};
}

std::vector<std::int64_t> Training::fitted_widths() const {
  std::vector<std::int64_t> widths;
  for (const std::int64_t l : fitted_layers()) widths.push_back(config_.layer_width(l));
  return widths;
}

std::int64_t Training::largest_rank() const {
  return std::min(most_rank(config_.input_width(), fitted_widths(), {}),
                  ProjectionConfig::kMaxRank);
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
  config_ = make_projection_config(target(), drafter, options_.features,
                                   has_one_code() ? 0 : options_.rank);
  plan_ = make_capture_plan(target(), config_, fitted_layers());
  plan_.has_attention = sees_attention(options_.gradient.loss);
  recorded_.wants_attention = plan_.has_attention;
  if (has_one_code()) {
    report_.choices = code_choices(options_.code_bytes, largest_rank());
    if (report_.choices.empty() && largest_rank() > 0) {
      return invalid_argument("bytes: expected 2 or more, got {}", options_.code_bytes);
    }
    // Fits of smaller ranks are the beginning of a larger one's.
    for (const CodeChoice& choice : report_.choices) {
      config_.rank = std::max(config_.rank, choice.rank);
    }
  }
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

OnDocument Training::capture_from(const std::vector<std::vector<TokenId>>& documents,
                                  std::int64_t most_rows,
                                  std::vector<CapturedDocument>& captured) {
  const bool chooses_code = has_one_code() && &captured == &captured_validation_;
  if (!has_steps() && !chooses_code) return {};
  return [this, &captured,
          chosen = choose_documents(documents, most_rows, options_.seed)](std::size_t number) {
    if (!chosen[number] || std::ssize(recorded_.key_features) <= kSink * plan_.num_features) return;
    captured.push_back(capture(plan_, recorded_));
  };
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
  const std::int64_t most = most_kept(options_.gradient);
  KAKEYA_TRY(add_documents(*engine_, *projection, recorded_, text_.training, progress("passes"),
                           pool_, *training_,
                           capture_from(text_.training, most, captured_training_)));
  const std::int64_t most_held_out =
      has_one_code() ? ProjectionTraining::kChoiceRows
                     : std::max(most / kHeldOutRows, GradientTraining::kLeastRows);
  KAKEYA_TRY(add_documents(*engine_, *projection, recorded_, text_.validation,
                           progress("validation"), pool_, *validation_,
                           capture_from(text_.validation, most_held_out, captured_validation_)));
  report_.pass_seconds = clock.seconds();
  const std::int64_t rows = training_->of(Side::kKeys).rows();
  if (rows < config_.rank || validation_->of(Side::kKeys).rows() == 0) {
    return invalid_argument(
        "expected text of {} tokens at least for this rank and some for validation, got {} and {} "
        "behind the first {} of each document (--tokens, --texts)",
        config_.rank, rows, validation_->of(Side::kKeys).rows(), kSink);
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

ReducedRankOptions Training::fit_options(Side side) const {
  return {
      .rank = config_.rank, .ridge = options_.ridge, .fitted = fitted_targets(*training_, side)};
}

ReducedRankOptions Training::one_code_options() const {
  ReducedRankOptions options = fit_options(Side::kKeys);
  const std::vector<bool> values = fitted_targets(*training_, Side::kValues);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) options.fitted[i] = true;
  }
  return options;
}

Status Training::check_moments(const ProjectionMoments& moments, std::string_view text) const {
  if (moments.of(Side::kKeys).finite() && moments.of(Side::kValues).finite()) return {};
  return data_loss("{}: expected finite features, keys and values, got others on {} text",
                   options_.engine.model_dir, text);
}

Status Training::fit() {
  const Stopwatch clock;
  KAKEYA_TRY(check_moments(*validation_, "validation"));
  if (has_one_code()) {
    KAKEYA_TRY(fit_one_code());
    report_.fit_seconds = clock.seconds();
    return {};
  }
  if (options_.gradient.init == ProjectionInit::kRandom) {
    KAKEYA_TRY(check_moments(*training_, "training"));
    fits_ = random_fits(plan_, *training_, config_.rank, options_.seed);
    return {};
  }
  for (const Side side : kSides) {
    if (options_.progress) options_.progress("fit", std::ssize(fits_), std::ssize(kSides));
    KAKEYA_ASSIGN_OR_RETURN(ReducedRankFit fit,
                            fit_reduced_rank(training_->of(side), fit_options(side)));
    fits_.push_back(std::move(fit));
  }
  report_.fit_seconds = clock.seconds();
  return {};
}

Status Training::fit_one_code() {
  if (captured_validation_.empty()) {
    return invalid_argument(
        "expected documents of more than {} tokens for validation, got none (--tokens, --texts)",
        kSink);
  }
  if (options_.progress) options_.progress("fit", 0, 1);
  const SecondMoments& moments = training_->of(Side::kKeys);
  KAKEYA_ASSIGN_OR_RETURN(ReducedRankFit fit, fit_reduced_rank(moments, one_code_options()));
  choose_code(fit);
  refit_others(moments, one_code_options(), fit);
  fits_ = {fit, fit};
  return {};
}

void Training::choose_code(ReducedRankFit& fit) {
  std::vector<CodeChoice>& choices = report_.choices;
  measure_choices(plan_, *training_, fit, captured_validation_, choices);
  report_.rows = measure_rows(plan_, captured_validation_);
  report_.chosen = *std::ranges::max_element(choices, {}, &CodeChoice::explained);
  config_.rank = report_.chosen.rank;
  config_.one_code = true;
  config_.code_format = report_.chosen.format;
  fit.encoder.conservativeResize(config_.rank, Eigen::NoChange);
  for (Eigen::MatrixXd& decoder : fit.decoders) {
    decoder.conservativeResize(Eigen::NoChange, config_.rank);
  }
}

double Training::explained(const ProjectionMoments& moments, Side side, std::size_t index) const {
  return explained_energy(moments.of(side), fits_[static_cast<std::size_t>(side)],
                          moments.target(side, index));
}

Status Training::take_point(RefinementPoint& point,
                            std::int64_t steps,
                            const ProjectionMatrices& matrices) {
  put_matrices(plan_, *training_, matrices, fits_);
  for (const CapturePlan::Layer& layer : plan_.layers) {
    const auto index = static_cast<std::size_t>(layer.cache_index);
    point.explained_keys += explained(*validation_, Side::kKeys, index);
    point.explained_values += explained(*validation_, Side::kValues, index);
  }
  point.explained_keys /= static_cast<double>(plan_.layers.size());
  point.explained_values /= static_cast<double>(plan_.layers.size());
  if (options_.on_line) {
    options_.on_line(fmt::format(
        "step {} of {}: loss {}; validation: loss {:.5f}, {:.2f} % of the energy of keys and "
        "{:.2f} % of values' predicted",
        point.step, steps, point.loss ? fmt::format("{:.5f}", *point.loss) : "-",
        point.validation_loss, 100.0 * point.explained_keys, 100.0 * point.explained_values));
  }
  return {};
}

nlohmann::ordered_json Training::settings() const {
  const auto hex = [](std::uint64_t hash) { return fmt::format("{:016x}", hash); };
  nlohmann::ordered_json json = {{"model", engine_->model_fingerprint()},
                                 {"drafter", engine_->drafter_fingerprint()},
                                 {"features", projection_features_name(options_.features)},
                                 {"layers", fitted_layers_name(options_.layers)},
                                 {"rank", config_.rank},
                                 {"rows", most_kept(options_.gradient)},
                                 {"texts", hex(report_.training_hash)},
                                 {"held_out", hex(report_.validation_hash)}};
  if (has_one_code()) json["code"] = kv_format_name(report_.chosen.format);
  for (const auto& [name, loss] : kProjectionLosses) {
    if (loss == options_.gradient.loss) json["loss"] = name;
  }
  return json;
}

Status Training::refine(const RefineProjection& refine) {
  if (!has_steps()) return {};
  const GradientTraining& gradient = options_.gradient;
  report_.captured_training = count_rows(captured_training_);
  report_.captured_validation = count_rows(captured_validation_);
  report_.captured_bytes = count_bytes(captured_training_) + count_bytes(captured_validation_);
  if (captured_training_.empty() || captured_validation_.empty()) {
    return invalid_argument(
        "expected documents of more than {} tokens to train on and for validation, got {} and {} "
        "(--tokens, --texts)",
        kSink, captured_training_.size(), captured_validation_.size());
  }
  if (options_.on_line) {
    options_.on_line(fmt::format(
        "rows of {} of {} tokens are kept to train on and of {} for validation: {:.1f} MB",
        report_.captured_training, report_.training_tokens, report_.captured_validation,
        static_cast<double>(report_.captured_bytes) / 1e6));
  }
  std::vector<OutputPart> attention;
  if (plan_.has_attention) {
    KAKEYA_ASSIGN_OR_RETURN(attention,
                            read_attention_parts(plan_, engine_->model_dir(), target(), recorded_));
  }
  const double default_rate = gradient.init == ProjectionInit::kRandom ? 0.05 : 0.003;
  const RefinementTask task{
      .loss = gradient.loss,
      .has_one_code = has_one_code(),
      .plan = plan_,
      .first_row = kSink,
      .attention = attention,
      .training = captured_training_,
      .validation = captured_validation_,
      .rate = gradient.rate == 0.0 ? default_rate : gradient.rate,
      .steps = gradient.steps,
      .minutes = gradient.minutes,
      .seed = options_.seed,
      .on_point =
          [this](RefinementPoint& point, std::int64_t steps, const ProjectionMatrices& matrices) {
            return take_point(point, steps, matrices);
          },
      .progress = progress("steps"),
      .checkpoint = gradient.checkpoint,
      .save_minutes = gradient.save_minutes,
      .settings = settings()};
  KAKEYA_ASSIGN_OR_RETURN(Refinement refined,
                          refine(task, trained_matrices(plan_, *training_, fits_)));
  put_matrices(plan_, *training_, refined.matrices, fits_);
  for (const Side side : kSides) {
    refit_others(training_->of(side), has_one_code() ? one_code_options() : fit_options(side),
                 fits_[static_cast<std::size_t>(side)]);
  }
  report_.rate = task.rate;
  report_.steps = refined.steps;
  report_.losses = std::move(refined.points);
  report_.step_seconds = refined.seconds;
  return {};
}

void Training::describe_layers() {
  report_.rank = config_.rank;
  for (std::size_t i = 0; i < training_->layers().size(); ++i) {
    const std::int64_t l = training_->layers()[i];
    report_.layers.push_back({.layer = l,
                              .fitted = is_wanted(options_.layers, target(), l),
                              .key_training = explained(*training_, Side::kKeys, i),
                              .key_validation = explained(*validation_, Side::kKeys, i),
                              .value_training = explained(*training_, Side::kValues, i),
                              .value_validation = explained(*validation_, Side::kValues, i)});
  }
}

Status Training::write(const DescribeTraining& describe) {
  // Layers that read another's rows have no decoder that is used: theirs stay zero.
  ProjectionWeights weights = zero_weights(config_);
  std::size_t first = 0;
  for (const Side side : kSides) {
    const ReducedRankFit& fit = fits_[static_cast<std::size_t>(side)];
    if (side == Side::kKeys || !config_.one_code) weights[first++] = row_major(fit.encoder);
    for (std::size_t i = 0; i < training_->layers().size(); ++i) {
      weights[first + static_cast<std::size_t>(training_->layers()[i])] =
          row_major(fit.decoders[training_->target(side, i)]);
    }
    first += static_cast<std::size_t>(config_.num_layers());
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

}  // namespace

Result<ProjectionReport> train_projection(const ProjectionTraining& training,
                                          const DescribeTraining& describe,
                                          const RefineProjection& refine) {
  KAKEYA_TRY(check_projection_training(training, static_cast<bool>(refine)));
  KAKEYA_ASSIGN_OR_RETURN(AtomicFolder folder,
                          AtomicFolder::create(training.out, AtomicFolder::Existing::kRefuse));
  Training run(training, folder);
  KAKEYA_TRY(run.open());
  KAKEYA_TRY(run.take_text());
  KAKEYA_TRY(run.run_passes());
  KAKEYA_TRY(run.fit());
  KAKEYA_TRY(run.refine(refine));
  run.describe_layers();
  KAKEYA_TRY(run.write(describe));
  return std::move(run).report();
}

}  // namespace kakeya::train
