// Wrong variants of the networks, each a mistake that is easily made. They must miss the goldens by
// more than ten times the tolerance, or the goldens would not notice them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "backend/host_rows.h"
#include "backend/ref/ref_backend.h"
#include "backend/ref/ref_executor.h"
#include "base/status.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

using Edit = std::function<void(std::string_view name, std::vector<float>& values)>;

// A checkpoint whose one-dimensional tensors pass through an edit.
class EditedSource final : public TensorSource {
 public:
  EditedSource(TensorSource& source, Edit edit) : source_(source), edit_(std::move(edit)) {}

  Result<TensorView> tensor(std::string_view name) override {
    KAKEYA_ASSIGN_OR_RETURN(TensorView view, source_.tensor(name));
    if (view.shape.size() != 1) return view;
    KAKEYA_ASSIGN_OR_RETURN(values_, to_f32(view));
    edit_(name, values_);
    view.data = reinterpret_cast<const std::byte*>(values_.data());
    view.dtype = DType::kF32;
    return view;
  }
  Result<TensorView> describe(std::string_view name) const override {
    return source_.describe(name);
  }
  bool has(std::string_view name) const override { return source_.has(name); }
  bool is_persistent(std::string_view /*name*/) const override { return true; }

 private:
  TensorSource& source_;
  Edit edit_;
  std::vector<float> values_;
};

class ErfGeluExecutor final : public ref::RefExecutor {
 public:
  void gated_matmul(
      ConstRows x, const Matrix& gate, const Matrix& up, GateActivation, Rows out) override {
    std::vector<float> other(static_cast<std::size_t>(out.count * out.width));
    matmul(x, gate, out);
    matmul(x, up, {device(other.data()), out.count, out.width});
    for (std::size_t i = 0; i < other.size(); ++i) {
      const double g = host_row(out, 0)[i];
      host_row(out, 0)[i] =
          static_cast<float>(0.5 * g * (1.0 + std::erf(g / std::numbers::sqrt2)) * other[i]);
    }
  }
};

// Scales the probabilities before the best are chosen and renormalised. (Scaling after the choice
// and renormalising then would change nothing but a factor, which post_feedforward_layernorm_2
// removes.)
class ScaleFirstExecutor final : public ref::RefExecutor {
 public:
  void route(ConstRows logits,
             DevicePointer<const float> per_expert_scale,
             Routing routing) override {
    std::vector<float> scaled(host_row(logits, 0), host_row(logits, logits.count));
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      scaled[i] += std::log(per_expert_scale.address()[i % static_cast<std::size_t>(logits.width)]);
    }
    const std::vector<float> ones(static_cast<std::size_t>(logits.width), 1.0F);
    RefExecutor::route({device(scaled.data()), logits.count, logits.width}, device(ones.data()),
                       routing);
  }
};

// The reference backend with another executor.
template <typename MutantExecutor>
class MutantBackend final : public Backend {
 public:
  std::string_view name() const override { return "mutant"; }
  int num_threads() const override { return 1; }
  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override {
    return ref_->load_matrix(weight, compute, budget);
  }
  std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) const override {
    return ref_->matrix_bytes(weight, compute);
  }
  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override {
    return ref_->map_table(weight);
  }
  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan&, MemoryBudget&) override {
    return std::make_unique<MutantExecutor>();
  }
  std::uint64_t executor_bytes(const ExecutorPlan&) const override { return 0; }

 private:
  std::unique_ptr<Backend> ref_ = ref::create_ref_backend();
};

struct Variant {
  std::string network;
  std::function<void(ModelConfig&)> edit_config = [](ModelConfig&) {};
  Edit edit_tensor = [](std::string_view, std::vector<float>&) {};
  std::unique_ptr<Backend> backend = ref::create_ref_backend();
};

// How far the variant's logits are from the golden ones.
float distance(Variant variant) {
  const std::string dir = std::string(KAKEYA_TEST_DATA) + "/networks/" + variant.network;
  ModelConfig config = load_model_config(dir).value();
  variant.edit_config(config);
  const auto checkpoint = CheckpointSource::open(dir, config).value();
  EditedSource source(*checkpoint, variant.edit_tensor);
  const auto model = TestModel::load(config, source, std::move(variant.backend), Compute::kF32);
  const auto golden = SafetensorsFile::open(dir + "/golden.safetensors").value();
  const auto timeline = model->timeline({.context = 256, .max_rows = 64}, 64);
  const auto record = run(*timeline, golden_ids(golden, "input_ids"), {}, 64);
  return max_abs_difference(record.logits, golden_floats(golden, "logits"));
}

bool is_norm(std::string_view name) {
  return name.find("norm") != std::string_view::npos;
}

TEST(WrongVariants, NoneOfThemMeansNoDistance) {
  EXPECT_LE(distance({.network = "gemma4-dense"}), 2.4e-4F);
  EXPECT_LE(distance({.network = "gemma4-moe"}), 3e-4F);
}

TEST(WrongVariants, ANormOfOnePlusTheWeightIsFarOff) {
  EXPECT_GT(distance({.network = "gemma4-dense",
                      .edit_tensor =
                          [](std::string_view name, std::vector<float>& values) {
                            if (!is_norm(name)) return;
                            for (float& value : values) value += 1.0F;
                          }}),
            2.4e-3F);
}

TEST(WrongVariants, GeluWithErfIsFarOff) {
  EXPECT_GT(distance({.network = "gemma4-dense",
                      .backend = std::make_unique<MutantBackend<ErfGeluExecutor>>()}),
            2.4e-3F);
}

TEST(WrongVariants, AWindowOneTooLongOrTooShortIsFarOff) {
  EXPECT_GT(distance({.network = "gemma4-dense",
                      .edit_config = [](ModelConfig& config) { ++config.sliding_window; }}),
            2.4e-3F);
  EXPECT_GT(distance({.network = "gemma4-dense",
                      .edit_config = [](ModelConfig& config) { --config.sliding_window; }}),
            2.4e-3F);
}

TEST(WrongVariants, LayerScalarsOfOneAreFarOff) {
  EXPECT_GT(distance({.network = "gemma4-dense",
                      .edit_tensor =
                          [](std::string_view name, std::vector<float>& values) {
                            if (name.ends_with("layer_scalar")) values.front() = 1.0F;
                          }}),
            2.4e-3F);
}

TEST(WrongVariants, ExpertScalesBeforeRenormalisationAreFarOff) {
  EXPECT_GT(distance({.network = "gemma4-moe",
                      .backend = std::make_unique<MutantBackend<ScaleFirstExecutor>>()}),
            3e-3F);
}

TEST(WrongVariants, ARopeDenominatorOfTheRotatedPartIsFarOff) {
  // theta^(-2i / rotated) is theta'^(-2i / head_dim) with theta' = theta^(head_dim / rotated).
  EXPECT_GT(distance({.network = "gemma4-dense",
                      .edit_config =
                          [](ModelConfig& config) {
                            config.rope_full.rope_theta =
                                std::pow(config.rope_full.rope_theta,
                                         1.0 / config.rope_full.partial_rotary_factor);
                          }}),
            2.4e-3F);
}

}  // namespace
}  // namespace kakeya::test
