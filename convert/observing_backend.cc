#include "convert/observing_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/forwarding_executor.h"
#include "backend/host_rows.h"
#include "base/status.h"
#include "model/arena.h"

namespace kakeya {

namespace {

// The inner backend's matrices, each of its own, and what they are observed by.
class ObservedMatrix final : public Matrix {
 public:
  ObservedMatrix(std::vector<std::unique_ptr<Matrix>> matrices, ActivationSums* sums)
      : Matrix(std::ssize(matrices), matrices.front()->rows(), matrices.front()->cols()),
        matrices_(std::move(matrices)),
        sums_(sums) {}

  std::uint64_t bytes() const override { return matrices_.front()->bytes(); }
  const Matrix& inner(std::int64_t index = 0) const {
    return *matrices_[static_cast<std::size_t>(index)];
  }
  // Null for tables, which nothing is multiplied with.
  ActivationSums* sums() const { return sums_; }

 private:
  std::vector<std::unique_ptr<Matrix>> matrices_;
  ActivationSums* sums_;
};

// Everything that comes through this backend was loaded by it.
const ObservedMatrix& observed(const Matrix& matrix) {
  return static_cast<const ObservedMatrix&>(matrix);
}

// Adds rows to the sums of matrices that have the same input, of which two may be the same.
void observe(std::int64_t index, ConstRows x, const ObservedMatrix& a, const ObservedMatrix& b) {
  a.sums()->add(index, x);
  if (b.sums() != a.sums()) b.sums()->add(index, x);
}

// Rows of one expert on their way through it, and what all of them gave.
struct ExpertScratch {
  Rows input;                          // [T, D]
  Rows hidden;                         // [T, F]
  Rows projected;                      // [T, D]
  Rows outputs;                        // [T * top_k, D], by row and rank
  DevicePointer<std::int64_t> places;  // [T]: which of the outputs a row of this expert is

  static ExpertScratch layout(Arena& arena, const ExecutorPlan& plan) {
    ExpertScratch scratch;
    if (plan.top_k_experts == 0) return scratch;
    scratch.input = arena.rows(plan.max_rows, plan.hidden_size);
    scratch.hidden = arena.rows(plan.max_rows, plan.moe_intermediate_size);
    scratch.projected = arena.rows(plan.max_rows, plan.hidden_size);
    scratch.outputs = arena.rows(plan.max_rows * plan.top_k_experts, plan.hidden_size);
    scratch.places = arena.take<std::int64_t>(plan.max_rows);
    return scratch;
  }
};

class ObservingExecutor final : public ForwardingExecutor<ObservingExecutor> {
  using Base = ForwardingExecutor<ObservingExecutor>;

 public:
  ObservingExecutor(std::unique_ptr<Executor> inner, Buffer memory, const ExecutorPlan& plan)
      : Base(std::move(inner)), memory_(std::move(memory)) {
    Arena arena(memory_.device<std::byte>());
    scratch_ = ExpertScratch::layout(arena, plan);
  }

  void embed(const Matrix& table, float scale, Rows out) override {
    Base::embed(observed(table).inner(), scale, out);
  }
  void matmul(ConstRows x, const Matrix& w, Rows out) override {
    observed(w).sums()->add(0, x);
    Base::matmul(x, observed(w).inner(), out);
  }
  void gated_matmul(ConstRows x,
                    const Matrix& gate,
                    const Matrix& up,
                    GateActivation activation,
                    Rows out) override {
    observe(0, x, observed(gate), observed(up));
    Base::gated_matmul(x, observed(gate).inner(), observed(up).inner(), activation, out);
  }
  void experts(ConstRows x,
               const ExpertWeights& weights,
               const Routing& routing,
               GateActivation activation,
               Rows out) override;

 private:
  // Gathers the rows that were routed to the expert; returns how many.
  std::int64_t gather(ConstRows x, const Routing& routing, std::int64_t expert);

  Buffer memory_;
  ExpertScratch scratch_;
};

std::int64_t ObservingExecutor::gather(ConstRows x, const Routing& routing, std::int64_t expert) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < x.count * routing.top_k; ++i) {
    if (routing.experts.address()[i] != expert) continue;
    std::copy_n(host_row(x, i / routing.top_k), x.width, host_row(scratch_.input, count));
    scratch_.places.address()[count++] = i;
  }
  return count;
}

