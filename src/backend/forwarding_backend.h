// The base of backends around another one: loading weights is the inner backend's. Derived ones
// make executors of their own, mostly a ForwardingExecutor around the inner backend's, and override
// what else they look at.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "backend/backend.h"

namespace kakeya {

// Packed weights are not mapped, unless a derived backend says how: what loads no matrix is seen by
// no load_matrix().
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  int num_threads() const override { return inner_->num_threads(); }
  bool is_row_invariant() const override { return inner_->is_row_invariant(); }
  bool reads_codes() const override { return inner_->reads_codes(); }
  MemorySpace& memory() const override { return inner_->memory(); }
  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override {
    return inner_->load_matrix(weight, compute, budget);
  }
  std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) const override {
    return inner_->matrix_bytes(weight, compute);
  }
  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override {
    return inner_->map_table(weight);
  }
  std::uint64_t executor_bytes(const ExecutorPlan& plan) const override {
    return inner_->executor_bytes(plan);
  }

 protected:
  Backend& inner() const { return *inner_; }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace kakeya
