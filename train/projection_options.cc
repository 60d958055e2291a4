// The checks of a projection training's options.
#include <cmath>

#include "base/status.h"
#include "train_projection.h"

namespace kakeya::train {
namespace {

Status check_gradient(const GradientTraining& gradient, bool is_available) {
  const bool has_steps = gradient.steps != 0 || gradient.minutes != 0.0;
  if (gradient.loss == ProjectionLoss::kClosed) {
    if (!has_steps && gradient.rate == 0.0 && gradient.rows == 0 &&
        gradient.init == ProjectionInit::kClosed && gradient.checkpoint.empty()) {
      return {};
    }
    return invalid_argument(
        "minutes, steps, learning-rate, rows, init, checkpoint: expected a loss that is trained by "
        "gradient, "
        "got "
        "closed, which takes no steps");
  }
  if (!is_available) {
    return error(StatusCode::kUnimplemented,
                 "loss: expected closed in this build, got another one, which is trained on MLX: "
                 "`make mlx` fetches it and builds with it");
  }
  if ((gradient.steps == 0) == (gradient.minutes == 0.0) || !(gradient.minutes >= 0.0) ||
      gradient.minutes > 100'000.0 || gradient.steps < 0 ||
      gradient.steps > GradientTraining::kMostSteps) {
    return invalid_argument(
        "expected minutes up to 100,000 or steps up to {}, one of the two, above 0, got {} and {}",
        GradientTraining::kMostSteps, gradient.minutes, gradient.steps);
  }
  if (!(gradient.save_minutes >= 0.0) || gradient.save_minutes > 100'000.0) {
    return invalid_argument("save-minutes: expected 0 to 100,000, got {}", gradient.save_minutes);
  }
  if (!(gradient.rate >= 0.0) || gradient.rate > 1.0) {
    return invalid_argument("learning-rate: expected above 0 and at most 1, got {}", gradient.rate);
  }
  if (gradient.rows != 0 && (gradient.rows < GradientTraining::kLeastRows ||
                             gradient.rows > ProjectionTraining::kMostTokens)) {
    return invalid_argument("rows: expected {} to {}, got {}", GradientTraining::kLeastRows,
                            ProjectionTraining::kMostTokens, gradient.rows);
  }
  return {};
}

Status check_training(const ProjectionTraining& training) {
  if (training.tokens < 1 || training.tokens > ProjectionTraining::kMostTokens) {
    return invalid_argument("tokens: expected 1 to {}, got {}", ProjectionTraining::kMostTokens,
                            training.tokens);
  }
  if (!(training.ridge >= 0.0) || !std::isfinite(training.ridge)) {
    return invalid_argument("ridge: expected 0 or more, got {}", training.ridge);
  }
  if (training.code_bytes < 0 || training.code_bytes > ProjectionTraining::kMostCodeBytes) {
    return invalid_argument("bytes: expected 1 to {}, got {}", ProjectionTraining::kMostCodeBytes,
                            training.code_bytes);
  }
  if (training.code_bytes > 0 && (training.features != ProjectionFeatures::kAux ||
                                  training.gradient.init != ProjectionInit::kClosed)) {
    return invalid_argument(
        "expected aux features, and steps that begin with the fit in closed form, where keys and "
        "values have one code, got others");
  }
  return {};
}

}  // namespace

std::string_view fitted_layers_name(FittedLayers layers) {
  if (layers == FittedLayers::kFull) return "full";
  return layers == FittedLayers::kSliding ? "sliding" : "all";
}

Status check_projection_training(const ProjectionTraining& training, bool has_refiner) {
  KAKEYA_TRY(check_training(training));
  return check_gradient(training.gradient, has_refiner);
}

}  // namespace kakeya::train
