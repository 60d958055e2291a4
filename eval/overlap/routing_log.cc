#include "eval/overlap/routing_log.h"

#include <utility>

#include "backend/forwarding_executor.h"
#include "base/status.h"

namespace kakeya::eval {
namespace {

class RoutingExecutor final : public ForwardingExecutor<RoutingExecutor> {
  using Base = ForwardingExecutor<RoutingExecutor>;

 public:
  RoutingExecutor(std::unique_ptr<Executor> inner, MemorySpace& memory, RoutingLog& log)
      : Base(std::move(inner)), memory_(memory), log_(log) {}

  void begin(const Batch& batch) override {
    Base::begin(batch);
    begun_ = true;
  }
  void route(ConstRows logits,
             DevicePointer<const float> per_expert_scale,
             Routing routing) override {
    Base::route(logits, per_expert_scale, routing);
    if (std::exchange(begun_, false)) log_.passes.push_back({.rows = logits.count, .layers = {}});
    log_.top_k = routing.top_k;
    std::vector<std::int32_t> experts(static_cast<std::size_t>(logits.count * routing.top_k));
    download(memory_, DevicePointer<const std::int32_t>(routing.experts), std::span(experts));
    log_.passes.back().layers.push_back(std::move(experts));
  }

 private:
  MemorySpace& memory_;
  RoutingLog& log_;
  bool begun_ = false;  // a pass that has routed nothing yet
};

}  // namespace

Result<std::unique_ptr<Executor>> RoutingBackend::create_executor(const ExecutorPlan& plan,
                                                                  MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(auto executor, inner().create_executor(plan, budget));
  return std::make_unique<RoutingExecutor>(std::move(executor), memory(), log_);
}

}  // namespace kakeya::eval
