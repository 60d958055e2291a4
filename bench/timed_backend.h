// A backend around another one that takes the time of every operation: where a pass spends it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/forwarding_backend.h"

namespace kakeya::bench {

// Operations of one kind. `name`: the operation, and the tensors that it multiplies with, without
// model and layer: "matmul self_attn.q_proj".
struct OperationTimes {
  std::string name;
  std::int64_t calls = 0;
  double seconds = 0.0;
  double bytes = 0.0;  // as Executor::bytes_read counts them
};

// Computes what the inner backend does. One executor may run at a time.
class TimedBackend final : public ForwardingBackend {
 public:
  using Times = std::map<std::string, OperationTimes, std::less<>>;

  explicit TimedBackend(std::unique_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override;
  std::string_view packed_layout() const override { return inner().packed_layout(); }
  Result<std::unique_ptr<Matrix>> map_matrix(const TensorView& weight,
                                             Compute compute,
                                             std::span<const std::byte> packed,
                                             MemoryBudget& budget) override;
  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override;

  // Since the last reset(), the longest first.
  std::vector<OperationTimes> times() const;
  void reset() { times_.clear(); }

 private:
  Result<std::unique_ptr<Matrix>> named(Result<std::unique_ptr<Matrix>> matrix,
                                        const std::string& tensor);

  std::map<const Matrix*, std::string> names_;  // of matrices, as in OperationTimes::name
  Times times_;
};

}  // namespace kakeya::bench
