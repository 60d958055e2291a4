// A product of one row within the launch of the outputs of experts, on emulated cards: where it
// goes there, and that it has the bits that it has by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend_fixture.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_recorder.h"
#include "backend/cuda/fuse.h"
#include "formats/quantized_tensors.h"
#include "model/test_model.h"

namespace kakeya::cuda {
namespace {

// The MLP beside experts in a layer.
struct BothShapes {
  std::int64_t columns;
  std::int64_t dense_width;
  std::int64_t expert_width;
  std::int64_t top_k;
  std::int64_t outputs = 0;  // of the MLP; 0: columns
  QuantizedFormat down = QuantizedFormat::kQ40;
};

class CudaOutputs : public testing::Test {
 protected:
  CudaOutputs() {
    auto driver = std::make_unique<Recorder>();
    driver_ = driver.get();
    backend_ = create_backend_on(std::move(driver), 1);
    ExecutorPlan plan = roomy_plan();
    plan.num_experts = 11;
    plan.top_k_experts = 9;
    plan.hidden_size = 3040;
    plan.moe_intermediate_size = 704;
    executor_ = backend_->create_executor(plan, budget_).value();
  }

  const Matrix& matrix(const Shape& shape, QuantizedFormat format = QuantizedFormat::kQ40) {
    QuantizedTensor tensor = QuantizedTensors(++seed_).blocks(format, shape);
    matrices_.push_back(backend_->load_matrix(tensor.view, Compute::kFast, budget_).value());
    return *matrices_.back();
  }

  // Records the MLP and then the experts of rows, with `between` behind the first.
  template <typename Between>
  void record(const BothShapes& shapes, std::int64_t rows, const Between& between) {
    const std::int64_t outputs = shapes.outputs == 0 ? shapes.columns : shapes.outputs;
    x_ = random_floats(static_cast<std::size_t>(rows * shapes.columns), ++seed_, 3.0F);
    hidden_.assign(static_cast<std::size_t>(rows * shapes.dense_width), NAN);
    of_mlp_.assign(static_cast<std::size_t>(rows * outputs), NAN);
    of_experts_.assign(x_.size(), NAN);
    const auto pairs = static_cast<std::size_t>(rows * shapes.top_k);
    chosen_.resize(pairs);
    for (std::size_t i = 0; i < pairs; ++i) chosen_[i] = static_cast<std::int32_t>(i * 7 % 11);
    weights_ = random_floats(pairs, ++seed_);
    const Matrix& gate = matrix({shapes.dense_width, shapes.columns});
    const Matrix& up = matrix({shapes.dense_width, shapes.columns});
    const Matrix& down = matrix({outputs, shapes.dense_width}, shapes.down);
    const Matrix& gates = matrix({11, shapes.expert_width, shapes.columns});
    const Matrix& ups = matrix({11, shapes.expert_width, shapes.columns});
    const Matrix& downs = matrix({11, shapes.columns, shapes.expert_width});
    driver_->ran.clear();
    executor_->gated_matmul(rows_of(x_, shapes.columns), gate, up, GateActivation::kGeluTanh,
                            rows_of(hidden_, shapes.dense_width));
    executor_->matmul(rows_of(hidden_, shapes.dense_width), down, rows_of(of_mlp_, outputs));
    between();
    executor_->experts(
        rows_of(x_, shapes.columns), {&gates, &ups, &downs},
        {kakeya::device(chosen_.data()), kakeya::device(weights_.data()), shapes.top_k},
        GateActivation::kGeluTanh, rows_of(of_experts_, shapes.columns));
  }

  // Runs launches anew, and returns what they make.
  std::vector<float> made_by(const LaunchList& launches) {
    std::fill(of_mlp_.begin(), of_mlp_.end(), NAN);
    std::fill(of_experts_.begin(), of_experts_.end(), NAN);
    EXPECT_TRUE(driver_->launch(launches));
    std::vector<float> made = of_mlp_;
    made.insert(made.end(), of_experts_.begin(), of_experts_.end());
    return made;
  }

