#include "backend/mlx/mlx_backend.h"

#include <mlx/mlx.h>

#include <utility>

#include "backend/mlx/mlx_executor.h"
#include "backend/mlx/mlx_matrix.h"
#include "backend/mlx/mlx_space.h"
#include "backend/mlx/mlx_status.h"
#include "base/status.h"
#include "tensor/finite.h"

namespace kakeya::mlx {
namespace {

constexpr std::uint64_t kFloat = sizeof(float);

class MlxBackend final : public Backend {
 public:
  explicit MlxBackend(std::unique_ptr<MlxSpace> space) : space_(std::move(space)) {}

  std::string_view name() const override { return "mlx/cpu"; }
  int num_threads() const override { return 1; }
  MemorySpace& memory() const override { return *space_; }
  MlxSpace& space() const { return *space_; }

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override {
    const std::int64_t rows = num_elements(weight.shape) / weight.shape.back();
    for (std::int64_t row = 0; row < rows; ++row) {
      if (find_non_finite(weight, source_row(weight, row), 1)) {
        return data_loss("not all numbers are finite");
      }
    }
    KAKEYA_ASSIGN_OR_RETURN(
        Buffer charged,
        budget.allocate(MemoryClass::kWeights, loaded_bytes(weight, compute), *space_));
    return caught([&]() -> Result<std::unique_ptr<Matrix>> {
      return load_weights(weight, compute, std::move(charged), space_->stream());
    });
  }

  std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) const override {
    return MemoryBudget::charged_bytes(loaded_bytes(weight, compute));
  }

  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override {
    return std::make_unique<MlxMatrix>(weight);
  }

  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override {
    KAKEYA_ASSIGN_OR_RETURN(
        Buffer scratch, budget.allocate(MemoryClass::kActivations, executor_bytes(plan), *space_));
    return std::make_unique<MlxExecutor>(*space_, std::move(scratch));
  }

  // Arrays that are alive at once while one operation runs, beside the rows that callers have. What
  // attention gathers grows with the context and is not in here.
  std::uint64_t executor_bytes(const ExecutorPlan& plan) const override {
    const std::int64_t row =
        4 * plan.max_matmul_width + 6 * plan.max_query_width +
        plan.top_k_experts * (4 * plan.moe_intermediate_size + 2 * plan.hidden_size);
    return MemoryBudget::charged_bytes(static_cast<std::uint64_t>(plan.max_rows * row) * kFloat);
  }

 private:
  std::unique_ptr<MlxSpace> space_;
};

}  // namespace

std::string_view missing() {
  return "";
}

Result<std::unique_ptr<Backend>> create_mlx_backend() {
  return caught([]() -> Result<std::unique_ptr<Backend>> {
    KAKEYA_ASSIGN_OR_RETURN(auto space, MlxSpace::create());
    return std::make_unique<MlxBackend>(std::move(space));
  });
}

Counters counters(const Backend& backend) {
  MlxSpace& space = static_cast<const MlxBackend&>(backend).space();
  const std::lock_guard lock(space.mutex());
  Counters counters = space.counters();
  counters.active_bytes = mx::get_active_memory();
  counters.cached_bytes = mx::get_cache_memory();
  return counters;
}

}  // namespace kakeya::mlx
