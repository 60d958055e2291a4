#include "decode/workspace.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {
namespace {

void include_executor(ExecutorPlan& plan, const ExecutorPlan& other) {
  const auto widen = [&](auto member) { plan.*member = std::max(plan.*member, other.*member); };
  widen(&ExecutorPlan::max_rows);
  widen(&ExecutorPlan::max_sequences);
  widen(&ExecutorPlan::max_matmul_width);
  widen(&ExecutorPlan::max_query_width);
  widen(&ExecutorPlan::max_head_dim);
  widen(&ExecutorPlan::max_positions);
  widen(&ExecutorPlan::max_kv_numbers);
  widen(&ExecutorPlan::max_coded_head_dim);
  widen(&ExecutorPlan::top_k_experts);
  widen(&ExecutorPlan::num_experts);
  widen(&ExecutorPlan::hidden_size);
  widen(&ExecutorPlan::moe_intermediate_size);
}

}  // namespace

void WorkspacePlan::include_attention(const KvCacheSpec& cache) {
  // Not each session that is a token longer than all others needs another executor.
  constexpr std::int64_t kStep = 256;
  for (const LayerCacheSpec& layer : cache.layers) {
    if (layer.is_codes) continue;
    const bool all = layer.restored || layer.is_coded();
    const std::int64_t held = all ? cache.context : cache.capacity(layer);
    const std::int64_t positions = (held + kStep - 1) / kStep * kStep;
    const std::int64_t numbers =
        positions * layer.num_kv_heads * layer.head_dim * (layer.restored ? 2 : 1);
    executor.max_positions = std::max(executor.max_positions, positions);
    if (layer.is_coded()) {
      executor.max_coded_head_dim = std::max(executor.max_coded_head_dim, layer.head_dim);
    }
    executor.max_kv_numbers = std::max(executor.max_kv_numbers, numbers);
  }
}

void WorkspacePlan::include(const WorkspacePlan& other) {
  include_executor(executor, other.executor);
  activation_bytes = std::max(activation_bytes, other.activation_bytes);
  logit_bytes = std::max(logit_bytes, other.logit_bytes);
  draft_logit_bytes = std::max(draft_logit_bytes, other.draft_logit_bytes);
  tap_bytes = std::max(tap_bytes, other.tap_bytes);
  hidden_bytes = std::max(hidden_bytes, other.hidden_bytes);
}

Footprint estimate_workspace(const WorkspacePlan& plan, const Backend& backend) {
  const std::uint64_t copies = backend.memory().is_host() ? 1 : 2;  // as Workspace::download says
  const std::uint64_t activations = MemoryBudget::charged_bytes(plan.activation_bytes) +
                                    MemoryBudget::charged_bytes(plan.tap_bytes) +
                                    copies * MemoryBudget::charged_bytes(plan.hidden_bytes) +
                                    backend.executor_bytes(plan.executor);
  const std::uint64_t logits = copies * (MemoryBudget::charged_bytes(plan.logit_bytes) +
                                         MemoryBudget::charged_bytes(plan.draft_logit_bytes));
  Footprint footprint;
  footprint.reserved_bytes(MemoryClass::kActivations) = activations;
  footprint.live_bytes(MemoryClass::kActivations) = activations;
  footprint.reserved_bytes(MemoryClass::kLogits) = logits;
  footprint.live_bytes(MemoryClass::kLogits) = logits;
  return footprint;
}

Status Workspace::reserve(const WorkspacePlan& plan) {
  const Turn turn = take_turn();
  WorkspacePlan wanted = reserved();
  wanted.include(plan);
  KAKEYA_TRY(resize(wanted));
  kept_.include(plan);
  return {};
}

Result<Workspace::Reservation> Workspace::reserve_for_now(const WorkspacePlan& plan) {
  const Turn turn = take_turn();
  WorkspacePlan wanted = reserved();
  wanted.include(plan);
  KAKEYA_TRY(resize(wanted));
  return Reservation(*this, temporary_.insert(temporary_.end(), plan));
}

void Workspace::give_back(std::list<WorkspacePlan>::iterator place) {
  const Turn turn = take_turn();
  temporary_.erase(place);
  // Within a turn of its own thread a smaller copy may not fit beside what there is, which stays
  // then.
  static_cast<void>(resize(reserved()));
}

WorkspacePlan Workspace::reserved() const {
  // Within another turn of this thread what there is may be in use.
  WorkspacePlan all = depth_ > 1 ? plan_ : kept_;
  for (const WorkspacePlan& plan : temporary_) all.include(plan);
  return all;
}

struct Workspace::Part {
  Buffer Workspace::*buffer;
  MemoryClass memory_class;
  std::uint64_t WorkspacePlan::*bytes;
  bool is_copy = false;  // for the host
};

std::span<const Workspace::Part> Workspace::parts() {
  using Plan = WorkspacePlan;
  static constexpr std::array kParts = {
      Part{&Workspace::activations_, MemoryClass::kActivations, &Plan::activation_bytes},
      Part{&Workspace::taps_, MemoryClass::kActivations, &Plan::tap_bytes},
      Part{&Workspace::hidden_, MemoryClass::kActivations, &Plan::hidden_bytes},
      Part{&Workspace::logits_, MemoryClass::kLogits, &Plan::logit_bytes},
      Part{&Workspace::draft_logits_, MemoryClass::kLogits, &Plan::draft_logit_bytes},
      Part{&Workspace::host_hidden_, MemoryClass::kActivations, &Plan::hidden_bytes, true},
      Part{&Workspace::host_logits_, MemoryClass::kLogits, &Plan::logit_bytes, true},
      Part{&Workspace::host_draft_logits_, MemoryClass::kLogits, &Plan::draft_logit_bytes, true}};
  return kParts;
}

