#include "backend/mlx/mlx_backend.h"

#include <mlx/mlx.h>

#include <algorithm>
#include <cstdlib>
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
// The bytes of freed arrays that MLX keeps for further ones on a GPU; by itself it keeps as much as
// there is.
constexpr std::size_t kKeptBytes = std::size_t{256} << 20;

// The bytes that attention gathers: stored rows, as numbers, keys that are made of them, turned,
// and copies in the order in which products want them; scores, and what each query sees.
std::uint64_t gathered_bytes(const ExecutorPlan& plan) {
  constexpr std::int64_t kCopies = 9;
  const std::int64_t heads = plan.max_head_dim == 0 ? 0 : plan.max_query_width / plan.max_head_dim;
  const std::int64_t scores = plan.max_rows * heads * plan.max_positions;
  return static_cast<std::uint64_t>(kCopies * plan.max_kv_numbers + scores) * kFloat +
         static_cast<std::uint64_t>(scores);
}

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

  // Arrays that are alive at once while one operation runs, beside the rows that callers have.
  std::uint64_t executor_bytes(const ExecutorPlan& plan) const override {
    // Composed, a route compares each expert with every other one.
    const bool compares = space_->operations() == RowOperationsKind::kComposed;
    const std::int64_t compared = compares ? plan.num_experts * plan.num_experts : 0;
    const std::int64_t row =
        4 * plan.max_matmul_width + 6 * plan.max_query_width + 2 * compared +
        plan.top_k_experts * (4 * plan.moe_intermediate_size + 3 * plan.hidden_size);
    return MemoryBudget::charged_bytes(static_cast<std::uint64_t>(plan.max_rows * row) * kFloat) +
           MemoryBudget::charged_bytes(gathered_bytes(plan));
  }

 private:
  std::unique_ptr<MlxSpace> space_;
  const std::string name_;
};

// Keeps memory in use resident, where the system can, and little beside it.
void use_memory_of_gpu() {
  mx::set_cache_limit(kKeptBytes);
  const auto most = device_number(mx::Device::gpu, "max_recommended_working_set_size");
  if (!most) return;
  static_cast<void>(caught([&]() -> Status {
    mx::set_wired_limit(*most);
    return {};
  }));
}

// Why the GPU runs MLX's operations where this backend has kernels; empty if it runs the kernels.
// Asked before the GPU is used.
const std::string& kernels_refused() {
  static const std::string kReason = [] {
    // By itself MLX multiplies several rows of f32 with 10 bits of fraction on GPUs that can (of
    // the M5 and later), and a single row with all of them. Whoever wants that sets it to 1.
    ::setenv("MLX_ENABLE_TF32", "0", /*replace=*/0);  // NOLINT(concurrency-mt-unsafe): once
    const mx::Stream stream = mx::new_thread_unsafe_stream(mx::Device::gpu);
    return compare_operations(*kernel_operations(stream), *composed_operations(stream));
  }();
  return kReason;
}

struct Choice {
  mx::Device device;
  RowOperationsKind operations;
  std::string_view name;
};

// kInvalidArgument, kFailedPrecondition.
Result<Choice> choose(std::string_view device) {
  if (device == "cpu") return Choice{mx::Device::cpu, RowOperationsKind::kComposed, "mlx/cpu"};
  if (!device.empty() && device != "gpu") {
    return invalid_argument(
        "EngineOptions::backend must be mlx, mlx/cpu or mlx/gpu but is 'mlx/{}'", device);
  }
  if (!mx::is_available(mx::Device::gpu)) {
    if (device.empty()) return choose("cpu");
    return error(StatusCode::kFailedPrecondition,
                 "backend mlx/gpu is not available: MLX finds no GPU here");
  }
  const bool has_kernels = kernels_refused().empty();
  return Choice{mx::Device::gpu,
                has_kernels ? RowOperationsKind::kKernels : RowOperationsKind::kComposed,
                "mlx/gpu"};
}

Result<std::unique_ptr<Backend>> backend_of(const Choice& choice) {
  KAKEYA_ASSIGN_OR_RETURN(auto space, MlxSpace::create(choice.device, choice.operations));
  return std::make_unique<MlxBackend>(std::move(space), std::string(choice.name));
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
    if (!kernels_refused().empty()) {
      description.note = "without kernels of its own: " + kernels_refused();
    }
    return description;
  });
  return described ? std::optional(*described) : std::nullopt;
}

Result<std::unique_ptr<Backend>> create_mlx_backend(std::string_view device) {
  return caught([&]() -> Result<std::unique_ptr<Backend>> {
    KAKEYA_ASSIGN_OR_RETURN(const Choice choice, choose(device));
    if (choice.device == mx::Device::gpu) use_memory_of_gpu();
    return backend_of(choice);
  });
}

Result<std::unique_ptr<Backend>> create_mlx_kernels_backend() {
  return caught([] {
    return backend_of({mx::Device::cpu, RowOperationsKind::kKernels, "mlx/kernels"});
  });
}

Counters counters(const Backend& backend) {
  MlxSpace& space = static_cast<const MlxBackend&>(backend).space();
  const std::lock_guard lock(space.mutex());
  Counters counters = space.counters();
  counters.active_bytes = mx::get_active_memory();
  counters.cached_bytes = mx::get_cache_memory();
  counters.peak_bytes = mx::get_peak_memory();
  mx::reset_peak_memory();
  return counters;
}

}  // namespace kakeya::mlx