  // The names of what was recorded, fused, which is to make what it makes by itself.
  std::string fused_names(std::int64_t rows) {
    const LaunchList alone = driver_->ran;
    const FusedLaunches fused = fuse(alone, rows);
    const std::vector<float> expected = made_by(alone);
    const std::vector<float> got = made_by(fused.launches);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(expected[i]) == std::bit_cast<std::uint32_t>(got[i]))
        continue;
      ADD_FAILURE() << got[i] << " instead of " << expected[i] << " at " << i;
      break;
    }
    return names_of(fused.launches);
  }

  Recorder* driver_;
  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<Matrix>> matrices_;
  std::vector<float> x_;
  std::vector<float> hidden_;
  std::vector<float> of_mlp_;
  std::vector<float> of_experts_;
  std::vector<std::int32_t> chosen_;
  std::vector<float> weights_;
  unsigned seed_ = 90;
};

constexpr const char* kJoined = "row_steps plain_expert_hidden plain_expert_hidden plain_outputs";

// Blocks of one to eight warps, of which one strip or two share them; a last block with one strip
// of two; strips with fewer outputs than sixteen.
TEST_F(CudaOutputs, TakeAProductThatNobodyWaitsFor) {
  const BothShapes shapes[] = {{64, 32, 32, 1},   {96, 96, 64, 2},       {128, 416, 32, 3},
                               {160, 160, 96, 4}, {64, 2112, 704, 8},    {128, 64, 128, 5, 104},
                               {352, 608, 64, 8}, {128, 224, 32, 7, 40}, {64, 96, 32, 8, 8}};
  for (const BothShapes& each : shapes) {
    record(each, 1, [] {});
    EXPECT_EQ(fused_names(1), kJoined) << each.columns << " " << each.top_k;
  }
}

TEST_F(CudaOutputs, LeaveAProductThatIsReadBetween) {
  const BothShapes shapes = {128, 96, 64, 2};
  std::vector<float> doubled(128);
  record(shapes, 1, [&] {
    executor_->add(rows_of(std::as_const(of_mlp_), 128), rows_of(std::as_const(of_mlp_), 128), 1.0F,
                   rows_of(doubled, 128));
  });
  EXPECT_EQ(
      fused_names(1),
      "row_steps plain_expert_hidden plain_product add plain_expert_hidden plain_expert_output");
}

TEST_F(CudaOutputs, LeaveProductsOfOtherKernels) {
  const std::string names =
      "row_steps plain_expert_hidden split_integer_product plain_expert_hidden plain_expert_output";
  record({128, 256, 64, 2, 0, QuantizedFormat::kQ80}, 1, [] {});
  EXPECT_EQ(fused_names(1), names);
  record({128, 96, 64, 2}, 2, [] {});
  EXPECT_EQ(fused_names(2).find("plain_outputs"), std::string::npos);
}

// A decoded token of the demo model's shape, with attention in parts.
TEST(CudaLaunchesOfAToken, AreTenALayer) {
  const RecordedModel recorded(2);
  ASSERT_NE(recorded.model, nullptr);
  const auto timeline = recorded.model->timeline({.context = 264, .max_rows = 257}, 257);
  test::run(*timeline, test::random_ids(257, 5), {}, 257);
  recorded.recorder->ran.clear();
  test::run(*timeline, test::random_ids(1, 6), {}, 1);
  const LaunchList fused = fuse(recorded.recorder->ran, 1).launches;
  const std::string layer =
      "residual_steps plain_product head_steps joined_attention_part "
      "plain_product residual_steps plain_expert_hidden early_route "
      "plain_expert_hidden plain_outputs ";
  const std::string names = names_of(fused);
  // The first layer begins with the steps of embeddings.
  EXPECT_NE(names.find(layer.substr(layer.find(' ')) + layer), std::string::npos) << names;
}

}  // namespace
}  // namespace kakeya::cuda
