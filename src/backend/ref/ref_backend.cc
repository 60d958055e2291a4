#include "backend/ref/ref_backend.h"

#include <cstring>
#include <vector>

#include "backend/ref/ref_executor.h"
#include "backend/ref/ref_matrix.h"
#include "base/status.h"

namespace kakeya::ref {
namespace {

// A row as it is, or decoded and rounded to `dtype`.
void copy_row(const TensorView& weight, std::int64_t row, DType dtype, std::byte* to) {
  if (!weight.is_quantized()) {
    std::memcpy(to, weight.data + row * weight.row_bytes(),
                static_cast<std::size_t>(weight.row_bytes()));
    return;
  }
  std::vector<float> values(static_cast<std::size_t>(weight.shape.back()));
  copy_to_f32(weight, row, 0, weight.shape.back(), values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kBF16) {
      const BFloat16 rounded = to_bfloat16(values[i]);
      std::memcpy(to + i * sizeof(rounded), &rounded, sizeof(rounded));
    } else {
      std::memcpy(to + i * sizeof(float), &values[i], sizeof(float));
    }
  }
}

class RefBackend final : public Backend {
 public:
  std::string_view name() const override { return "ref"; }
  int num_threads() const override { return 1; }

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override {
    const DType dtype = loaded_dtype(weight, compute);
    TensorView held = {.shape = weight.shape, .dtype = dtype, .name = weight.name};
    KAKEYA_ASSIGN_OR_RETURN(Buffer copy, budget.allocate(MemoryClass::kWeights, held.bytes()));
    held.data = copy.data();
    const std::int64_t columns = weight.shape.back();
    const std::int64_t rows = weight.shape[weight.shape.size() - 2];
    const std::int64_t stack_rows = weight.stack_stride == 0 ? rows : weight.stack_stride / columns;
    const std::int64_t stacked = weight.shape.size() == 3 ? weight.shape[0] : 1;
    for (std::int64_t row = 0; row < stacked * rows; ++row) {
      copy_row(weight, row / rows * stack_rows + row % rows, dtype,
               copy.data() + row * held.row_bytes());
    }
    return std::make_unique<RefMatrix>(held, compute, std::move(copy));
  }

  std::uint64_t matrix_bytes(const Shape& shape, DType dtype, Compute /*compute*/) const override {
    return MemoryBudget::charged_bytes(static_cast<std::uint64_t>(num_elements(shape)) *
                                       dtype_bytes(dtype));
  }

  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override {
    return std::make_unique<RefMatrix>(weight, Compute::kF32, Buffer());
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
