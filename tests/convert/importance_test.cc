// The importance that a text gives a model's columns, against plain loops and against the model
// without anybody looking on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/host_rows.h"
#include "backend/ref/ref_backend.h"
#include "backend/ref/ref_executor.h"
#include "base/status.h"
#include "convert/measure_importance.h"
#include "convert/observing_backend.h"
#include "convert/source_model.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

std::string network(const std::string& name) {
  return std::string(KAKEYA_TEST_DATA) + "/networks/" + name;
}

// Rows [T, K] that each matrix of a tensor met, one vector a matrix.
using RowsByMatrix = std::vector<std::vector<float>>;

// The definition, in plain loops: means of squares with 32 rows of the layer's mean, over the
// matrix's largest.
std::vector<std::vector<double>> expected_importance(const RowsByMatrix& matrices,
                                                     std::size_t columns) {
  std::vector<double> layer(columns, 0.0);
  double layer_rows = 0.0;
  for (const std::vector<float>& rows : matrices) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      layer[i % columns] += static_cast<double>(rows[i]) * rows[i];
    }
    layer_rows += static_cast<double>(rows.size() / columns);
  }
  std::vector<std::vector<double>> result;
  for (const std::vector<float>& rows : matrices) {
    std::vector<double> means(columns, 0.0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      means[i % columns] += static_cast<double>(rows[i]) * rows[i];
    }
    for (std::size_t k = 0; k < columns; ++k) {
      means[k] = (means[k] + 32.0 * layer[k] / layer_rows) /
                 (static_cast<double>(rows.size() / columns) + 32.0);
    }
    const double largest = *std::max_element(means.begin(), means.end());
    for (double& mean : means) mean /= largest;
    result.push_back(std::move(means));
  }
  return result;
}

void expect_importance(const ColumnImportance& importance, const RowsByMatrix& matrices) {
  const auto columns = static_cast<std::size_t>(importance.columns);
  ASSERT_EQ(importance.matrices, std::ssize(matrices));
  const auto expected = expected_importance(matrices, columns);
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    for (std::size_t k = 0; k < columns; ++k) {
      EXPECT_NEAR(importance.of_matrix(static_cast<std::int64_t>(m))[k], expected[m][k], 1e-5)
          << "matrix " << m << " column " << k;
    }
  }
}

// Experts with one tensor for gate and up, as checkpoints have them.
class Experts {
 public:
  static constexpr std::int64_t kExperts = 3;
  static constexpr std::int64_t kHidden = 8;  // D
  static constexpr std::int64_t kInner = 5;   // F
  static constexpr std::int64_t kRows = 40;   // T
  static constexpr std::int64_t kTop = 2;

  Experts() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (auto* values : {&gate_up, &down, &x}) {
      values->resize(values == &gate_up ? kExperts * 2 * kInner * kHidden
                     : values == &down  ? kExperts * kHidden * kInner
                                        : kRows * kHidden);
      for (float& value : *values) value = normal(random);
    }
    for (std::int64_t t = 0; t < kRows; ++t) {
      for (std::int64_t r = 0; r < kTop; ++r) {
        chosen.push_back(static_cast<std::int32_t>((t + r + t / 7) % kExperts));
        weights.push_back(normal(random));
      }
    }
  }

  TensorView half(bool up) const {
    TensorView view = {.data = reinterpret_cast<const std::byte*>(gate_up.data()),
                       .shape = {kExperts, 2 * kInner, kHidden},
                       .name = "gate_up"};
    view.stack_stride = 2 * kInner * kHidden;
    if (up) skip_rows(view, kInner);
    view.shape[1] = kInner;
    return view;
  }
  TensorView down_view() const {
    return {.data = reinterpret_cast<const std::byte*>(down.data()),
            .shape = {kExperts, kHidden, kInner},
            .name = "down"};
  }
  Routing routing() { return {device(chosen.data()), device(weights.data()), kTop}; }
  ConstRows rows() const { return {device(x.data()), kRows, kHidden}; }

  // The input of the expert's down projection for row t.
  std::vector<float> inner_row(std::int64_t expert, std::int64_t t) const {
    std::vector<float> row;
    for (std::int64_t f = 0; f < kInner; ++f) {
      double gate = 0.0;
      double up = 0.0;
      for (std::int64_t k = 0; k < kHidden; ++k) {
        const auto at = [&](std::int64_t n) {
          return gate_up[static_cast<std::size_t>((expert * 2 * kInner + n) * kHidden + k)];
        };
        const double value = x[static_cast<std::size_t>(t * kHidden + k)];
        gate += value * at(f);
        up += value * at(kInner + f);
      }
      row.push_back(static_cast<float>(ref::activate(GateActivation::kSilu, gate) * up));
    }
    return row;
  }

  std::vector<float> gate_up;
  std::vector<float> down;
  std::vector<float> x;
  std::vector<std::int32_t> chosen;
  std::vector<float> weights;
};

