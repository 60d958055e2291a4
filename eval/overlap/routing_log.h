// A backend around another one that writes down which experts rows are routed to.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/forwarding_backend.h"
#include "eval/report/describe.h"

namespace kakeya::eval {

// The experts of the rows of one pass, layer after layer: [layer][row * top_k + rank].
struct PassRouting {
  std::int64_t rows = 0;
  std::vector<std::vector<std::int32_t>> layers;
};

template <typename Visitor, MaybeConst<PassRouting> Pass>
void describe(Visitor& visitor, Pass& pass) {
  visitor.kept("rows", pass.rows);
  visitor.kept("layers", pass.layers);
}

struct RoutingLog {
  std::int64_t top_k = 0;
  std::vector<PassRouting> passes;  // those that routed anything
};

// Computes what the inner backend does. One executor may run at a time; `log` must outlive it.
class RoutingBackend final : public ForwardingBackend {
 public:
  RoutingBackend(std::unique_ptr<Backend> inner, RoutingLog& log)
      : ForwardingBackend(std::move(inner)), log_(log) {}

  std::string_view packed_layout() const override { return inner().packed_layout(); }
  Result<std::unique_ptr<Matrix>> map_matrix(const TensorView& weight,
                                             Compute compute,
                                             std::span<const std::byte> packed,
                                             MemoryBudget& budget) override {
    return inner().map_matrix(weight, compute, packed, budget);
  }
  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override;

 private:
  RoutingLog& log_;
};

}  // namespace kakeya::eval