void ObservingExecutor::experts(ConstRows x,
                                const ExpertWeights& weights,
                                const Routing& routing,
                                GateActivation activation,
                                Rows out) {
  const ObservedMatrix& gate = observed(*weights.gate);
  const ObservedMatrix& up = observed(*weights.up);
  const ObservedMatrix& down = observed(*weights.down);
  for (std::int64_t e = 0; e < gate.num_matrices(); ++e) {
    const std::int64_t count = gather(x, routing, e);
    if (count == 0) continue;
    const Rows input = first_rows(scratch_.input, count);
    const Rows hidden = first_rows(scratch_.hidden, count);
    const Rows projected = first_rows(scratch_.projected, count);
    observe(e, input, gate, up);
    Base::gated_matmul(input, gate.inner(e), up.inner(e), activation, hidden);
    down.sums()->add(e, hidden);
    Base::matmul(hidden, down.inner(e), projected);
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(host_row(projected, i), out.width,
                  host_row(scratch_.outputs, scratch_.places.address()[i]));
    }
  }
  for (std::int64_t t = 0; t < x.count; ++t) {
    float* sum = host_row(out, t);
    std::fill_n(sum, out.width, 0.0F);
    for (std::int64_t i = t * routing.top_k; i < (t + 1) * routing.top_k; ++i) {
      const float* row = host_row(scratch_.outputs, i);
      for (std::int64_t k = 0; k < out.width; ++k) sum[k] += routing.weights.address()[i] * row[k];
    }
  }
}

std::int64_t matrices_of(const TensorView& weight) {
  return weight.shape.size() == 3 ? weight.shape.front() : 1;
}

// One of the stacked matrices [N, K].
TensorView matrix_of(const TensorView& weight, std::int64_t index) {
  if (weight.shape.size() != 3) return weight;
  TensorView matrix = weight;
  const std::int64_t rows = weight.shape[1];
  const std::int64_t stride =
      weight.stack_stride == 0 ? rows : weight.stack_stride / weight.shape[2];
  skip_rows(matrix, index * stride);
  matrix.shape = {rows, weight.shape[2]};
  matrix.stack_stride = 0;
  return matrix;
}

std::uint64_t scratch_bytes(const ExecutorPlan& plan) {
  Arena measure;
  ExpertScratch::layout(measure, plan);
  return measure.used();
}

}  // namespace

Result<std::unique_ptr<Matrix>> ObservingBackend::load_matrix(const TensorView& weight,
                                                              Compute compute,
                                                              MemoryBudget& budget) {
  const std::int64_t count = matrices_of(weight);
  auto found = sums_.find(weight.name);
  if (found == sums_.end()) {
    KAKEYA_ASSIGN_OR_RETURN(ActivationSums sums,
                            ActivationSums::create(count, weight.shape.back(), budget));
    found = sums_.emplace(weight.name, std::move(sums)).first;
  }
  std::vector<std::unique_ptr<Matrix>> matrices;
  for (std::int64_t i = 0; i < count; ++i) {
    KAKEYA_ASSIGN_OR_RETURN(auto matrix,
                            inner().load_matrix(matrix_of(weight, i), compute, budget));
    matrices.push_back(std::move(matrix));
  }
  return std::make_unique<ObservedMatrix>(std::move(matrices), &found->second);
}

std::uint64_t ObservingBackend::matrix_bytes(const TensorView& weight, Compute compute) const {
  const std::int64_t count = matrices_of(weight);
  return static_cast<std::uint64_t>(count) * inner().matrix_bytes(matrix_of(weight, 0), compute);
}

Result<std::unique_ptr<Matrix>> ObservingBackend::map_table(const TensorView& weight) {
  std::vector<std::unique_ptr<Matrix>> tables;
  KAKEYA_ASSIGN_OR_RETURN(auto table, inner().map_table(weight));
  tables.push_back(std::move(table));
  return std::make_unique<ObservedMatrix>(std::move(tables), nullptr);
}

Result<std::unique_ptr<Executor>> ObservingBackend::create_executor(const ExecutorPlan& plan,
                                                                    MemoryBudget& budget) {
  if (!inner().memory().is_host()) {
    return error(StatusCode::kUnimplemented,
                 "activations are observed in host memory only: {} has {}", inner().name(),
                 inner().memory().name());
  }
  KAKEYA_ASSIGN_OR_RETURN(auto executor, inner().create_executor(plan, budget));
  KAKEYA_ASSIGN_OR_RETURN(Buffer memory,
                          budget.allocate(MemoryClass::kActivations, scratch_bytes(plan)));
  return std::make_unique<ObservingExecutor>(std::move(executor), std::move(memory), plan);
}

std::uint64_t ObservingBackend::executor_bytes(const ExecutorPlan& plan) const {
  return inner().executor_bytes(plan) + MemoryBudget::charged_bytes(scratch_bytes(plan));
}

}  // namespace kakeya
