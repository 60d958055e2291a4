// Routers of one row, and the choice of experts, on emulated cards.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/backend_fixture.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_recorder.h"
#include "backend/cuda/device/math.h"
#include "backend/cuda/device/params.h"
#include "backend/cuda/fuse.h"
#include "backend/emulated/emulated_driver.h"

namespace kakeya::cuda {
namespace {

class CudaRouter : public testing::Test {
 protected:
  CudaRouter()
      : backend_(create_emulated_backend({.seed = 7, .allows_host_memory = true}).value()) {
    ExecutorPlan plan = roomy_plan();
    plan.num_experts = device::kMaxExperts;
    plan.hidden_size = 4096;
    executor_ = backend_->create_executor(plan, budget_).value();
  }

  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> executor_;
};

bool have_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float one, float other) {
    return std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(other);
  });
}

// A row by itself has kernels that several rows have not.
TEST_F(CudaRouter, MultipliesARowAsBesideOthers) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const std::int64_t columns : {8, 136, 264, 1032, 2816, 4096}) {
      for (const std::int64_t outputs : {1, 6, 128}) {
        if (columns > 2000 && outputs == 128) continue;
        const Tensor w = random_tensor({outputs, columns}, dtype, 2, 0.1F);
        const auto matrix = backend_->load_matrix(w.view, Compute::kF32, budget_).value();
        auto x = random_floats(static_cast<std::size_t>(2 * columns), 3);
        // Products that are rounded to a zero with a sign.
        for (std::int64_t i = 0; i < columns; ++i) x[static_cast<std::size_t>(i)] *= -1e-44F;
        std::vector<float> together(static_cast<std::size_t>(2 * outputs), NAN);
        executor_->matmul(rows_of(std::as_const(x), columns), *matrix, rows_of(together, outputs));
        std::vector<float> alone;
        for (std::int64_t row = 0; row < 2; ++row) {
          const std::vector<float> own(x.begin() + row * columns, x.begin() + (row + 1) * columns);
          std::vector<float> out(static_cast<std::size_t>(outputs), NAN);
          executor_->matmul(rows_of(own, columns), *matrix, rows_of(out, outputs));
          alone.insert(alone.end(), out.begin(), out.end());
        }
        EXPECT_TRUE(have_same_bits(alone, together)) << columns << " columns, " << outputs;
      }
    }
  }
}

struct Chosen {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

// Numbers before those that are none, larger ones first, of equal ones the first.
Chosen choose(const float* logits,
              std::int64_t count,
              const std::vector<float>& scale,
              std::int64_t top_k) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    if (std::isnan(logits[a]) || std::isnan(logits[b]))
      return !std::isnan(logits[a]) && std::isnan(logits[b]);
    return logits[a] > logits[b];
  });
  order.resize(static_cast<std::size_t>(top_k));
  std::vector<double> powers;
  double total = 0.0;
  for (const std::int32_t e : order) {
    powers.push_back(device::exp(static_cast<double>(logits[e]) - logits[order[0]]));
    total = total + powers.back();
  }
  Chosen chosen = {order, {}};
  for (std::size_t i = 0; i < order.size(); ++i) {
    chosen.weights.push_back(
        static_cast<float>(powers[i] / total * scale[static_cast<std::size_t>(order[i])]));
  }
  return chosen;
}

TEST_F(CudaRouter, ChoosesTheLargestInTheirOrder) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [experts, top_k] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1},
                                                          {2, 2},
                                                          {6, 3},
                                                          {11, 8},
                                                          {16, 1},
                                                          {33, 32},
                                                          {100, 5},
                                                          {128, 8},
                                                          {130, 9},
                                                          {1024, 32}}) {
    constexpr std::int64_t kTested = 6;
    const auto n = static_cast<std::size_t>(experts);
    auto logits = random_floats(kTested * n, 5, 3.0F);
    auto scale = random_floats(n, 6);
    for (std::size_t i = 0; i < n; ++i) {
      logits[n + i] = std::round(logits[n + i]);                   // ties
      logits[2 * n + i] = i % 3 == 0 ? 0.0F : -0.0F;               // equal, too
      logits[3 * n + i] = i % 4 != 1 ? kNone : logits[3 * n + i];  // too few numbers
      if (i % 5 == 2) logits[4 * n + i] = i % 2 == 0 ? INFINITY : -INFINITY;
      logits[5 * n + i] = kNone;
    }
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(kTested * top_k), -1);
    std::vector<float> weights(chosen.size());
    executor_->route(rows_of(std::as_const(logits), experts),
                     kakeya::device(std::as_const(scale).data()),
                     {kakeya::device(chosen.data()), kakeya::device(weights.data()), top_k});
    for (std::int64_t row = 0; row < kTested; ++row) {
      const Chosen expected = choose(logits.data() + row * experts, experts, scale, top_k);
      for (std::int64_t rank = 0; rank < top_k; ++rank) {
        const auto at = static_cast<std::size_t>(row * top_k + rank);
        const auto i = static_cast<std::size_t>(rank);
        ASSERT_EQ(chosen[at], expected.experts[i]) << experts << " experts, row " << row;
        const bool is_none = std::isnan(expected.weights[i]);
        ASSERT_EQ(std::isnan(weights[at]), is_none);
        if (!is_none) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(weights[at]),
                    std::bit_cast<std::uint32_t>(expected.weights[i]));
        }
      }
    }
  }
}

// A router of one row with its choice: blocks of eight experts each, a last one with fewer.
TEST(CudaRouterOfOneRow, ChoosesInTheLaunchThatMakesItsLogits) {
  auto driver = std::make_unique<Recorder>();
  Recorder* const recorder = driver.get();
  const auto backend = create_backend_on(std::move(driver), 1);
  MemoryBudget budget;
  ExecutorPlan plan = roomy_plan();
  plan.num_experts = 256;
  const auto executor = backend->create_executor(plan, budget).value();
  for (const auto& [experts, top_k, rows] : std::vector<std::array<std::int64_t, 3>>{
           {1, 1, 1}, {6, 3, 1}, {11, 8, 1}, {128, 8, 1}, {253, 32, 1}, {128, 8, 2}}) {
    const Tensor w = random_tensor({experts, 264}, DType::kBF16, 2, 0.1F);
    const auto matrix = backend->load_matrix(w.view, Compute::kF32, budget).value();
    const auto x = random_floats(static_cast<std::size_t>(rows * 264), 3);
    const auto scale = random_floats(static_cast<std::size_t>(experts), 4);
    std::vector<float> logits(static_cast<std::size_t>(rows * experts));
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(rows * top_k), -1);
    std::vector<float> weights(chosen.size(), NAN);
    recorder->ran.clear();
    executor->matmul(rows_of(x, 264), *matrix, rows_of(logits, experts));
    executor->route(rows_of(std::as_const(logits), experts), kakeya::device(scale.data()),
                    {kakeya::device(chosen.data()), kakeya::device(weights.data()), top_k});
    const LaunchList alone = recorder->ran;
    const LaunchList fused = fuse(alone, rows).launches;
    EXPECT_EQ(names_of(fused) == "early_route", rows == 1) << names_of(fused);
    const auto expected = std::tuple(logits, chosen, weights);
    std::fill(chosen.begin(), chosen.end(), -1);
    std::fill(weights.begin(), weights.end(), NAN);
    std::fill(logits.begin(), logits.end(), NAN);
    ASSERT_TRUE(recorder->launch(fused));
    EXPECT_EQ(std::tuple(logits, chosen, weights), expected) << experts;
  }
}

}  // namespace
}  // namespace kakeya::cuda
