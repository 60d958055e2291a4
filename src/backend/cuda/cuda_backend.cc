#include "backend/cuda/cuda_backend.h"

#include <charconv>
#include <mutex>
#include <utility>

#include "backend/cuda/cuda_driver.h"
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_matrix.h"
#include "backend/cuda/device/attention.h"
#include "base/status.h"

namespace kakeya::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Driver> driver, int threads)
      : driver_(std::move(driver)), loading_threads_(threads) {}

  std::string_view name() const override { return driver_->name(); }
  int num_threads() const override { return 1; }
  MemorySpace& memory() const override { return driver_->memory(); }

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override {
    const std::lock_guard lock(staging_);
    return cuda::load_matrix(weight, compute, *driver_, budget, loading_threads_);
  }
  std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) const override {
    return cuda::matrix_bytes(weight, compute);
  }
  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override {
    return std::make_unique<CudaMatrix>(weight);
  }

  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override {
    const auto refuse = [&](std::string_view what, std::int64_t most, std::int64_t got) {
      return error(StatusCode::kUnimplemented, "backend {} has no kernels for {} above {}, got {}",
                   name(), what, most, got);
    };
    if (plan.max_head_dim > device::kMaxHeadDim) {
      return refuse("heads of sizes", device::kMaxHeadDim, plan.max_head_dim);
    }
    if (plan.num_experts > device::kMaxExperts) {
      return refuse("numbers of experts", device::kMaxExperts, plan.num_experts);
    }
    if (plan.top_k_experts > device::kMaxTopK) {
      return refuse("experts of a token", device::kMaxTopK, plan.top_k_experts);
    }
    const std::int64_t rows = plan.max_rows * std::max<std::int64_t>(1, plan.top_k_experts);
    if (rows > Driver::kMostBlocksY) return refuse("passes of rows", Driver::kMostBlocksY, rows);
    KAKEYA_ASSIGN_OR_RETURN(
        Buffer scratch, budget.allocate(MemoryClass::kActivations, executor_bytes(plan), memory()));
    KAKEYA_ASSIGN_OR_RETURN(auto pinned, driver_->pin(CudaExecutor::pinned_bytes(plan)));
    return std::make_unique<CudaExecutor>(*driver_, plan, std::move(scratch), std::move(pinned),
                                          budget);
  }
  // Without tables of blocks, which grow with the caches: 128 bytes for 64 positions of a layer.
  std::uint64_t executor_bytes(const ExecutorPlan& plan) const override {
    return CudaExecutor::scratch_bytes(plan);
  }

 private:
  std::unique_ptr<Driver> driver_;
  const int loading_threads_;
  std::mutex staging_;  // of the driver
};

}  // namespace

std::unique_ptr<Backend> create_backend_on(std::unique_ptr<Driver> driver, int threads) {
  return std::make_unique<CudaBackend>(std::move(driver), threads);
}

Result<std::unique_ptr<Backend>> create_cuda_backend(std::string_view card, int threads) {
  CardOptions options;
  const char* const end = card.data() + card.size();
  const auto [parsed, failure] = std::from_chars(card.data(), end, options.device);
  if (failure != std::errc() || parsed != end || options.device < 0) {
    return invalid_argument(
        "EngineOptions::backend must be cuda or cuda/NUMBER of a card but is 'cuda/{}'", card);
  }
  auto driver = create_cuda_driver(options);
  if (!driver) return Unexpected(driver.error().with_context("backend cuda is not available"));
  return create_backend_on(std::move(driver).value(), threads);
}

}  // namespace kakeya::cuda