// Output rows of the backend's experts.
std::vector<float> run_experts(Backend& backend, Experts& model, MemoryBudget& budget) {
  const auto gate = backend.load_matrix(model.half(false), Compute::kF32, budget).value();
  const auto up = backend.load_matrix(model.half(true), Compute::kF32, budget).value();
  const auto down = backend.load_matrix(model.down_view(), Compute::kF32, budget).value();
  const ExecutorPlan plan = {.max_rows = Experts::kRows,
                             .max_matmul_width = Experts::kHidden,
                             .top_k_experts = Experts::kTop,
                             .num_experts = Experts::kExperts,
                             .hidden_size = Experts::kHidden,
                             .moe_intermediate_size = Experts::kInner};
  const auto executor = backend.create_executor(plan, budget).value();
  std::vector<float> out(static_cast<std::size_t>(Experts::kRows * Experts::kHidden));
  executor->experts(model.rows(), {gate.get(), up.get(), down.get()}, model.routing(),
                    GateActivation::kSilu, {device(out.data()), Experts::kRows, Experts::kHidden});
  return out;
}

TEST(ObservingBackend, SeesTheRowsOfEachExpertAndChangesNothing) {
  MemoryBudget budget;
  Experts model;
  ObservingBackend observing(ref::create_ref_backend());
  const std::vector<float> out = run_experts(observing, model, budget);
  EXPECT_LE(max_abs_difference(out, run_experts(*ref::create_ref_backend(), model, budget)), 1e-4F);

  RowsByMatrix inputs(Experts::kExperts);
  RowsByMatrix inner(Experts::kExperts);
  for (std::int64_t i = 0; i < Experts::kRows * Experts::kTop; ++i) {
    const auto e = static_cast<std::size_t>(model.chosen[static_cast<std::size_t>(i)]);
    const std::int64_t t = i / Experts::kTop;
    const float* row = model.x.data() + t * Experts::kHidden;
    inputs[e].insert(inputs[e].end(), row, row + Experts::kHidden);
    const std::vector<float> hidden = model.inner_row(static_cast<std::int64_t>(e), t);
    inner[e].insert(inner[e].end(), hidden.begin(), hidden.end());
  }
  // The fused tensor counts once, though both of its halves were multiplied.
  EXPECT_EQ(observing.sums().at("gate_up").total_rows(), Experts::kRows * Experts::kTop);
  expect_importance(observing.sums().at("gate_up").importance(budget).value(), inputs);
  expect_importance(observing.sums().at("down").importance(budget).value(), inner);
}

// Weights of the first layer and of the head, whose inputs a test can make by itself.
class OneNetwork {
 public:
  explicit OneNetwork(const std::string& name) : dir_(network(name)) {
    model_ = open_source_model(dir_).value();
  }

  const std::string& dir() const { return dir_; }
  const SourceModel& model() const { return model_; }
  std::vector<float> values(const std::string& name) const {
    return to_f32(rows(name).parts().front()).value();
  }
  const TensorRows& rows(const std::string& name) const {
    for (const NamedTensor& tensor : model_.tensors) {
      if (tensor.name == name) return tensor.rows;
    }
    ADD_FAILURE() << name;
    return model_.tensors.front().rows;
  }
  const ColumnImportance* find(const Importance& importance, const std::string& name) const {
    return importance.find(rows(name).parts().front().name);
  }

 private:
  std::string dir_;
  SourceModel model_;
};

// Each row over its root mean square, times the weight.
std::vector<float> rms_normed(std::vector<float> rows,
                              const std::vector<float>& weight,
                              double eps) {
  const std::size_t width = weight.size();
  for (std::size_t begin = 0; begin < rows.size(); begin += width) {
    double squares = 0.0;
    for (std::size_t k = 0; k < width; ++k)
      squares += std::pow(static_cast<double>(rows[begin + k]), 2);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (std::size_t k = 0; k < width; ++k) {
      rows[begin + k] = static_cast<float>(rows[begin + k] * factor * weight[k]);
    }
  }
  return rows;
}

const std::vector<std::vector<TokenId>> kWindows = {{2, 5, 9, 100, 77, 200, 31, 8, 5},
                                                    {2, 17, 300, 44, 45, 46}};

Importance measured(const std::string& dir,
                    const CalibrationOptions& options = {.backend = {.name = "ref", .threads = {}},
                                                         .compute = Compute::kF32}) {
  // Importance outlives nothing of the measurement but its budget.
  static MemoryBudget budget;
  auto importance = measure_importance(dir, kWindows, options, budget);
  EXPECT_TRUE(importance.has_value()) << importance.error().message();
  return std::move(importance).value();
}

