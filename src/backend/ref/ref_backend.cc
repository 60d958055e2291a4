#include "backend/ref/ref_backend.h"

#include <cstring>
#include <vector>

#include "backend/ref/ref_executor.h"
#include "backend/ref/ref_matrix.h"
#include "base/status.h"
#include "tensor/finite.h"
#include "tensor/stacked_rows.h"

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

Result<std::unique_ptr<Matrix>> load_integers(const TensorView& weight,
                                              const IntegerFormat& format,
                                              MemoryBudget& budget,
                                              MemorySpace& space) {
  const auto row_blocks = static_cast<std::size_t>(weight.shape.back() / kIntegerBlock);
  const std::size_t blocks = static_cast<std::size_t>(num_rows(weight)) * row_blocks;
  KAKEYA_ASSIGN_OR_RETURN(
      Buffer memory, budget.allocate(MemoryClass::kWeights, blocks * sizeof(IntegerBlock), space));
  auto* to = memory.as<IntegerBlock>();
  for (std::int64_t row = 0; row < num_rows(weight); ++row, to += row_blocks) {
    read_integer_blocks(weight, source_row(weight, row), 0, {to, row_blocks});
  }
  return std::make_unique<RefMatrix>(weight.shape, format, std::move(memory));
}

class RefBackend final : public Backend {
 public:
  explicit RefBackend(MemorySpace& space) : space_(space) {}

  std::string_view name() const override { return "ref"; }
  bool reads_codes() const override { return true; }
  int num_threads() const override { return 1; }
  MemorySpace& memory() const override { return space_; }

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override {
    for (std::int64_t row = 0; row < num_rows(weight); ++row) {
      if (find_non_finite(weight, source_row(weight, row), 1)) {
        return data_loss("not all numbers are finite");
      }
    }
    if (const auto format = fast_integers(weight, compute)) {
      return load_integers(weight, *format, budget, space_);
    }
    const DType dtype = loaded_dtype(weight, compute);
    TensorView held = {.shape = weight.shape, .dtype = dtype, .name = weight.name};
    KAKEYA_ASSIGN_OR_RETURN(Buffer copy,
                            budget.allocate(MemoryClass::kWeights, held.bytes(), space_));
    held.data = copy.data();
    for (std::int64_t row = 0; row < num_rows(weight); ++row) {
      copy_row(weight, source_row(weight, row), dtype, copy.data() + row * held.row_bytes());
    }
    return std::make_unique<RefMatrix>(held, compute, std::move(copy));
  }

  std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) const override {
    const auto elements = static_cast<std::uint64_t>(num_elements(weight.shape));
    return MemoryBudget::charged_bytes(fast_integers(weight, compute)
                                           ? elements / static_cast<std::uint64_t>(kIntegerBlock) *
                                                 sizeof(IntegerBlock)
                                           : elements * dtype_bytes(loaded_dtype(weight, compute)));
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

 private:
  MemorySpace& space_;
};

}  // namespace

std::unique_ptr<Backend> create_ref_backend(MemorySpace& space) {
  return std::make_unique<RefBackend>(space);
}

}  // namespace kakeya::ref