Status Workspace::resize(const WorkspacePlan& wanted) {
  // Within a turn within a turn what there is may be in use.
  if (depth_ > 1) return replace(plan_, wanted);
  const MemoryBudget::Exchange exchange(budget_);
  const WorkspacePlan kept = free_others(wanted);
  const Status replaced = replace(kept, wanted);
  // The budget has room for what there was; if the system has not, no pass can run any more.
  if (!replaced) KAKEYA_CHECK(replace(kept, plan_).has_value());
  return replaced;
}

WorkspacePlan Workspace::free_others(const WorkspacePlan& wanted) {
  WorkspacePlan kept = plan_;
  for (const Part& part : parts()) {
    if (wanted.*part.bytes == plan_.*part.bytes) continue;
    this->*part.buffer = Buffer();
    kept.*part.bytes = 0;
  }
  if (wanted.executor != plan_.executor) {
    bytes_read_ = bytes_read();
    executor_.reset();
    kept.executor = {};
  }
  return kept;
}

Status Workspace::replace(const WorkspacePlan& present, const WorkspacePlan& wanted) {
  // The present buffers stay until all new ones are there, for the budget may refuse.
  std::vector<std::optional<Buffer>> resized(parts().size());
  for (std::size_t i = 0; i < parts().size(); ++i) {
    const Part& part = parts()[i];
    const std::uint64_t bytes = wanted.*part.bytes;
    if (bytes == present.*part.bytes || (part.is_copy && memory().is_host())) continue;
    MemorySpace& space = part.is_copy ? MemorySpace::host() : memory();
    KAKEYA_ASSIGN_OR_RETURN(resized[i], budget_.allocate(part.memory_class, bytes, space));
  }
  if (wanted.executor != present.executor) {
    std::unique_ptr<Executor> executor;
    if (wanted.executor != ExecutorPlan{}) {
      KAKEYA_ASSIGN_OR_RETURN(executor, backend_.create_executor(wanted.executor, budget_));
    }
    bytes_read_ = bytes_read();
    executor_ = std::move(executor);
    target_batch_ = BatchBuilder(wanted.executor.max_rows, wanted.executor.max_sequences);
    other_batch_ = BatchBuilder(wanted.executor.max_rows, wanted.executor.max_sequences);
    const auto sequences = static_cast<std::size_t>(wanted.executor.max_sequences);
    timelines_.reserve(sequences);
    draft_jobs_.reserve(sequences);
    block_choices_.reserve(sequences);
    choices_.reserve(sequences);
  }
  for (std::size_t i = 0; i < parts().size(); ++i) {
    if (resized[i]) this->*parts()[i].buffer = std::move(*resized[i]);
  }
  const std::lock_guard lock(mutex_);
  plan_ = wanted;
  return {};
}

HostRows Workspace::download(Rows rows) {
  if (memory().is_host()) return {rows.data.address(), rows.count, rows.width};
  const float* const address = rows.data.address();
  const auto inside = [&](const Buffer& buffer) {
    return address >= buffer.as<float>() &&
           address < buffer.as<float>() + buffer.size() / sizeof(float);
  };
  KAKEYA_CHECK(inside(draft_logits_) || inside(logits_) || inside(hidden_));
  const auto [from, to] = [&]() -> std::pair<const Buffer&, const Buffer&> {
    if (inside(draft_logits_)) return {draft_logits_, host_draft_logits_};
    if (inside(hidden_)) return {hidden_, host_hidden_};
    return {logits_, host_logits_};
  }();
  const HostRows copy{to.as<float>() + (address - from.as<float>()), rows.count, rows.width};
  kakeya::download(memory(), DevicePointer<const float>(rows.data), copy.all());
  return copy;
}

Rows Workspace::first_rows(const Buffer& buffer, std::int64_t count, std::int64_t width) {
  KAKEYA_CHECK(static_cast<std::uint64_t>(count * width) * sizeof(float) <= buffer.size());
  return {buffer.device<float>(), count, width};
}

Workspace::RowLimit::RowLimit(Workspace& workspace, std::int64_t rows) : workspace_(workspace) {
  const std::lock_guard lock(workspace_.mutex_);
  place_ = workspace_.row_limits_.insert(rows);
}

Workspace::RowLimit::~RowLimit() {
  const std::lock_guard lock(workspace_.mutex_);
  workspace_.row_limits_.erase(place_);
}

std::int64_t Workspace::limited_rows(std::int64_t rows) const {
  const std::lock_guard lock(mutex_);
  return row_limits_.empty() ? rows : std::min(rows, *row_limits_.begin());
}

void Workspace::begin_turn() {
  std::unique_lock lock(mutex_);
  if (depth_ > 0 && owner_ == std::this_thread::get_id()) {
    ++depth_;
    return;
  }
  const std::uint64_t ticket = next_ticket_++;
  turn_ended_.wait(lock, [&] { return serving_ == ticket && depth_ == 0; });
  owner_ = std::this_thread::get_id();
  depth_ = 1;
}

void Workspace::end_turn() {
  const std::lock_guard lock(mutex_);
  if (--depth_ > 0) return;
  ++serving_;
  turn_ended_.notify_all();
}

}  // namespace kakeya
