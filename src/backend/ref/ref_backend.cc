#include "backend/ref/ref_backend.h"

#include "backend/ref/ref_executor.h"
#include "backend/ref/ref_matrix.h"
#include "base/status.h"

namespace kakeya::ref {
namespace {

class RefBackend final : public Backend {
 public:
  std::string_view name() const override { return "ref"; }
  int num_threads() const override { return 1; }

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override {
    KAKEYA_ASSIGN_OR_RETURN(Buffer copy, budget.allocate(MemoryClass::kWeights, weight.bytes()));
    const auto stacked = static_cast<std::size_t>(weight.shape.size() == 3 ? weight.shape[0] : 1);
    const std::size_t bytes = weight.bytes() / stacked;
    const std::size_t stride =
        weight.stack_stride == 0
            ? bytes
            : static_cast<std::size_t>(weight.stack_stride) * dtype_bytes(weight.dtype);
    for (std::size_t x = 0; x < stacked; ++x) {
      std::memcpy(copy.data() + x * bytes, weight.data + x * stride, bytes);
    }
    const std::byte* data = copy.data();
    return std::make_unique<RefMatrix>(weight.shape, weight.dtype, compute, data, std::move(copy));
  }

  std::uint64_t matrix_bytes(const Shape& shape, DType dtype, Compute /*compute*/) const override {
    return MemoryBudget::charged_bytes(static_cast<std::uint64_t>(num_elements(shape)) *
                                       dtype_bytes(dtype));
  }

  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override {
    return std::make_unique<RefMatrix>(weight.shape, weight.dtype, Compute::kF32, weight.data,
                                       Buffer());
  }

  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& /*plan*/,
                                                    MemoryBudget& /*budget*/) override {
    return std::make_unique<RefExecutor>();
  }

  // The reference allocates as it goes, outside the budget: it is a specification, not a product.
  std::uint64_t executor_bytes(const ExecutorPlan& /*plan*/) const override { return 0; }
};

}  // namespace

std::unique_ptr<Backend> create_ref_backend() {
  return std::make_unique<RefBackend>();
}

}  // namespace kakeya::ref
