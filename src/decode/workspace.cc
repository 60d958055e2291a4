#include "decode/workspace.h"

#include <algorithm>

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
  widen(&ExecutorPlan::top_k_experts);
  widen(&ExecutorPlan::num_experts);
  widen(&ExecutorPlan::hidden_size);
  widen(&ExecutorPlan::moe_intermediate_size);
}

}  // namespace

void WorkspacePlan::include(const WorkspacePlan& other) {
  include_executor(executor, other.executor);
  activation_bytes = std::max(activation_bytes, other.activation_bytes);
  logit_bytes = std::max(logit_bytes, other.logit_bytes);
  draft_logit_bytes = std::max(draft_logit_bytes, other.draft_logit_bytes);
  tap_bytes = std::max(tap_bytes, other.tap_bytes);
}

Footprint estimate_workspace(const WorkspacePlan& plan, const Backend& backend) {
  const std::uint64_t activations = MemoryBudget::charged_bytes(plan.activation_bytes) +
                                    MemoryBudget::charged_bytes(plan.tap_bytes) +
                                    backend.executor_bytes(plan.executor);
  const std::uint64_t copies = backend.memory().is_host() ? 1 : 2;  // as Workspace::download says
  const std::uint64_t logits = copies * (MemoryBudget::charged_bytes(plan.logit_bytes) +
                                         MemoryBudget::charged_bytes(plan.draft_logit_bytes));
  Footprint footprint;
  footprint.reserved_bytes(MemoryClass::kActivations) = activations;
  footprint.live_bytes(MemoryClass::kActivations) = activations;
  footprint.reserved_bytes(MemoryClass::kLogits) = logits;
  footprint.live_bytes(MemoryClass::kLogits) = logits;
  return footprint;
}

Status Workspace::check(const KvCacheSpec& cache) const {
  for (const LayerCacheSpec& layer : cache.layers) {
    KAKEYA_TRY(backend_.check_rows(layer.format, layer.restored));
  }
  return {};
}

Status Workspace::reserve(const WorkspacePlan& plan) {
  const Turn turn = take_turn();
  WorkspacePlan wanted = plan_;
  wanted.include(plan);
  // What there is stays until everything new is there, for the budget may refuse.
  const auto grown = [&](MemoryClass memory_class, std::uint64_t had, std::uint64_t bytes,
                         MemorySpace& space) -> Result<Buffer> {
    if (bytes == had) return Buffer();
    return budget_.allocate(memory_class, bytes, space);
  };
  MemorySpace& own = memory();
  KAKEYA_ASSIGN_OR_RETURN(
      Buffer activations,
      grown(MemoryClass::kActivations, plan_.activation_bytes, wanted.activation_bytes, own));
  KAKEYA_ASSIGN_OR_RETURN(Buffer taps,
                          grown(MemoryClass::kActivations, plan_.tap_bytes, wanted.tap_bytes, own));
  KAKEYA_ASSIGN_OR_RETURN(Buffer logits,
                          grown(MemoryClass::kLogits, plan_.logit_bytes, wanted.logit_bytes, own));
  KAKEYA_ASSIGN_OR_RETURN(Buffer draft_logits, grown(MemoryClass::kLogits, plan_.draft_logit_bytes,
                                                     wanted.draft_logit_bytes, own));
  Buffer host_logits;
  Buffer host_draft_logits;
  if (!own.is_host()) {
    MemorySpace& host = MemorySpace::host();
    KAKEYA_ASSIGN_OR_RETURN(
        host_logits, grown(MemoryClass::kLogits, plan_.logit_bytes, wanted.logit_bytes, host));
    KAKEYA_ASSIGN_OR_RETURN(host_draft_logits, grown(MemoryClass::kLogits, plan_.draft_logit_bytes,
                                                     wanted.draft_logit_bytes, host));
  }
  if (executor_ == nullptr || wanted.executor != plan_.executor) {
    KAKEYA_ASSIGN_OR_RETURN(auto executor, backend_.create_executor(wanted.executor, budget_));
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
  if (activations.size() > 0) activations_ = std::move(activations);
  if (taps.size() > 0) taps_ = std::move(taps);
  if (logits.size() > 0) logits_ = std::move(logits);
  if (draft_logits.size() > 0) draft_logits_ = std::move(draft_logits);
  if (host_logits.size() > 0) host_logits_ = std::move(host_logits);
  if (host_draft_logits.size() > 0) host_draft_logits_ = std::move(host_draft_logits);
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
  const bool drafts = inside(draft_logits_);
  KAKEYA_CHECK(drafts || inside(logits_));
  const Buffer& from = drafts ? draft_logits_ : logits_;
  const Buffer& to = drafts ? host_draft_logits_ : host_logits_;
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
