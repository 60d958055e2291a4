#include "adamw.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kakeya::train {
namespace {

// Steps, if there are twice as many: Adam's second moments are noise before.
constexpr double kLeastWarmUp = 20.0;

}  // namespace

double learning_rate(const AdamWOptions& options, std::int64_t step) {
  const auto steps = static_cast<double>(options.steps);
  const double least = std::min(kLeastWarmUp, steps / 2.0);
  const double warm_up = std::max({1.0, least, std::floor(options.warm_up * steps)});
  const auto done = static_cast<double>(step);
  if (done + 1.0 <= warm_up) return options.rate * (done + 1.0) / warm_up;
  const double left = std::max(1.0, steps - warm_up);
  const double share = std::min(1.0, (done - warm_up) / left);
  const double falling = 0.5 * (1.0 + std::cos(std::numbers::pi * share));
  return options.rate * (options.least_rate + (1.0 - options.least_rate) * falling);
}

AdamW::AdamW(const DrafterWeights& weights) {
  for (const DrafterTensor& tensor : weights) {
    first_.emplace_back(tensor.values.size(), 0.0F);
    second_.emplace_back(tensor.values.size(), 0.0F);
  }
}

double AdamW::step(const AdamWOptions& options,
                   std::int64_t step,
                   const Gradients& gradients,
                   DrafterWeights& weights) {
  double squares = 0.0;
  for (const std::vector<float>& gradient : gradients) {
    for (const float g : gradient) squares += static_cast<double>(g) * g;
  }
  const double length = std::sqrt(squares);
  if (!std::isfinite(length)) return length;
  const auto cut = static_cast<float>(length > options.clip ? options.clip / length : 1.0);
  const double rate = learning_rate(options, step);
  const auto count = static_cast<double>(step + 1);
  const auto beta1 = static_cast<float>(options.beta1);
  const auto beta2 = static_cast<float>(options.beta2);
  const auto scale1 = static_cast<float>(rate / (1.0 - std::pow(options.beta1, count)));
  const auto scale2 = static_cast<float>(1.0 / (1.0 - std::pow(options.beta2, count)));
  const auto epsilon = static_cast<float>(options.epsilon);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    std::vector<float>& values = weights[i].values;
    // Norms are left near 1 by the loss, not drawn to 0.
    const bool decays = weights[i].shape.size() > 1;
    const auto kept = static_cast<float>(decays ? 1.0 - rate * options.decay : 1.0);
    for (std::size_t j = 0; j < values.size(); ++j) {
      const float g = gradients[i][j] * cut;
      first_[i][j] = beta1 * first_[i][j] + (1.0F - beta1) * g;
      second_[i][j] = beta2 * second_[i][j] + (1.0F - beta2) * g * g;
      values[j] =
          values[j] * kept - scale1 * first_[i][j] / (std::sqrt(second_[i][j] * scale2) + epsilon);
    }
  }
  return length;
}

}  // namespace kakeya::train
