// What projections are trained on by gradient: each loss by its definition, its gradient by
// differences.
#include "projection_losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "model/test_model.h"

namespace kakeya::train {
namespace {

using Loss = mx::array (*)(std::span<const LayerRows>);
constexpr std::pair<const char*, Loss> kLosses[] = {{"mse", mse_loss},
                                                    {"relmse", relmse_loss},
                                                    {"cos_mag", cos_mag_loss},
                                                    {"combined", combined_loss}};

// Rows of layers as tools/golden_projection_losses.py made them up.
struct Golden {
  SafetensorsFile file =
      SafetensorsFile::open(std::string(KAKEYA_TEST_DATA) + "/train/projection-losses.safetensors")
          .value();

  mx::array rows(int layer, const std::string& name, mx::Dtype dtype) const {
    const std::string full = std::to_string(layer) + "." + name;
    const TensorView* view = file.find(full);
    mx::Shape shape;
    for (const std::int64_t size : view->shape) shape.push_back(to_int(size));
    const std::vector<float> values = test::golden_floats(file, full);
    return mx::astype(mx::array(values.data(), shape, mx::float32), dtype);
  }
  std::vector<LayerRows> layers(mx::Dtype dtype) const {
    std::vector<LayerRows> layers;
    for (int l = 0; l < 3; ++l) {
      layers.push_back({.made_keys = rows(l, "made_keys", dtype),
                        .keys = rows(l, "keys", dtype),
                        .made_values = rows(l, "made_values", dtype),
                        .values = rows(l, "values", dtype)});
    }
    return layers;
  }
  double loss(const std::string& name) const {
    return test::golden_floats(file, "loss." + name)[0];
  }
};

// The parts that are made, in one list.
std::vector<mx::array> made_parts(const std::vector<LayerRows>& layers) {
  std::vector<mx::array> parts;
  for (const LayerRows& layer : layers) {
    parts.push_back(layer.made_keys);
    parts.push_back(layer.made_values);
  }
  return parts;
}

std::vector<LayerRows> with_parts(std::vector<LayerRows> layers,
                                  const std::vector<mx::array>& parts) {
  for (std::size_t l = 0; l < layers.size(); ++l) {
    layers[l].made_keys = parts[2 * l];
    layers[l].made_values = parts[2 * l + 1];
  }
  return layers;
}

// 1e-5: sums of some hundred numbers in f32, each rounded to 6e-8, against sums in f64.
TEST(MlxProjectionLoss, IsThatOfItsDefinition) {
  const Golden golden;
  for (const auto& [name, loss] : kLosses) {
    const double expected = golden.loss(name);
    EXPECT_NEAR(loss(golden.layers(mx::float32)).item<float>(), expected, 1e-5 * expected) << name;
  }
}

// Rows that are right lose nothing, but for the square root under which each length is rounded.
TEST(MlxProjectionLoss, IsNothingForRowsThatAreRight) {
  std::vector<LayerRows> layers = Golden().layers(mx::float32);
  for (LayerRows& layer : layers) {
    layer.made_keys = layer.keys;
    layer.made_values = layer.values;
  }
  for (const auto& [name, loss] : kLosses) {
    EXPECT_NEAR(loss(layers).item<float>(), 0.0, 1e-6) << name;
  }
}

// The gradient in f32 against differences of the loss in f64, relative to the largest number of its
// part. 1e-4: f32 sums, and the curvature that a step of 1e-4 leaves. The vector of zeros has no
// derivative; there the gradient is only not NaN.
TEST(MlxProjectionLoss, HasTheGradientOfFiniteDifferences) {
  const Golden golden;
  const std::vector<LayerRows> single = golden.layers(mx::float32);
  const std::vector<LayerRows> exact = golden.layers(mx::float64);
  for (const auto& [name, loss] : kLosses) {
    const auto f = [&, l = loss](const std::vector<mx::array>& parts) {
      return std::vector<mx::array>{l(with_parts(single, parts))};
    };
    const auto graded = mx::value_and_grad(f, {0, 1, 2, 3, 4, 5})(made_parts(single));
    const std::vector<mx::array> parts = made_parts(exact);
    SequenceRng rng(23);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::vector<float> gradient = to_host(graded.second[i]);
      float largest = 0.0F;
      for (const float g : gradient) {
        ASSERT_TRUE(std::isfinite(g)) << name << " " << i;
        largest = std::max(largest, std::abs(g));
      }
      ASSERT_GT(largest, 0.0F) << name << " " << i;
      const std::vector<float> values = to_host(parts[i]);
      for (int sample = 0; sample < 6; ++sample) {
        const std::size_t j = rng.below(gradient.size());
        if (values[j] == 0.0F) continue;
        constexpr double kStep = 1e-4;
        std::vector<double> moved(gradient.size(), 0.0);
        moved[j] = kStep;
        const mx::array step(moved.data(), parts[i].shape(), mx::float64);
        std::vector<mx::array> up = parts;
        std::vector<mx::array> down = parts;
        up[i] = parts[i] + step;
        down[i] = parts[i] - step;
        const double difference = (loss(with_parts(exact, up)).item<double>() -
                                   loss(with_parts(exact, down)).item<double>()) /
                                  (2.0 * kStep);
        EXPECT_NEAR(gradient[j], difference, 1e-4 * largest) << name << " " << i << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace kakeya::train
