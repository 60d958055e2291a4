// A backend around another one that sees what every weight is multiplied with. The models' forward
// passes are written against the seam, so that nothing in them has to know of it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "backend/forwarding_backend.h"
#include "convert/activation_sums.h"

namespace kakeya {

// Computes what the inner backend does; products with experts are made one expert after the other
// with the same operations, so that the rows between their projections can be seen. The inner
// backend's memory must be the host's. One executor may run at a time.
class ObservingBackend final : public ForwardingBackend {
 public:
  explicit ObservingBackend(std::unique_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override;
  std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) const override;
  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override;
  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override;
  std::uint64_t executor_bytes(const ExecutorPlan& plan) const override;

  // The sums, by the full names of the tensors. Tensors that were looked up only have seen no rows.
  const std::map<std::string, ActivationSums, std::less<>>& sums() const { return sums_; }

 private:
  std::map<std::string, ActivationSums, std::less<>> sums_;
};

}  // namespace kakeya
