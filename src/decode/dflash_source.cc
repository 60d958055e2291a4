#include "decode/dflash_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {
namespace {

// A pass over the context reads fc and the layers' k_proj and v_proj once; this many rows share it.
constexpr std::int64_t kContextRows = 128;

std::int64_t tap_width(const DrafterConfig& config) {
  return static_cast<std::int64_t>(config.target_layer_ids.size()) * config.layers.hidden_size;
}

std::uint64_t tap_bytes(const DrafterConfig& config, const DflashPlan& plan) {
  return static_cast<std::uint64_t>(plan.tap_rows * tap_width(config)) * sizeof(float);
}

std::uint64_t logits_bytes(const DrafterConfig& config) {
  return static_cast<std::uint64_t>((config.block_size - 1) * config.layers.vocab_size) *
         sizeof(float);
}

std::uint64_t arena_bytes(const DrafterConfig& config, std::int64_t pass_rows) {
  Arena measure;
  dflash::DraftActivations::layout(measure, config, pass_rows);
  return measure.used();
}

}  // namespace

DflashPlan plan_dflash(const DrafterConfig& config,
                       const TimelinePlan& target,
                       bool rebuild_context) {
  DflashPlan plan;
  plan.pass_rows = std::max(config.block_size, std::min(kContextRows, target.max_rows));
  plan.tap_rows = rebuild_context ? target.context + target.max_rows : target.max_rows;
  plan.executor = dflash::plan_drafter_executor(config, plan.pass_rows);
  // The rings reach as far beyond their window as the target's, so that the drafter can go back
  // wherever the target can. Blocks may end behind the target's last position.
  plan.context = dflash::plan_context(config, target.context + config.block_size,
                                      std::max(target.max_rows, plan.pass_rows), target.drafter);
  plan.rebuild_context = rebuild_context;
  return plan;
}

Footprint estimate_dflash(const DrafterConfig& config,
                          const DflashPlan& plan,
                          const Backend& backend) {
  Footprint footprint = plan.context.estimate();
  footprint.reserved_bytes(MemoryClass::kDrafter) +=
      MemoryBudget::charged_bytes(tap_bytes(config, plan));
  footprint.reserved_bytes(MemoryClass::kActivations) +=
      MemoryBudget::charged_bytes(arena_bytes(config, plan.pass_rows)) +
      backend.executor_bytes(plan.executor);
  footprint.reserved_bytes(MemoryClass::kLogits) +=
      MemoryBudget::charged_bytes(logits_bytes(config));
  return footprint;
}

Result<std::unique_ptr<DflashSource>> DflashSource::create(const dflash::Drafter& drafter,
                                                           Backend& backend,
                                                           const DflashPlan& plan,
                                                           MemoryBudget& budget) {
  const DrafterConfig& config = drafter.config();
  KAKEYA_ASSIGN_OR_RETURN(KvCache context, KvCache::create(plan.context, budget));
  std::unique_ptr<DflashSource> source(new DflashSource(drafter, plan, std::move(context)));
  KAKEYA_ASSIGN_OR_RETURN(source->taps_,
                          budget.allocate(MemoryClass::kDrafter, tap_bytes(config, plan)));
  KAKEYA_ASSIGN_OR_RETURN(source->arena_, budget.allocate(MemoryClass::kActivations,
                                                          arena_bytes(config, plan.pass_rows)));
  Arena arena(source->arena_.data());
  source->activations_ = dflash::DraftActivations::layout(arena, config, plan.pass_rows);
  KAKEYA_ASSIGN_OR_RETURN(source->logits_,
                          budget.allocate(MemoryClass::kLogits, logits_bytes(config)));
  source->executor_bytes_ = backend.executor_bytes(plan.executor);
  KAKEYA_ASSIGN_OR_RETURN(source->executor_, backend.create_executor(plan.executor, budget));
  source->block_.reserve(static_cast<std::size_t>(config.block_size));
  return source;
}

Rows DflashSource::tap_rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t width = tap_width(drafter_.config());
  return {taps_.as<float>() + first * width, count, width};
}

