#include "timed_backend.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace kakeya::bench {
namespace {

// "model.layers.3.self_attn.q_proj.weight" becomes "self_attn.q_proj".
std::string short_name(std::string_view tensor) {
  constexpr std::string_view kLayers = "layers.";
  constexpr std::string_view kWeight = ".weight";
  if (const std::size_t place = tensor.find(kLayers); place != std::string_view::npos) {
    tensor.remove_prefix(place + kLayers.size());
    tensor.remove_prefix(std::min(tensor.size(), tensor.find('.') + 1));
  } else if (const std::size_t model = tensor.rfind("model."); model != std::string_view::npos) {
    tensor.remove_prefix(model + std::string_view("model.").size());
  }
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  return std::string(tensor);
}

class TimedExecutor final : public Executor {
 public:
  TimedExecutor(std::unique_ptr<Executor> inner,
                const std::map<const Matrix*, std::string>& names,
                TimedBackend::Times& times)
      : inner_(std::move(inner)), names_(names), times_(times) {}

  void begin(const Batch& batch) override {
    Executor::begin(batch);
    inner_->begin(batch);
  }
  void embed(const Matrix& table, float scale, Rows out) override {
    timed("embed", [&] { inner_->embed(table, scale, out); });
  }
  void rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) override {
    timed("rms_norm", [&] { inner_->rms_norm(x, weight, eps, out); });
  }
  void matmul(ConstRows x, const Matrix& w, Rows out) override {
    timed("matmul " + name_of(w), [&] { inner_->matmul(x, w, out); });
  }
  void gated_matmul(ConstRows x,
                    const Matrix& gate,
                    const Matrix& up,
                    GateActivation activation,
                    Rows out) override {
    timed("gated_matmul " + name_of(gate),
          [&] { inner_->gated_matmul(x, gate, up, activation, out); });
  }
  void gated_multiply(ConstRows gate,
                      DevicePointer<const float> other,
                      std::int64_t other_stride,
                      GateActivation activation,
                      Rows out) override {
    timed("gated_multiply",
          [&] { inner_->gated_multiply(gate, other, other_stride, activation, out); });
  }
  void make_rope_table(ConstVector inverse_frequencies, RopeTable table) override {
    timed("make_rope_table", [&] { inner_->make_rope_table(inverse_frequencies, table); });
  }
  void apply_rope(Rows x, RopeTable table) override {
    timed("apply_rope", [&] { inner_->apply_rope(x, table); });
  }
  void store_kv(ConstRows keys, ConstRows values, std::int64_t layer) override {
    timed("store_kv", [&] { inner_->store_kv(keys, values, layer); });
  }
  void store_own_kv(ConstRows keys, ConstRows values, std::int64_t layer) override {
    timed("store_own_kv", [&] { inner_->store_own_kv(keys, values, layer); });
  }
  void attention(ConstRows queries,
                 const AttentionSettings& settings,
                 std::int64_t layer,
                 Rows out) override {
    const KvLayer& kv = batch().segments.front().layers[static_cast<std::size_t>(layer)];
    timed(kv.window > 0 ? "attention, sliding" : "attention, full",
          [&] { inner_->attention(queries, settings, layer, out); });
  }
  void gather_logit_rows(ConstRows x, Rows out) override {
    timed("gather_logit_rows", [&] { inner_->gather_logit_rows(x, out); });
  }
  void route(ConstRows logits,
             DevicePointer<const float> per_expert_scale,
             Routing routing) override {
    timed("route", [&] { inner_->route(logits, per_expert_scale, routing); });
  }
  void experts(ConstRows x,
               const ExpertWeights& weights,
               const Routing& routing,
               GateActivation activation,
               Rows out) override {
    timed("experts", [&] { inner_->experts(x, weights, routing, activation, out); });
  }
  void add(ConstRows a, ConstRows b, float scale, Rows out) override {
    timed("add", [&] { inner_->add(a, b, scale, out); });
  }
  void choose(std::span<SequenceChoice> choices, HostCopies& copies) override {
    timed("choose", [&] { inner_->choose(choices, copies); });
  }
  void softcap(Rows x, float cap) override {
    timed("softcap", [&] { inner_->softcap(x, cap); });
  }
  void copy_columns(ConstRows x,
                    DevicePointer<float> out,
                    std::int64_t out_width,
                    std::int64_t column) override {
    timed("copy_columns", [&] { inner_->copy_columns(x, out, out_width, column); });
  }

 private:
  std::string name_of(const Matrix& matrix) const {
    const auto found = names_.find(&matrix);
    return found == names_.end() ? "" : found->second;
  }

  template <typename Operation>
  void timed(std::string_view name, Operation&& operation) {
    auto found = times_.find(name);
    if (found == times_.end()) {
      found = times_.emplace(name, OperationTimes{.name = std::string(name)}).first;
    }
    const std::uint64_t bytes_before = inner_->bytes_read();
    const Stopwatch watch;
    operation();
    found->second.seconds += watch.seconds();
    const std::uint64_t bytes = inner_->bytes_read() - bytes_before;
    found->second.bytes += static_cast<double>(bytes);
    ++found->second.calls;
    count_bytes(bytes);
  }

  std::unique_ptr<Executor> inner_;
  const std::map<const Matrix*, std::string>& names_;
  TimedBackend::Times& times_;
};

}  // namespace

Result<std::unique_ptr<Matrix>> TimedBackend::named(Result<std::unique_ptr<Matrix>> matrix,
                                                    const std::string& tensor) {
  if (matrix) names_[matrix->get()] = short_name(tensor);
  return matrix;
}

Result<std::unique_ptr<Matrix>> TimedBackend::load_matrix(const TensorView& weight,
                                                          Compute compute,
                                                          MemoryBudget& budget) {
  return named(inner_->load_matrix(weight, compute, budget), weight.name);
}

Result<std::unique_ptr<Matrix>> TimedBackend::map_matrix(const TensorView& weight,
                                                         Compute compute,
                                                         std::span<const std::byte> packed,
                                                         MemoryBudget& budget) {
  return named(inner_->map_matrix(weight, compute, packed, budget), weight.name);
}

Result<std::unique_ptr<Executor>> TimedBackend::create_executor(const ExecutorPlan& plan,
                                                                MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(auto inner, inner_->create_executor(plan, budget));
  return std::make_unique<TimedExecutor>(std::move(inner), names_, times_);
}

std::vector<OperationTimes> TimedBackend::times() const {
  std::vector<OperationTimes> sorted;
  for (const auto& [name, times] : times_) sorted.push_back(times);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return sorted;
}

}  // namespace kakeya::bench
