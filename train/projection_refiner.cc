#include <algorithm>
#include <cmath>
#include <utility>

#include "adamw.h"
#include "backend/mlx/mlx_status.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"
#include "captured_arrays.h"
#include "refinement.h"

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

  Status choose_steps();
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
  Result<double> take_step(std::int64_t step);
  Status report(std::int64_t done, std::optional<double> loss) const;
  ProjectionMatrices matrices() const;

  const RefinementTask& task_;
  std::vector<float> sizes_;  // which making the shares fills
  ProjectionMatrices shares_;
  AdamW moments_;
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

Refiner::Refiner(const RefinementTask& task, ProjectionMatrices start)
    : task_(task), shares_(shares_of(std::move(start), sizes_)), moments_(shares_) {
  optimizer_ = {
      .rate = task.rate, .beta2 = 0.999, .warm_up = 0.05, .least_rate = 0.01, .steps = task.steps};
}

std::vector<mx::array> Refiner::arrays() const {
  std::vector<mx::array> arrays;
  for (const DrafterTensor& matrix : shares_) {
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
    std::vector<int> all(shares_.size());
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

Result<double> Refiner::take_step(std::int64_t step) {
  KAKEYA_ASSIGN_OR_RETURN(const Graded graded, grade(document_of(step)));
  const auto refuse = [&](const char* what, double got) {
    return data_loss(
        "step {}: expected a finite {}, got {}: try a lower rate (--learning-rate) than {}",
        step + 1, what, got, task_.rate);
  };
  if (!std::isfinite(graded.loss)) return refuse("loss", graded.loss);
  const double length = moments_.step(optimizer_, step, graded.gradients, shares_);
  if (!std::isfinite(length)) return refuse("gradient", length);
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

Status Refiner::report(std::int64_t done, std::optional<double> loss) const {
  if (!task_.on_point) return {};
  KAKEYA_ASSIGN_OR_RETURN(const double validation, validation_loss());
  return task_.on_point({.step = done, .loss = loss, .validation_loss = validation},
                        optimizer_.steps, matrices());
}

Status Refiner::run() {
  const Stopwatch clock;
  KAKEYA_TRY(report(0, std::nullopt));
  const std::int64_t steps = optimizer_.steps;
  const std::int64_t distance = std::max<std::int64_t>(1, steps / kPoints);
  double sum = 0.0;
  std::int64_t count = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    KAKEYA_ASSIGN_OR_RETURN(const double loss, take_step(step));
    sum += loss;
    ++count;
    if (task_.progress) task_.progress(step + 1, steps);
    if ((step + 1) % distance != 0 && step + 1 != steps) continue;
    KAKEYA_TRY(report(step + 1, sum / static_cast<double>(count)));
    sum = 0.0;
    count = 0;
  }
  seconds_ = clock.seconds();
  return {};
}

ProjectionMatrices Refiner::matrices() const {
  ProjectionMatrices matrices = shares_;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    for (float& value : matrices[i].values) value *= sizes_[i];
  }
  return matrices;
}

Refinement Refiner::result() && {
  return {.matrices = matrices(), .steps = optimizer_.steps, .seconds = seconds_};
}

Result<Refinement> refine(const RefinementTask& task, ProjectionMatrices start) {
  Refiner refiner(task, std::move(start));
  KAKEYA_TRY(refiner.choose_steps());
  KAKEYA_TRY(refiner.run());
  return std::move(refiner).result();
}

}  // namespace

RefineProjection projection_refiner() {
  return refine;
}

}  // namespace kakeya::train
