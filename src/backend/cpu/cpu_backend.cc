#include "backend/cpu/cpu_backend.h"

#include "backend/cpu/cpu_executor.h"
#include "backend/cpu/cpu_matrix.h"
#include "backend/cpu/instruction_set.h"
#include "base/status.h"

namespace kakeya::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, const ThreadPoolOptions& threads)
      : kernels_(kernels), pool_(threads) {}

  std::string_view name() const override { return kernels_.name; }
  bool reads_codes() const override { return true; }
  int num_threads() const override { return pool_.num_threads(); }

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override {
    const PanelLayout layout(weight, compute);
    KAKEYA_ASSIGN_OR_RETURN(
        Buffer panels, budget.allocate(MemoryClass::kWeights, CpuMatrix::packed_bytes(layout)));
    auto matrix = std::make_unique<CpuMatrix>(layout, std::move(panels));
    KAKEYA_TRY(matrix->load(weight, kernels_, pool_));
    return matrix;
  }

  std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) const override {
    return MemoryBudget::charged_bytes(CpuMatrix::packed_bytes(PanelLayout(weight, compute)));
  }

  // tests/backend/packed_layout_test.cc has what the number stands for.
  std::string_view packed_layout() const override { return "cpu panels 2"; }

  Result<std::unique_ptr<Matrix>> map_matrix(const TensorView& weight,
                                             Compute compute,
                                             std::span<const std::byte> packed,
                                             MemoryBudget& budget) override {
    const PanelLayout layout(weight, compute);
    const std::uint64_t bytes = MemoryBudget::charged_bytes(CpuMatrix::packed_bytes(layout));
    if (packed.size() != bytes) {
      return invalid_argument("packed weights of {}: expected {} bytes, got {}", weight.name, bytes,
                              packed.size());
    }
    KAKEYA_ASSIGN_OR_RETURN(Buffer panels, budget.charge_mapped(MemoryClass::kWeights, packed));
    return std::make_unique<CpuMatrix>(layout, std::move(panels));
  }

  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override {
    return std::make_unique<CpuMatrix>(weight);
  }

  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override {
    if (plan.max_head_dim > kMaxHeadDim) {
      return invalid_argument("the cpu backend attends with heads of up to {} but got {}",
                              kMaxHeadDim, plan.max_head_dim);
    }
    KAKEYA_ASSIGN_OR_RETURN(Buffer scratch,
                            budget.allocate(MemoryClass::kActivations, ScratchLayout(plan).bytes));
    return std::make_unique<CpuExecutor>(kernels_, pool_, plan, std::move(scratch));
  }

  std::uint64_t executor_bytes(const ExecutorPlan& plan) const override {
    return MemoryBudget::charged_bytes(ScratchLayout(plan).bytes);
  }

 private:
  const Kernels& kernels_;
  ThreadPool pool_;
};

}  // namespace

Result<std::unique_ptr<Backend>> create_cpu_backend(std::string_view instruction_set,
                                                    const ThreadPoolOptions& threads) {
  KAKEYA_ASSIGN_OR_RETURN(const Kernels* kernels, select_kernels(instruction_set));
  return create_cpu_backend(*kernels, threads);
}

std::unique_ptr<Backend> create_cpu_backend(const Kernels& kernels,
                                            const ThreadPoolOptions& threads) {
  return std::make_unique<CpuBackend>(kernels, threads);
}

}  // namespace kakeya::cpu
