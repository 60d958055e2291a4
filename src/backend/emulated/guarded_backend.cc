#include "backend/emulated/guarded_backend.h"

#include <utility>

#include "backend/emulated/guarded_space.h"
#include "backend/forwarding_executor.h"
#include "backend/ref/ref_backend.h"
#include "base/check.h"
#include "base/status.h"

namespace kakeya::guarded {
namespace {

class GuardedExecutor final : public ForwardingExecutor<GuardedExecutor> {
  using Base = ForwardingExecutor<GuardedExecutor>;

 public:
  GuardedExecutor(GuardedSpace& space, std::unique_ptr<Executor> inner)
      : Base(std::move(inner)), space_(space) {}

  template <typename Operation, typename... Arguments>
  void around(std::string_view, Operation&& operation, Arguments&... arguments) {
    (check_rows(arguments), ...);
    const GuardedSpace::Access access(space_);
    operation();
  }

  void begin(const Batch& batch) override {
    Base::begin(batch);
    for (const Segment& segment : batch.segments) {
      for (const KvLayer& layer : segment.layers) check(layer);
    }
  }
  // The operations below are checked for vectors and tables beside rows.
  void rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) override {
    if (weight) check(weight, x.width);
    Base::rms_norm(x, weight, eps, out);
  }
  void gated_multiply(ConstRows gate,
                      DevicePointer<const float> other,
                      std::int64_t other_stride,
                      GateActivation activation,
                      Rows out) override {
    check(other, (gate.count - 1) * other_stride + gate.width);
    Base::gated_multiply(gate, other, other_stride, activation, out);
  }
  void add_vector(Rows x, ConstVector vector) override {
    KAKEYA_CHECK(vector.size == x.width);
    check(vector.data, vector.size);
    Base::add_vector(x, vector);
  }
  void convolve(ConstRows x, const RowConvolution& convolution, Rows out) override {
    KAKEYA_CHECK(convolution.base.size == convolution.taps * x.width);
    KAKEYA_CHECK(x.width % convolution.group == 0);
    KAKEYA_CHECK(convolution.column + convolution.taps * x.width / convolution.group <=
                 convolution.own.width);
    check(convolution.base.data, convolution.base.size);
    check_rows(convolution.own);
    Base::convolve(x, convolution, out);
  }
  void make_rope_table(ConstVector inverse_frequencies, RopeTable table) override {
    check(inverse_frequencies.data, inverse_frequencies.size);
    check(table, batch().rows());
    Base::make_rope_table(inverse_frequencies, table);
  }
  void apply_rope(Rows x, RopeTable table) override {
    check(table, x.count);
    Base::apply_rope(x, table);
  }
  void attention(ConstRows queries,
                 const AttentionSettings& settings,
                 std::int64_t layer,
                 Rows out) override {
    const KeyDerivation& derivation = settings.derivation;
    if (derivation.k_norm) check(derivation.k_norm, 1);
    check(derivation.inverse_frequencies.data, derivation.inverse_frequencies.size);
    Base::attention(queries, settings, layer, out);
  }
  void route(ConstRows logits,
             DevicePointer<const float> per_expert_scale,
             Routing routing) override {
    check(per_expert_scale, logits.width);
    check(routing, logits.count);
    Base::route(logits, per_expert_scale, routing);
  }
  void experts(ConstRows x,
               const ExpertWeights& weights,
               const Routing& routing,
               GateActivation activation,
               Rows out) override {
    check(routing, x.count);
    Base::experts(x, weights, routing, activation, out);
  }
  void copy_columns(ConstRows x,
                    DevicePointer<float> out,
                    std::int64_t out_width,
                    std::int64_t column) override {
    check(out, (x.count - 1) * out_width + column + x.width);
    Base::copy_columns(x, out, out_width, column);
  }
  // On the host, of copies: the memory stays closed.
  void choose(std::span<SequenceChoice> choices, HostCopies& copies) override {
    Executor::choose(choices, copies);
  }
  void list_largest(Rows logits,
                    TokenId never,
                    HostCopies& copies,
                    std::span<TokenLogit> out) override {
    Executor::list_largest(logits, never, copies, out);
  }

 private:
  template <typename T>
  void check(DevicePointer<T> data, std::int64_t count) const {
    KAKEYA_CHECK(count <= 0 ||
                 space_.holds(data.address(), static_cast<std::uint64_t>(count) * sizeof(T)));
  }
  void check_rows(const ConstRows& x) const { check(x.data, x.count * x.width); }
  void check_rows(const Rows& x) const { check_rows(ConstRows(x)); }
  // Other arguments are no rows.
  template <typename Other>
  void check_rows(const Other&) const {}
  void check(const RopeTable& table, std::int64_t rows) const {
    check(table.cos, rows * table.half);
    check(table.sin, rows * table.half);
  }
  void check(const Routing& routing, std::int64_t rows) const {
    check(routing.experts, rows * routing.top_k);
    check(routing.weights, rows * routing.top_k);
  }
  // Blocks without a slot that is stored or seen may be missing.
  void check(const KvRows& rows) const {
    const std::int64_t blocks =
        rows.block_slots == 0 ? 0 : (rows.capacity + rows.block_slots - 1) / rows.block_slots;
    for (std::int64_t block = 0; block < blocks; ++block) {
      if (rows.keys != nullptr && rows.keys[block]) {
        check(rows.keys[block], rows.block_slots * rows.slot_bytes());
      }
      if (rows.values[block]) check(rows.values[block], rows.block_slots * rows.slot_bytes());
    }
  }
  void check(const KvLayer& layer) const {
    check(layer.rows);
    if (!layer.is_restored) return;
    check(layer.restored.codes);
    const std::int64_t decoder =
        layer.restored.codes.head_dim * layer.rows.num_kv_heads * layer.rows.head_dim;
    check(layer.restored.key_decoder, decoder);
    check(layer.restored.value_decoder, decoder);
  }

  GuardedSpace& space_;
};

class GuardedBackend final : public Backend {
 public:
  explicit GuardedBackend(std::unique_ptr<GuardedSpace> space)
      : space_(std::move(space)), inner_(ref::create_ref_backend(*space_)) {}

  std::string_view name() const override { return "guarded"; }
  int num_threads() const override { return inner_->num_threads(); }
  MemorySpace& memory() const override { return *space_; }

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override {
    const GuardedSpace::Access access(*space_);
    return inner_->load_matrix(weight, compute, budget);
  }
  std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) const override {
    return inner_->matrix_bytes(weight, compute);
  }
  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override {
    return inner_->map_table(weight);
  }
  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override {
    KAKEYA_ASSIGN_OR_RETURN(auto inner, inner_->create_executor(plan, budget));
    return std::make_unique<GuardedExecutor>(*space_, std::move(inner));
  }
  std::uint64_t executor_bytes(const ExecutorPlan& plan) const override {
    return inner_->executor_bytes(plan);
  }

 private:
  std::unique_ptr<GuardedSpace> space_;  // before everything that lies there
  std::unique_ptr<Backend> inner_;
};

}  // namespace

Result<std::unique_ptr<Backend>> create_guarded_backend() {
  KAKEYA_ASSIGN_OR_RETURN(auto space, GuardedSpace::create());
  return std::make_unique<GuardedBackend>(std::move(space));
}

}  // namespace kakeya::guarded
