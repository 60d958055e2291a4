#include "bench/timed_backend.h"

#include <algorithm>
#include <utility>

#include "backend/forwarding_executor.h"
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

class TimedExecutor final : public ForwardingExecutor<TimedExecutor> {
 public:
  TimedExecutor(std::unique_ptr<Executor> inner,
                const std::map<const Matrix*, std::string>& names,
                TimedBackend::Times& times)
      : ForwardingExecutor(std::move(inner)), names_(names), times_(times) {}

  template <typename Operation, typename... Arguments>
  void around(std::string_view name, Operation&& operation, Arguments&...) {
    auto found = times_.find(name);
    if (found == times_.end()) {
      found = times_.emplace(name, OperationTimes{.name = std::string(name)}).first;
    }
    const std::uint64_t bytes_before = bytes_read();
    const Stopwatch watch;
    operation();
    found->second.seconds += watch.seconds();
    found->second.bytes += static_cast<double>(bytes_read() - bytes_before);
    ++found->second.calls;
  }

  void matmul(ConstRows x, const Matrix& w, Rows out) override {
    forward<&Executor::matmul>("matmul " + name_of(w), x, w, out);
  }
  void gated_matmul(ConstRows x,
                    const Matrix& gate,
                    const Matrix& up,
                    GateActivation activation,
                    Rows out) override {
    forward<&Executor::gated_matmul>("gated_matmul " + name_of(gate), x, gate, up, activation, out);
  }
  void attention(ConstRows queries,
                 const AttentionSettings& settings,
                 std::int64_t layer,
                 Rows out) override {
    const KvLayer& kv = batch().segments.front().layers[static_cast<std::size_t>(layer)];
    forward<&Executor::attention>(kv.window > 0 ? "attention, sliding" : "attention, full", queries,
                                  settings, layer, out);
  }

 private:
  std::string name_of(const Matrix& matrix) const {
    const auto found = names_.find(&matrix);
    return found == names_.end() ? "" : found->second;
  }

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
  return named(inner().load_matrix(weight, compute, budget), weight.name);
}

Result<std::unique_ptr<Matrix>> TimedBackend::map_matrix(const TensorView& weight,
                                                         Compute compute,
                                                         std::span<const std::byte> packed,
                                                         MemoryBudget& budget) {
  return named(inner().map_matrix(weight, compute, packed, budget), weight.name);
}

Result<std::unique_ptr<Executor>> TimedBackend::create_executor(const ExecutorPlan& plan,
                                                                MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(auto executor, inner().create_executor(plan, budget));
  return std::make_unique<TimedExecutor>(std::move(executor), names_, times_);
}

std::vector<OperationTimes> TimedBackend::times() const {
  std::vector<OperationTimes> sorted;
  for (const auto& [name, times] : times_) sorted.push_back(times);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return sorted;
}

}  // namespace kakeya::bench
