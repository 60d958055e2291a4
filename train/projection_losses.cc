#include "projection_losses.h"

namespace kakeya::train {
namespace {

constexpr double kMeanSquareFloor = 1e-6;
constexpr double kVarianceShare = 0.1;
// Under square roots, so that the gradient of a vector of zeros is 0, not NaN. Far below the
// rounding of any vector that counts.
constexpr double kLeastSquare = 1e-20;

mx::array mean_square(const mx::array& x) {
  return mx::mean(x * x);
}

// [..., E] to [...].
mx::array lengths(const mx::array& x) {
  return mx::sqrt(mx::sum(x * x, -1) + mx::array(kLeastSquare, x.dtype()));
}

mx::array one_minus_cosine(const mx::array& made, const mx::array& wanted) {
  const mx::array cosines = mx::sum(made * wanted, -1) / (lengths(made) * lengths(wanted));
  return mx::array(1.0, made.dtype()) - mx::mean(cosines);
}

mx::array relative_magnitude(const mx::array& made, const mx::array& wanted) {
  const mx::array length = lengths(wanted);
  return mean_square(lengths(made) - length) / mean_square(length);
}

mx::array direction_and_magnitude(const mx::array& made, const mx::array& wanted) {
  return one_minus_cosine(made, wanted) + relative_magnitude(made, wanted);
}

// (1 / 2n) sum over layers, keys and values of a term.
template <typename Term>
mx::array mean_over(std::span<const LayerRows> layers, const Term& term) {
  mx::array sum(0.0, layers.front().keys.dtype());
  for (const LayerRows& layer : layers) {
    sum = sum + term(layer.made_keys, layer.keys) + term(layer.made_values, layer.values);
  }
  return sum / mx::array(2.0 * static_cast<double>(layers.size()), sum.dtype());
}

}  // namespace

mx::array mse_loss(std::span<const LayerRows> layers) {
  return mean_over(layers, [](const mx::array& made, const mx::array& wanted) {
    return mean_square(made - wanted);
  });
}

mx::array relmse_loss(std::span<const LayerRows> layers) {
  return mean_over(layers, [](const mx::array& made, const mx::array& wanted) {
    return mean_square(made - wanted) /
           (mean_square(wanted) + mx::array(kMeanSquareFloor, made.dtype()));
  });
}

mx::array cos_mag_loss(std::span<const LayerRows> layers) {
  return mean_over(layers, direction_and_magnitude);
}

mx::array combined_loss(std::span<const LayerRows> layers) {
  return mean_over(layers, [](const mx::array& made, const mx::array& wanted) {
    const mx::array share = mean_square(made - wanted) / mean_square(wanted - mx::mean(wanted));
    return direction_and_magnitude(made, wanted) + mx::array(kVarianceShare, made.dtype()) * share;
  });
}

}  // namespace kakeya::train
