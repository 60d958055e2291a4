// The losses that projections are trained on by gradient: each by its definition, its gradient by
// differences.
#include "projection_losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "model/test_model.h"

namespace kakeya::train {
namespace {

using Layers = std::vector<LayerRows>;
using Attention = std::vector<LayerAttention>;
using Loss = std::function<mx::array(const Layers&, const Attention&)>;
const std::pair<const char*, Loss> kLosses[] = {
    {"mse", [](const Layers& layers, const Attention&) { return mse_loss(layers); }},
    {"relmse", [](const Layers& layers, const Attention&) { return relmse_loss(layers); }},
    {"cos_mag", [](const Layers& layers, const Attention&) { return cos_mag_loss(layers); }},
    {"combined", [](const Layers& layers, const Attention&) { return combined_loss(layers); }},
    {"attn_distill", attn_distill_loss},
    {"attn_distill_hybrid", attn_distill_hybrid_loss}};

// The numbers that tools/golden_projection_losses.py made up.
struct Golden {
  SafetensorsFile file =
      SafetensorsFile::open(std::string(KAKEYA_TEST_DATA) + "/train/projection-losses.safetensors")
          .value();
  mx::Dtype dtype = mx::float32;

  mx::array of(std::size_t layer, const std::string& name) const {
    const std::string full = std::to_string(layer) + "." + name;
    mx::Shape shape;
    for (const std::int64_t size : file.find(full)->shape) shape.push_back(to_int(size));
    const std::vector<float> values = test::golden_floats(file, full);
    return mx::astype(mx::array(values.data(), shape, mx::float32), dtype);
  }
  Layers layers() const {
    Layers layers;
    for (std::size_t l = 0; l < 3; ++l) {
      layers.push_back({.made_keys = of(l, "made_keys"),
                        .keys = of(l, "keys"),
                        .made_values = of(l, "made_values"),
                        .values = of(l, "values")});
    }
    return layers;
  }
  Attention attention() const {
    const int windows[] = {0, 3, 5};
    const double scales[] = {1.0, 0.25, 0.5};
    Attention attention;
    for (std::size_t l = 0; l < 3; ++l) {
      const mx::array queries = of(l, "queries");
      const int rows = queries.shape(0);
      const int half = queries.shape(2) / 2;
      const mx::array position = mx::reshape(mx::arange(0.0, rows, 1.0, dtype), {rows, 1, 1});
      const mx::array turning = of(l, "frequencies");
      const mx::array angles =
          position * mx::concatenate({turning, mx::zeros({half - turning.shape(0)}, dtype)}, 0);
      const mx::array distance =
          mx::reshape(position, {rows, 1}) - mx::reshape(position, {1, rows});
      const mx::array window(windows[l] == 0 ? 1e9 : windows[l], dtype);
      const mx::array seen = mx::logical_and(distance >= mx::array(0.0, dtype), distance < window);
      attention.push_back({.queries = queries,
                           .outputs = of(l, "outputs"),
                           .o_proj = of(l, "o_proj"),
                           .k_norm = of(l, "k_norm"),
                           .cos = mx::cos(angles),
                           .sin = mx::sin(angles),
                           .mask = mx::where(seen, mx::array(0.0, dtype), mx::array(-1e30, dtype)),
                           .scale = scales[l],
                           .rms_norm_eps = 1e-6,
                           .normalise_values = l != 1});
    }
    return attention;
  }
  double loss(const std::string& name) const {
    return test::golden_floats(file, "loss." + name)[0];
  }
};

// The parts that are made, in one list.
std::vector<mx::array> made_parts(const Layers& layers) {
  std::vector<mx::array> parts;
  for (const LayerRows& layer : layers) {
    parts.push_back(layer.made_keys);
    parts.push_back(layer.made_values);
  }
  return parts;
}

Layers with_parts(Layers layers, const std::vector<mx::array>& parts) {
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
    EXPECT_NEAR(loss(golden.layers(), golden.attention()).item<float>(), expected, 1e-5 * expected)
        << name;
  }
}

// Rows that are right lose nothing, but for the square root under which each length is rounded. The
// outputs that were made up are others than those of right rows.
TEST(MlxProjectionLoss, IsNothingForRowsThatAreRight) {
  Layers layers = Golden().layers();
  for (LayerRows& layer : layers) {
    layer.made_keys = layer.keys;
    layer.made_values = layer.values;
  }
  const Attention attention = Golden().attention();
  const double outputs = attn_distill_loss(layers, attention).item<float>();
  EXPECT_GT(outputs, 1e-3);
  for (const auto& [name, loss] : kLosses) {
    const double least = std::string(name).starts_with("attn") ? outputs : 0.0;
    EXPECT_NEAR(loss(layers, attention).item<float>(), least, 1e-6) << name;
  }
}

// The gradient in f32 against differences of the loss in f64, relative to the largest number of its
// part. 1e-4: f32 sums, and the curvature that a step of 1e-4 leaves. MLX's exp in f64 is smooth to
// some 6e-9 only, so losses with a softmax want steps of 1e-3, and 1e-3. The vector of zeros has no
// derivative; there the gradient is only not NaN.
TEST(MlxProjectionLoss, HasTheGradientOfFiniteDifferences) {
  const Golden golden;
  const Golden golden_exact{.dtype = mx::float64};
  const Layers single = golden.layers();
  const Layers exact = golden_exact.layers();
  const Attention attention = golden.attention();
  const Attention attention_exact = golden_exact.attention();
  for (const auto& [name, loss] : kLosses) {
    const double length = std::string(name).starts_with("attn") ? 1e-3 : 1e-4;
    const auto made = [&, f = loss](const std::vector<mx::array>& parts) {
      return std::vector<mx::array>{f(with_parts(single, parts), attention)};
    };
    const auto graded = mx::value_and_grad(made, {0, 1, 2, 3, 4, 5})(made_parts(single));
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
        std::vector<double> moved(gradient.size(), 0.0);
        moved[j] = length;
        const mx::array step(moved.data(), parts[i].shape(), mx::float64);
        std::vector<mx::array> up = parts;
        std::vector<mx::array> down = parts;
        up[i] = parts[i] + step;
        down[i] = parts[i] - step;
        const double difference = (loss(with_parts(exact, up), attention_exact).item<double>() -
                                   loss(with_parts(exact, down), attention_exact).item<double>()) /
                                  (2.0 * length);
        EXPECT_NEAR(gradient[j], difference, length * largest) << name << " " << i << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace kakeya::train
