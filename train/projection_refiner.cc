#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "backend/mlx/mlx_status.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"
#include "captured_arrays.h"
#include "refinement.h"
#include "trainer_state.h"

namespace kakeya::train {
namespace {

constexpr std::int64_t kPoints = 20;
constexpr std::int64_t kMostSteps = 10'000'000;

double root_mean_square(const std::vector<float>& values) {
  double squares = 0.0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

mx::array loss_by_kind(ProjectionLoss loss,
                       std::span<const LayerRows> layers,
                       std::span<const LayerAttention> attention) {
  switch (loss) {
    case ProjectionLoss::kRelmse:
      return relmse_loss(layers);
    case ProjectionLoss::kCosMag:
      return cos_mag_loss(layers);
    case ProjectionLoss::kCombined:
      return combined_loss(layers);
    case ProjectionLoss::kAttnDistill:
      return attn_distill_loss(layers, attention);
    case ProjectionLoss::kAttnDistillHybrid:
      return attn_distill_hybrid_loss(layers, attention);
    case ProjectionLoss::kClosed:
    case ProjectionLoss::kMse:
      break;
  }
  return mse_loss(layers);
}

// Matrices are held as shares of their own size at the start: a step of Adam changes all numbers by
// about the same, whatever they are, and encoders and decoders differ by orders of magnitude.
class Refiner {
 public:
  Refiner(const RefinementTask& task, ProjectionMatrices start);

  // Takes over a checkpoint, if there is one.
  Status begin();
  Status run();
  Refinement result() &&;

 private:
  struct Graded {
    double loss = 0.0;
    Gradients gradients;
  };
  std::vector<mx::array> arrays() const;
  mx::array loss_of(const std::vector<mx::array>& shares, const CapturedDocument& document) const;
  Result<Graded> grade(const CapturedDocument& document) const;
  Result<double> validation_loss() const;
  const CapturedDocument& document_of(std::int64_t step) const;
  Status choose_steps();
  Status take_over(TrainerState stored);
  Result<double> take_step();
  Status report(std::optional<double> loss);
  Status save();
  ProjectionMatrices matrices() const;

  const RefinementTask& task_;
  std::vector<float> sizes_;  // which making the shares fills
  TrainerState state_;        // of the shares
  nlohmann::ordered_json settings_;
  std::vector<RefinementPoint> points_;
  double sum_ = 0.0;  // of the losses since the last point, and how many
  std::int64_t count_ = 0;
  AdamWOptions optimizer_;
  double seconds_ = 0.0;
};

ProjectionMatrices shares_of(ProjectionMatrices matrices, std::vector<float>& sizes) {
  for (DrafterTensor& matrix : matrices) {
    const auto size = static_cast<float>(root_mean_square(matrix.values));
    sizes.push_back(size > 0.0F && std::isfinite(size) ? size : 1.0F);
    for (float& value : matrix.values) value /= sizes.back();
  }
  return matrices;
}

nlohmann::ordered_json point_json(const RefinementPoint& point) {
  nlohmann::ordered_json json = {{"step", point.step},
                                 {"validation_loss", point.validation_loss},
                                 {"explained_keys", point.explained_keys},
                                 {"explained_values", point.explained_values}};
  if (point.loss) json["loss"] = *point.loss;
  return json;
}

// False for what is none.
bool take_number(const nlohmann::ordered_json& json, const char* name, double& to) {
  if (!json.is_object() || !json.contains(name) || !json[name].is_number()) return false;
  to = json[name].get<double>();
  return true;
}

std::optional<RefinementPoint> point_of(const nlohmann::ordered_json& json) {
  RefinementPoint point;
  double step = 0.0;
  double loss = 0.0;
  if (!take_number(json, "step", step) ||
      !take_number(json, "validation_loss", point.validation_loss) ||
      !take_number(json, "explained_keys", point.explained_keys) ||
      !take_number(json, "explained_values", point.explained_values)) {
    return std::nullopt;
  }
  point.step = static_cast<std::int64_t>(step);
  if (take_number(json, "loss", loss)) point.loss = loss;
  return point;
}

std::uint64_t hash_of(const ProjectionMatrices& matrices) {
  std::uint64_t hash = 0;
  for (const DrafterTensor& matrix : matrices) {
    hash = checksum(std::as_bytes(std::span(matrix.values)), hash);
  }
  return hash;
}

Refiner::Refiner(const RefinementTask& task, ProjectionMatrices start)
    : task_(task), state_(shares_of(std::move(start), sizes_)), settings_(task.settings) {
  settings_["start"] = fmt::format("{:016x}", hash_of(state_.weights));
  settings_["learning_rate"] = task.rate;
  settings_["seed"] = task.seed;
  optimizer_ = {
      .rate = task.rate, .beta2 = 0.999, .warm_up = 0.05, .least_rate = 0.01, .steps = task.steps};
}

std::vector<mx::array> Refiner::arrays() const {
  std::vector<mx::array> arrays;
  for (const DrafterTensor& matrix : state_.weights) {
    arrays.emplace_back(matrix.values.data(),
                        mx::Shape{to_int(matrix.shape[0]), to_int(matrix.shape[1])}, mx::float32);
  }
  return arrays;
}

mx::array Refiner::loss_of(const std::vector<mx::array>& shares,
                           const CapturedDocument& document) const {
  std::vector<mx::array> matrices;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    matrices.push_back(shares[i] * mx::array(sizes_[i]));
  }
  if (task_.has_one_code) matrices[1] = matrices[0];
  const bool attends = sees_attention(task_.loss);
  const std::vector<LayerRows> layers =
      make_layer_rows(task_.plan, document, matrices, task_.first_row,
                      attends ? FirstRows::kAsTheyAre : FirstRows::kLeftOut);
  std::vector<LayerAttention> attention;
  if (attends) attention = make_layer_attention(task_.plan, document, task_.attention);
  return loss_by_kind(task_.loss, layers, attention);
}

Result<Refiner::Graded> Refiner::grade(const CapturedDocument& document) const {
  return mlx::caught([&]() -> Result<Graded> {
    std::vector<int> all(state_.weights.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    auto graded = mx::value_and_grad(
        [&](const std::vector<mx::array>& shares) {
          return std::vector<mx::array>{loss_of(shares, document)};
        },
        all)(arrays());
    mx::eval(graded.second);
    Graded result{.loss = to_host(graded.first[0])[0], .gradients = {}};
    for (const mx::array& gradient : graded.second) result.gradients.push_back(to_host(gradient));
    return result;
  });
}

Result<double> Refiner::validation_loss() const {
  return mlx::caught([&]() -> Result<double> {
    const std::vector<mx::array> shares = arrays();
    double sum = 0.0;
    for (const CapturedDocument& document : task_.validation) {
      sum += to_host(loss_of(shares, document))[0];
    }
    return sum / static_cast<double>(task_.validation.size());
  });
}

const CapturedDocument& Refiner::document_of(std::int64_t step) const {
  SequenceRng rng((task_.seed * 0x9e3779b97f4a7c15U) ^ (static_cast<std::uint64_t>(step) << 20));
  return task_.training[rng.below(task_.training.size())];
}

Result<double> Refiner::take_step() {
  const std::int64_t step = state_.steps_done;
  KAKEYA_ASSIGN_OR_RETURN(const Graded graded, grade(document_of(step)));
  const auto refuse = [&](const char* what, double got) {
    return data_loss(
        "step {}: expected a finite {}, got {}: try a lower rate (--learning-rate) than {}",
        step + 1, what, got, task_.rate);
  };
  if (!std::isfinite(graded.loss)) return refuse("loss", graded.loss);
  const double length = state_.moments.step(optimizer_, step, graded.gradients, state_.weights);
  if (!std::isfinite(length)) return refuse("gradient", length);
  ++state_.steps_done;
  return graded.loss;
}

// Minutes are turned into steps once, so that the rate's course and the weights follow from what is
// reported.
Status Refiner::choose_steps() {
  if (optimizer_.steps > 0) return {};
  constexpr std::int64_t kMeasured = 3;
  KAKEYA_TRY(grade(document_of(0)));
  const Stopwatch clock;
  for (std::int64_t step = 0; step < kMeasured; ++step) KAKEYA_TRY(grade(document_of(step)));
  const double steps = 60.0 * task_.minutes * kMeasured / std::max(clock.seconds(), 1e-3);
  optimizer_.steps =
      static_cast<std::int64_t>(std::clamp(steps, 1.0, static_cast<double>(kMostSteps)));
  return {};
}

Status Refiner::begin() {
  std::error_code ignored;  // what cannot be seen cannot be read either
  if (task_.checkpoint.empty() || !std::filesystem::exists(task_.checkpoint, ignored)) {
    KAKEYA_TRY(choose_steps());
    settings_["steps"] = optimizer_.steps;
    KAKEYA_TRY(report(std::nullopt));
    return save();  // so that a file that cannot be written is found at once
  }
  KAKEYA_ASSIGN_OR_RETURN(TrainerState stored, load_state(task_.checkpoint, state_.weights));
  // Minutes were turned into steps before.
  settings_["steps"] = task_.steps;
  KAKEYA_TRY(check_same_settings(task_.checkpoint, stored.settings, settings_,
                                 task_.steps == 0 ? "steps" : ""));
  return take_over(std::move(stored));
}

Status Refiner::take_over(TrainerState stored) {
  const auto settings = nlohmann::ordered_json::parse(stored.settings, nullptr, false);
  const auto record = nlohmann::ordered_json::parse(stored.record, nullptr, false);
  double steps = 0.0;
  double count = 0.0;
  bool whole = take_number(settings, "steps", steps) && take_number(record, "sum", sum_) &&
               take_number(record, "count", count) && record.contains("points") &&
               record["points"].is_array();
  if (whole) {
    for (const auto& each : record["points"]) {
      const std::optional<RefinementPoint> point = point_of(each);
      whole = whole && point.has_value();
      if (point) points_.push_back(*point);
    }
  }
  if (!whole || !(steps >= 1.0 && steps <= static_cast<double>(kMostSteps)) ||
      static_cast<double>(stored.steps_done) > steps) {
    return data_loss("{}: expected a record of the steps of a projection, got another",
                     task_.checkpoint);
  }
  optimizer_.steps = static_cast<std::int64_t>(steps);
  settings_["steps"] = optimizer_.steps;
  count_ = static_cast<std::int64_t>(count);
  state_ = std::move(stored);
  return {};
}

Status Refiner::save() {
  if (task_.checkpoint.empty()) return {};
  nlohmann::ordered_json record = {
      {"sum", sum_}, {"count", count_}, {"points", nlohmann::ordered_json::array()}};
  for (const RefinementPoint& point : points_) record["points"].push_back(point_json(point));
  state_.settings = settings_.dump();
  state_.record = record.dump();
  return save_state(task_.checkpoint, state_);
}

Status Refiner::report(std::optional<double> loss) {
  KAKEYA_ASSIGN_OR_RETURN(const double validation, validation_loss());
  RefinementPoint point{.step = state_.steps_done, .loss = loss, .validation_loss = validation};
  if (task_.on_point) KAKEYA_TRY(task_.on_point(point, optimizer_.steps, matrices()));
  points_.push_back(point);
  return {};
}

Status Refiner::run() {
  const Stopwatch clock;
  Stopwatch since_save;
  const std::int64_t steps = optimizer_.steps;
  const std::int64_t distance = std::max<std::int64_t>(1, steps / kPoints);
  while (state_.steps_done < steps) {
    KAKEYA_ASSIGN_OR_RETURN(const double loss, take_step());
    sum_ += loss;
    ++count_;
    const bool is_last = state_.steps_done == steps;
    if (state_.steps_done % distance == 0 || is_last) {
      KAKEYA_TRY(report(sum_ / static_cast<double>(count_)));
      sum_ = 0.0;
      count_ = 0;
    }
    if (is_last || since_save.seconds() >= 60.0 * task_.save_minutes) {
      KAKEYA_TRY(save());
      since_save = {};
    }
    if (task_.progress) task_.progress(state_.steps_done, steps);
  }
  seconds_ = clock.seconds();
  return {};
}

ProjectionMatrices Refiner::matrices() const {
  ProjectionMatrices matrices = state_.weights;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    for (float& value : matrices[i].values) value *= sizes_[i];
  }
  if (task_.has_one_code) matrices[1].values = matrices[0].values;
  return matrices;
}

Refinement Refiner::result() && {
  return {.matrices = matrices(),
          .steps = optimizer_.steps,
          .points = std::move(points_),
          .seconds = seconds_};
}

Result<Refinement> refine(const RefinementTask& task, ProjectionMatrices start) {
  Refiner refiner(task, std::move(start));
  KAKEYA_TRY(refiner.begin());
  KAKEYA_TRY(refiner.run());
  return std::move(refiner).result();
}

}  // namespace

RefineProjection projection_refiner() {
  return refine;
}

}  // namespace kakeya::train
