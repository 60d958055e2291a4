// Memory for passes is replaced in place: what is given back for it makes room for what is larger.
#include "decode/workspace.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "model/test_model.h"

namespace kakeya::test {
namespace {

WorkspacePlan plan_of(std::int64_t rows) {
  WorkspacePlan plan;
  plan.executor = {.max_rows = rows,
                   .max_sequences = 1,
                   .max_matmul_width = 256,
                   .max_query_width = 256,
                   .max_head_dim = 64,
                   .max_positions = 256,
                   .max_kv_numbers = 256 * 64,
                   .hidden_size = 256};
  plan.activation_bytes = float_bytes(rows, 4096);
  plan.logit_bytes = float_bytes(rows, 1000);
  return plan;
}

std::unique_ptr<Backend> cpu() {
  return create_backend({.name = "cpu", .threads = {.num_threads = 1, .pin = false}}).value();
}

TEST(Workspace, GrowsWhereThereIsRoomForTheLargerOneAlone) {
  const auto backend = cpu();
  const WorkspacePlan large = plan_of(64);
  MemoryBudget budget(estimate_workspace(large, *backend).total_reserved());
  Workspace workspace(*backend, budget);
  for (const std::int64_t rows : {1, 40, 64}) {
    ASSERT_OK(workspace.reserve(plan_of(rows)));
    EXPECT_EQ(budget.footprint().total_reserved(), workspace.footprint().total_reserved());
  }
  EXPECT_EQ(workspace.plan(), large);
  EXPECT_EQ(budget.free_host_bytes(), 0u);
}

TEST(Workspace, StaysWhatItIsWhereALargerOneIsRefused) {
  const auto backend = cpu();
  MemoryBudget budget(estimate_workspace(plan_of(63), *backend).total_reserved());
  Workspace workspace(*backend, budget);
  ASSERT_OK(workspace.reserve(plan_of(40)));
  const Status refused = workspace.reserve(plan_of(64));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(workspace.plan(), plan_of(40));
  EXPECT_EQ(budget.footprint().total_reserved(), workspace.footprint().total_reserved());
  const auto turn = workspace.take_turn();
  EXPECT_EQ(workspace.logits(40, 1000).count, 40);
}

TEST(Workspace, SmallerOnesTakeNoRoomToBecomeSo) {
  const auto backend = cpu();
  MemoryBudget budget(estimate_workspace(plan_of(64), *backend).total_reserved());
  Workspace workspace(*backend, budget);
  {
    const auto large = workspace.reserve_for_now(plan_of(64));
    ASSERT_OK(large);
    const auto small = workspace.reserve_for_now(plan_of(60));
    ASSERT_OK(small);
  }
  EXPECT_EQ(budget.footprint().total_reserved(), 0u);
}

TEST(MemoryBudget, KeepsWhatIsExchangedFromOthers) {
  MemoryBudget budget(1024);
  auto old = budget.allocate(MemoryClass::kActivations, 1024);
  ASSERT_OK(old);
  const auto others_get = [&](std::uint64_t bytes) {
    bool got = false;
    std::thread([&] { got = budget.allocate(MemoryClass::kKvFull, bytes).has_value(); }).join();
    return got;
  };
  {
    const MemoryBudget::Exchange exchange(budget);
    *old = Buffer();
    EXPECT_FALSE(others_get(64));
    EXPECT_EQ(budget.free_host_bytes(), 0u);
    EXPECT_FALSE(budget.allocate(MemoryClass::kActivations, 1025).has_value());
    old = budget.allocate(MemoryClass::kActivations, 640);
    ASSERT_OK(old);
    EXPECT_FALSE(others_get(64));
  }
  EXPECT_TRUE(others_get(384));
  EXPECT_FALSE(others_get(385));
}

}  // namespace
}  // namespace kakeya::test