// The first layer's projections meet the normed embeddings.
TEST(MeasureImportance, IsTheMeanSquareOfWhatIsMultiplied) {
  for (const char* name : {"gemma4-moe", "gemma4-dense", "qwen3-untied"}) {
    SCOPED_TRACE(name);
    const OneNetwork net(name);
    const ModelConfig& config = net.model().config;
    const auto width = static_cast<std::size_t>(config.hidden_size);
    const double scale =
        config.architecture == Architecture::kGemma4 ? std::sqrt(static_cast<double>(width)) : 1.0;
    const std::vector<float> table = net.values("embed_tokens.weight");
    std::vector<float> embedded;
    for (const auto& window : kWindows) {
      for (const TokenId id : window) {
        for (std::size_t k = 0; k < width; ++k) {
          embedded.push_back(
              static_cast<float>(scale * table[static_cast<std::size_t>(id) * width + k]));
        }
      }
    }
    const std::vector<float> normed =
        rms_normed(embedded, net.values("layers.0.input_layernorm.weight"), config.rms_norm_eps);
    const Importance importance = measured(net.dir());
    for (const char* projection : {"q_proj", "k_proj"}) {
      const auto* found =
          net.find(importance, std::string("layers.0.self_attn.") + projection + ".weight");
      ASSERT_NE(found, nullptr);
      expect_importance(*found, {normed});
    }
  }
}

// Everything that would be quantised and is multiplied is known, by the name that its file has.
TEST(MeasureImportance, KnowsEveryMatrixOfEveryNetwork) {
  for (const char* name :
       {"gemma4-dense", "gemma4-moe", "gemma4-e", "gemma4-e4", "qwen3-tied", "qwen3-untied"}) {
    const OneNetwork net(name);
    const Importance importance = measured(net.dir());
    for (const NamedTensor& tensor : net.model().tensors) {
      const Shape& shape = tensor.rows.shape();
      if (shape.size() < 2) continue;
      SCOPED_TRACE(std::string(name) + " " + tensor.name);
      const auto* found = net.find(importance, tensor.name);
      const bool looked_up =
          tensor.name == "embed_tokens_per_layer.weight" ||
          (tensor.name == "embed_tokens.weight" && !net.model().config.tie_word_embeddings);
      ASSERT_EQ(found == nullptr, looked_up);
      if (looked_up) continue;
      EXPECT_EQ(found->columns, tensor.rows.columns());
      EXPECT_EQ(found->matrices, shape.size() == 3 ? shape.front() : 1);
      for (std::int64_t i = 0; i < found->matrices * found->columns; ++i) {
        const float factor = found->factors.as<float>()[i];
        ASSERT_TRUE(factor >= 0.0F && factor <= 1.0F) << i;
      }
    }
  }
}

TEST(MeasureImportance, IsTheSameOnTheCpuButForRounding) {
  const OneNetwork net("gemma4-moe");
  const Importance exact = measured(net.dir());
  const Importance fast =
      measured(net.dir(), {.backend = {.threads = {.num_threads = 2}}, .compute = Compute::kF32});
  for (const char* name : {"layers.1.experts.down_proj", "embed_tokens.weight"}) {
    const auto* a = net.find(exact, name);
    const auto* b = net.find(fast, name);
    ASSERT_TRUE(a != nullptr && b != nullptr);
    for (std::int64_t i = 0; i < a->matrices * a->columns; ++i) {
      // Sums of f32 in another order, which random networks amplify (docs/testing.md).
      ASSERT_NEAR(a->factors.as<float>()[i], b->factors.as<float>()[i], 1e-3F) << name << " " << i;
    }
  }
}

TEST(MeasureImportance, IsChargedAndGivesBackAllButItself) {
  const OneNetwork net("gemma4-moe");
  const CalibrationOptions options = {.backend = {.threads = {.num_threads = 1}}};
  MemoryBudget budget;
  {
    const auto importance = measure_importance(net.dir(), kWindows, options, budget);
    ASSERT_TRUE(importance.has_value());
    std::uint64_t bytes = 0;
    for (const NamedTensor& tensor : net.model().tensors) {
      const auto* found = net.find(*importance, tensor.name);
      if (found != nullptr) bytes += found->factors.size();
    }
    EXPECT_EQ(budget.footprint().total_reserved(), bytes);
  }
  EXPECT_EQ(budget.footprint().total_reserved(), 0U);
  MemoryBudget little(100'000);
  EXPECT_EQ(measure_importance(net.dir(), kWindows, options, little).error().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(little.footprint().total_reserved(), 0U);
}

TEST(MeasureImportance, EndsWhenItIsToldTo) {
  const OneNetwork net("qwen3-tied");
  MemoryBudget budget;
  std::uint64_t seen = 0;
  const auto stopped =
      measure_importance(net.dir(), kWindows,
                         {.backend = {.name = "ref", .threads = {}},
                          .progress = [&](std::uint64_t done, std::uint64_t total) -> Status {
                            seen = done;
                            EXPECT_EQ(total, 15U);
                            return error(StatusCode::kCancelled, "enough");
                          }},
                         budget);
  EXPECT_EQ(stopped.error().code(), StatusCode::kCancelled);
  EXPECT_EQ(seen, 9U);
}

}  // namespace
}  // namespace kakeya::test
