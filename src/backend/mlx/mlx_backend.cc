#include "backend/mlx/mlx_backend.h"

#include <mlx/mlx.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "backend/mlx/mlx_executor.h"
#include "backend/mlx/mlx_matrix.h"
#include "backend/mlx/mlx_space.h"
#include "backend/mlx/mlx_status.h"
#include "base/status.h"
#include "tensor/finite.h"
#include "tensor/stacked_rows.h"

namespace kakeya::mlx {
namespace {

constexpr std::uint64_t kFloat = sizeof(float);
// What freed arrays of a GPU leave for further ones; by itself MLX keeps as much as there is.
constexpr std::size_t kKeptBytes = std::size_t{256} << 20;

class MlxBackend final : public Backend {
 public:
  MlxBackend(std::unique_ptr<MlxSpace> space, std::string name)
      : space_(std::move(space)), name_(std::move(name)) {}

  std::string_view name() const override { return name_; }
  bool is_row_invariant() const override { return space_->stream().device == mx::Device::cpu; }
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
    // Composed, a route compares each expert with every other one.
    const std::int64_t compared = space_->composes() ? plan.num_experts * plan.num_experts : 0;
    const std::int64_t row =
        4 * plan.max_matmul_width + 6 * plan.max_query_width + 2 * compared +
        plan.top_k_experts * (4 * plan.moe_intermediate_size + 2 * plan.hidden_size);
    return MemoryBudget::charged_bytes(static_cast<std::uint64_t>(plan.max_rows * row) * kFloat);
  }

 private:
  std::unique_ptr<MlxSpace> space_;
  const std::string name_;
};

// What is in use stays resident, where the system can keep it so, and little is kept beside.
void use_memory_of_gpu() {
  mx::set_cache_limit(kKeptBytes);
  const auto most = device_number(mx::Device::gpu, "max_recommended_working_set_size");
  if (!most) return;
  static_cast<void>(caught([&]() -> Status {
    mx::set_wired_limit(*most);
    return {};
  }));
}

}  // namespace

std::string_view missing() {
  return "";
}

std::optional<DeviceDescription> gpu() {
  const mx::Device device = mx::Device::gpu;
  const auto described = caught([&]() -> Result<DeviceDescription> {
    if (!mx::is_available(device)) {
      return error(StatusCode::kFailedPrecondition, "MLX finds no GPU here");
    }
    DeviceDescription description;
    const auto& facts = mx::device_info(device);
    const auto text = [&](const char* name) {
      const auto found = facts.find(name);
      const bool known = found != facts.end() && std::holds_alternative<std::string>(found->second);
      return known ? std::get<std::string>(found->second) : std::string("unknown");
    };
    description.name = text("device_name");
    description.capability = text("architecture");
    description.memory_bytes =
        device_number(device, "max_recommended_working_set_size").value_or(0);
    description.free_bytes =
        description.memory_bytes -
        std::min<std::uint64_t>(description.memory_bytes, mx::get_active_memory());
    return description;
  });
  return described ? std::optional(*described) : std::nullopt;
}

Result<std::unique_ptr<Backend>> create_mlx_backend(std::string_view device) {
  if (device != "" && device != "cpu" && device != "gpu" && device != "composed") {
    return invalid_argument(
        "EngineOptions::backend must be mlx, mlx/cpu, mlx/gpu or mlx/composed but is 'mlx/{}'",
        device);
  }
  return caught([&]() -> Result<std::unique_ptr<Backend>> {
    const bool has_gpu = mx::is_available(mx::Device::gpu);
    if (device == "gpu" && !has_gpu) {
      return error(StatusCode::kFailedPrecondition,
                   "backend mlx/gpu is not available: MLX finds no GPU here");
    }
    const bool on_gpu = device == "gpu" || (device.empty() && has_gpu);
    if (on_gpu) use_memory_of_gpu();
    KAKEYA_ASSIGN_OR_RETURN(auto space,
                            MlxSpace::create(on_gpu ? mx::Device::gpu : mx::Device::cpu,
                                             /*composes=*/on_gpu || device == "composed"));
    std::string name = on_gpu ? "mlx/gpu" : device == "composed" ? "mlx/composed" : "mlx/cpu";
    return std::make_unique<MlxBackend>(std::move(space), std::move(name));
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