void DflashSource::extend_context(Rows taps) {
  for (std::int64_t begin = 0; begin < taps.count; begin += plan_.pass_rows) {
    const std::int64_t rows = std::min(plan_.pass_rows, taps.count - begin);
    KAKEYA_CHECK(context_.reserve(rows).has_value());  // the context is as long as the target's
    drafter_.extend_context({taps.data + begin * taps.width, rows, taps.width}, context_,
                            *executor_, activations_);
    context_.commit(rows);
  }
}

void DflashSource::bring_context_up_to_date() {
  if (plan_.rebuild_context) context_.clear();
  extend_context(tap_rows(0, waiting_));
  if (!plan_.rebuild_context) waiting_ = 0;
}

// Works off no more than the room asks for: while plain steps win, a draft may never need the rest,
// and a text that ends first has not paid for it.
Rows DflashSource::reserve_taps(std::int64_t rows) {
  while (waiting_ + rows > plan_.tap_rows) {
    KAKEYA_CHECK(waiting_ > 0);
    const std::int64_t oldest = std::min(waiting_, plan_.pass_rows);
    extend_context(tap_rows(0, oldest));
    waiting_ -= oldest;
    const Rows rest = tap_rows(oldest, waiting_);
    std::copy(rest.data, rest.data + rest.count * rest.width, taps_.as<float>());
  }
  return tap_rows(waiting_, rows);
}

void DflashSource::commit_taps(std::int64_t rows) {
  waiting_ += rows;
}

void DflashSource::finish_taps() {
  // Before it must be: a prompt's part belongs to the prefill.
  if (!plan_.rebuild_context && waiting_ >= plan_.pass_rows) bring_context_up_to_date();
}

Status DflashSource::check_truncate(Position length) const {
  if (plan_.rebuild_context || length >= context_.length()) return {};
  return context_.check_truncate(length);
}

void DflashSource::truncate(Position length) {
  if (plan_.rebuild_context) {
    waiting_ = std::min(waiting_, length);
  } else if (length >= context_.length()) {
    waiting_ = std::min(waiting_, length - context_.length());
  } else {
    KAKEYA_CHECK(context_.truncate(length).has_value());  // was checked
    waiting_ = 0;
  }
}

void DflashSource::draft(std::span<const TokenId> tokens,
                         Sampler& sampler,
                         std::span<TokenId> out) {
  bring_context_up_to_date();
  const auto count = static_cast<std::int64_t>(out.size());
  const DrafterConfig& config = drafter_.config();
  block_.assign(out.size() + 1, config.mask_token_id);
  block_.front() = tokens.back();
  KAKEYA_CHECK(context_.reserve(count + 1).has_value());
  const Rows logits{logits_.as<float>(), count, config.layers.vocab_size};
  drafter_.forward(block_, context_, *executor_, activations_, logits);
  // The block's rows are not committed: its last tokens are guesses, and even its first one gets
  // its place in the context from the target's taps.
  context_.commit(0);
  const auto first = static_cast<Position>(tokens.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::span<float> row(logits.data + i * logits.width,
                               static_cast<std::size_t>(logits.width));
    row[static_cast<std::size_t>(config.mask_token_id)] = -std::numeric_limits<float>::infinity();
    out[static_cast<std::size_t>(i)] = sampler.draft(row, first + i);
  }
}

std::span<const float> DflashSource::draft_probabilities(std::int64_t index) const {
  const std::int64_t width = drafter_.config().layers.vocab_size;
  return {logits_.as<float>() + index * width, static_cast<std::size_t>(width)};
}

Footprint DflashSource::footprint() const {
  Footprint footprint = context_.footprint();
  footprint.reserved_bytes(MemoryClass::kDrafter) += taps_.size();
  footprint.live_bytes(MemoryClass::kDrafter) +=
      static_cast<std::uint64_t>(waiting_ * tap_width(drafter_.config())) * sizeof(float);
  const std::uint64_t activations = arena_.size() + executor_bytes_;
  footprint.reserved_bytes(MemoryClass::kActivations) += activations;
  footprint.live_bytes(MemoryClass::kActivations) += activations;
  footprint.reserved_bytes(MemoryClass::kLogits) += logits_.size();
  footprint.live_bytes(MemoryClass::kLogits) += logits_.size();
  return footprint;
}

}  // namespace kakeya
