#include "decode/dflash_source.h"

#include <algorithm>
#include <cstring>
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
  KAKEYA_ASSIGN_OR_RETURN(KvCache context, KvCache::create(plan.context, budget));
  std::unique_ptr<DflashSource> source(
      new DflashSource(drafter, backend, plan, std::move(context), budget));
  KAKEYA_TRY(source->own_taps());
  KAKEYA_TRY(source->allocate_scratch());
  return source;
}

Status DflashSource::allocate_scratch() {
  if (executor_ != nullptr) return {};
  const DrafterConfig& config = drafter_.config();
  KAKEYA_ASSIGN_OR_RETURN(Buffer memory, budget_.allocate(MemoryClass::kActivations,
                                                          arena_bytes(config, plan_.pass_rows)));
  KAKEYA_ASSIGN_OR_RETURN(Buffer logits,
                          budget_.allocate(MemoryClass::kLogits, logits_bytes(config)));
  KAKEYA_ASSIGN_OR_RETURN(executor_, backend_.create_executor(plan_.executor, budget_));
  executor_bytes_ = backend_.executor_bytes(plan_.executor);
  arena_ = std::move(memory);
  logits_ = std::move(logits);
  Arena arena(arena_.data());
  activations_ = dflash::DraftActivations::layout(arena, config, plan_.pass_rows);
  block_.reserve(static_cast<std::size_t>(config.block_size));
  return {};
}

std::unique_ptr<DflashSource> DflashSource::fork() {
  std::unique_ptr<DflashSource> copy(
      new DflashSource(drafter_, backend_, plan_, context_.fork(), budget_));
  copy->taps_ = taps_.share();
  copy->waiting_ = waiting_;
  return copy;
}

Status DflashSource::own_taps() {
  if (taps_ && !taps_.is_shared()) return {};
  const std::uint64_t bytes = tap_bytes(drafter_.config(), plan_);
  KAKEYA_ASSIGN_OR_RETURN(std::vector<SharedBlock> memory,
                          SharedBlock::allocate(budget_, MemoryClass::kDrafter, bytes, 1));
  if (waiting_ > 0) {
    const Rows waiting = tap_rows(0, waiting_);
    std::memcpy(memory.front().data(), waiting.data,
                static_cast<std::size_t>(waiting.count * waiting.width) * sizeof(float));
  }
  taps_ = std::move(memory.front());
  return {};
}

Result<DflashSource::State> DflashSource::state(Position length) const {
  if (plan_.rebuild_context) return State{{}, std::min(waiting_, length)};
  const Position kept = std::min(context_.length(), length);
  KAKEYA_ASSIGN_OR_RETURN(const KvCache::Extent context, context_.extent(kept));
  return State{context, length - kept};
}

Status DflashSource::prepare_restore(const State& state, Position length) {
  const Position context = plan_.rebuild_context ? 0 : state.context.length;
  // The file is anyone's: a context is known to be within the text before it is subtracted.
  if (context != state.context.length || context < 0 || context > length ||
      state.waiting != length - context || state.waiting > plan_.tap_rows) {
    return data_loss("[drafter] {} positions and {} taps are not what goes with {} tokens",
                     state.context.length, state.waiting, length);
  }
  KAKEYA_TRY(context_.prepare_restore(state.context));
  return own_taps();
}

void DflashSource::restore(const State& state) {
  context_.restore(state.context);
  waiting_ = state.waiting;
}

std::span<std::byte> DflashSource::taps(std::int64_t count) const {
  const auto width = static_cast<std::size_t>(tap_width(drafter_.config())) * sizeof(float);
  return {taps_.data(), static_cast<std::size_t>(count) * width};
}

Rows DflashSource::tap_rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t width = tap_width(drafter_.config());
  return {reinterpret_cast<float*>(taps_.data()) + first * width, count, width};
}

Status DflashSource::extend_context(Rows taps) {
  for (std::int64_t begin = 0; begin < taps.count; begin += plan_.pass_rows) {
    const std::int64_t rows = std::min(plan_.pass_rows, taps.count - begin);
    KAKEYA_TRY(context_.reserve(rows));
    drafter_.extend_context({taps.data + begin * taps.width, rows, taps.width}, context_,
                            *executor_, activations_);
    context_.commit(rows);
  }
  return {};
}

Status DflashSource::bring_context_up_to_date() {
  KAKEYA_TRY(allocate_scratch());
  if (plan_.rebuild_context) {
    context_.clear();  // and all of it is made again, whatever came of it last time
    return extend_context(tap_rows(0, waiting_));
  }
  // All at once, for the budget may refuse a copy: nothing has changed then.
  KAKEYA_TRY(context_.reserve(waiting_));
  KAKEYA_CHECK(extend_context(tap_rows(0, waiting_)).has_value());
  waiting_ = 0;
  return {};
}

// Works off no more than the room asks for: while plain steps win, a draft may never need the rest,
// and a text that ends first has not paid for it.
Result<Rows> DflashSource::reserve_taps(std::int64_t rows) {
  KAKEYA_TRY(own_taps());
  while (waiting_ + rows > plan_.tap_rows) {
    KAKEYA_CHECK(waiting_ > 0);
    KAKEYA_TRY(allocate_scratch());
    const std::int64_t oldest = std::min(waiting_, plan_.pass_rows);
    KAKEYA_TRY(extend_context(tap_rows(0, oldest)));
    waiting_ -= oldest;
    const Rows rest = tap_rows(oldest, waiting_);
    std::copy(rest.data, rest.data + rest.count * rest.width, tap_rows(0, 0).data);
  }
  return tap_rows(waiting_, rows);
}

void DflashSource::commit_taps(std::int64_t rows) {
  waiting_ += rows;
}

Status DflashSource::finish_taps() {
  // Before it must be: a prompt's part belongs to the prefill.
  if (plan_.rebuild_context || waiting_ < plan_.pass_rows) return {};
  return bring_context_up_to_date();
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

Status DflashSource::draft(std::span<const TokenId> tokens,
                           Sampler& sampler,
                           std::span<TokenId> out) {
  KAKEYA_TRY(bring_context_up_to_date());
  const auto count = static_cast<std::int64_t>(out.size());
  const DrafterConfig& config = drafter_.config();
  KAKEYA_TRY(context_.reserve(count + 1));  // the context is longer than the target's by a block
  block_.assign(out.size() + 1, config.mask_token_id);
  block_.front() = tokens.back();
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
  return {};
}

std::span<const float> DflashSource::draft_probabilities(std::int64_t index) const {
  const std::int64_t width = drafter_.config().layers.vocab_size;
  return {logits_.as<float>() + index * width, static_cast<std::size_t>(width)};
}

Footprint DflashSource::footprint() const {
  Footprint footprint = context_.footprint();
  footprint.reserved_bytes(MemoryClass::kDrafter) += taps_.group_bytes();
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
