#include "decode/dflash_source.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace kakeya {
namespace {

// A pass over the context reads fc and the layers' k_proj and v_proj once; this many rows share it.
constexpr std::int64_t kContextRows = 128;

// The parts of a drafter's operations.
constexpr int kDraftPart = 1;
constexpr int kContextPart = 2;

std::int64_t tap_width(const DrafterConfig& config) {
  return static_cast<std::int64_t>(config.target_layer_ids.size()) * config.layers.hidden_size;
}

}  // namespace

std::uint64_t tap_bytes(const DrafterConfig& config, std::int64_t rows) {
  return static_cast<std::uint64_t>(rows * tap_width(config)) * sizeof(float);
}

WorkspacePlan plan_drafter_passes(const DrafterConfig& config,
                                  std::int64_t pass_rows,
                                  std::int64_t draft_rows,
                                  std::int64_t target_rows) {
  Arena measure;
  dflash::DraftActivations::layout(measure, config, pass_rows);
  return {.executor = dflash::plan_drafter_executor(config, pass_rows),
          .activation_bytes = measure.used(),
          .draft_logit_bytes = DraftRows::bytes(config, draft_rows),
          .tap_bytes = tap_bytes(config, std::max(target_rows, pass_rows))};
}

DflashPlan plan_dflash(const DrafterConfig& config, const TimelinePlan& target) {
  DflashPlan plan;
  plan.pass_rows = std::max(config.block_size, std::min(kContextRows, target.max_rows));
  plan.tap_rows = target.max_rows;
  plan.workspace =
      plan_drafter_passes(config, plan.pass_rows, config.block_size - 1, target.max_rows);
  // The rings reach as far beyond their window as the target's, so that the drafter can go back
  // wherever the target can. Blocks may end behind the target's last position.
  plan.context = dflash::plan_context(config, target.context + config.block_size,
                                      std::max(target.max_rows, plan.pass_rows), target.drafter);
  plan.context.grows = target.cache.grows;
  plan.workspace.include_attention(plan.context);
  return plan;
}

Footprint estimate_dflash(const DrafterConfig& config, const DflashPlan& plan) {
  Footprint footprint = plan.context.estimate();
  footprint.reserved_bytes(MemoryClass::kDrafter) +=
      MemoryBudget::charged_bytes(tap_bytes(config, plan.tap_rows));
  return footprint;
}

Result<std::unique_ptr<DflashSource>> DflashSource::create(const dflash::Drafter& drafter,
                                                           Workspace& workspace,
                                                           const DflashPlan& plan,
                                                           MemoryBudget& budget) {
  KAKEYA_TRY(workspace.reserve(plan.workspace));
  KAKEYA_ASSIGN_OR_RETURN(KvCache context,
                          KvCache::create(plan.context, budget, workspace.memory()));
  std::unique_ptr<DflashSource> source(
      new DflashSource(drafter, workspace, plan, std::move(context), budget));
  KAKEYA_TRY(source->own_taps());
  return source;
}

std::unique_ptr<DflashSource> DflashSource::fork() {
  std::unique_ptr<DflashSource> copy(
      new DflashSource(drafter_, workspace_, plan_, context_.fork(), budget_));
  copy->taps_ = taps_.share();
  copy->waiting_ = waiting_;
  return copy;
}

Status DflashSource::own_taps() {
  if (taps_ && !taps_.is_shared()) return {};
  const std::uint64_t bytes = tap_bytes(drafter_.config(), plan_.tap_rows);
  KAKEYA_ASSIGN_OR_RETURN(
      std::vector<SharedBlock> memory,
      SharedBlock::allocate(budget_, workspace_.memory(), MemoryClass::kDrafter, bytes, 1));
  if (waiting_ > 0) {
    workspace_.memory().copy(taps_.data(), memory.front().data(), taps(waiting_).size);
  }
  taps_ = std::move(memory.front());
  return {};
}

Result<DflashSource::State> DflashSource::state(Position length) const {
  const Position kept = std::min(context_.length(), length);
  KAKEYA_ASSIGN_OR_RETURN(const KvCache::Extent context, context_.extent(kept));
  return State{context, length - kept};
}

Status DflashSource::prepare_restore(const State& state, Position length) {
  const Position context = state.context.length;
  // The file is anyone's: a context is known to be within the text before it is subtracted.
  if (context < 0 || context > length || state.waiting != length - context ||
      state.waiting > plan_.tap_rows) {
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

KvPiece DflashSource::taps(std::int64_t count) const {
  const auto width = static_cast<std::size_t>(tap_width(drafter_.config())) * sizeof(float);
  return {taps_.data(), static_cast<std::size_t>(count) * width};
}

std::int64_t DflashSource::taps_width() const {
  return tap_width(drafter_.config());
}

Rows DflashSource::tap_rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t width = taps_width();
  return {taps_.data().as<float>() + first * width, count, width};
}

Status DflashSource::extend_context(std::int64_t count) {
  // All at once, for the budget may refuse a copy, or the device fail: nothing has changed then.
  KAKEYA_TRY(context_.reserve(count));
  Executor& executor = workspace_.executor();
  const std::uint64_t before = workspace_.bytes_read();
  for (std::int64_t begin = 0; begin < count; begin += plan_.pass_rows) {
    const std::int64_t rows = std::min(plan_.pass_rows, count - begin);
    BatchBuilder& builder = workspace_.other_batch();
    builder.clear();
    builder.add_rows(rows, context_.length() + begin, context_.layers());
    executor.begin(builder.batch());
    extend(tap_rows(begin, rows), builder.batch());
  }
  KAKEYA_TRY(executor.end({}));
  bytes_read_ += workspace_.bytes_read() - before;
  context_.commit(count);
  return {};
}

void DflashSource::extend(ConstRows taps, const Batch& batch) {
  Executor& executor = workspace_.executor();
  const dflash::DraftActivations own = activations(taps.count);
  const PassKey key = {
      .network = &drafter_, .part = kContextPart, .rows = {taps, own.layers.hidden}};
  if (!executor.repeat(key)) drafter_.extend_context(taps, batch, executor, own);
}

dflash::DraftActivations DflashSource::activations(std::int64_t rows) const {
  Arena arena = workspace_.arena();
  return dflash::DraftActivations::layout(arena, drafter_.config(), rows);
}

Status DflashSource::bring_context_up_to_date() {
  KAKEYA_TRY(extend_context(waiting_));
  waiting_ = 0;
  return {};
}

// Works off no more than the room asks for: while plain steps win, a draft may never need the rest,
// and a text that ends first has not paid for it.
Status DflashSource::reserve_taps(std::int64_t rows) {
  KAKEYA_TRY(own_taps());
  while (waiting_ + rows > plan_.tap_rows) {
    KAKEYA_CHECK(waiting_ > 0);
    const std::int64_t oldest = std::min(waiting_, plan_.pass_rows);
    KAKEYA_TRY(extend_context(oldest));
    waiting_ -= oldest;
    const Rows rest = tap_rows(oldest, waiting_);
    workspace_.memory().copy(rest.data.as<std::byte>(), taps_.data(), taps(waiting_).size);
  }
  return {};
}

void DflashSource::commit_taps(ConstRows rows) {
  workspace_.memory().copy(rows.data.as<const std::byte>(),
                           tap_rows(waiting_, rows.count).data.as<std::byte>(),
                           taps(rows.count).size);
  waiting_ += rows.count;
}

Status DflashSource::finish_taps() {
  // Before it must be: a prompt's part belongs to the prefill.
  if (waiting_ < plan_.pass_rows) return {};
  return bring_context_up_to_date();
}

Status DflashSource::check_truncate(Position length) const {
  if (length >= context_.length()) return {};
  return context_.check_truncate(length);
}

void DflashSource::truncate(Position length) {
  if (length >= context_.length()) {
    waiting_ = std::min(waiting_, length - context_.length());
  } else {
    KAKEYA_CHECK(context_.truncate(length).has_value());  // was checked
    waiting_ = 0;
  }
}

Status DflashSource::draft(std::span<const TokenId> tokens,
                           Sampler& sampler,
                           std::span<TokenId> out) {
  const Workspace::Turn turn = workspace_.take_turn();
  const DraftJob job{.source = this, .tokens = tokens, .sampler = &sampler, .out = out};
  ContextWork ignored;
  return draft_together({&job, 1}, ignored);
}

Status DflashSource::draft_together(std::span<const DraftJob> jobs, ContextWork& work) {
  if (jobs.empty()) return {};
  const Stopwatch watch;
  for (const DraftJob& job : jobs) work.rows += job.source->waiting_;
  KAKEYA_TRY(bring_up_to_date(jobs));
  work.seconds += watch.seconds();
  const DflashSource& any = *jobs.front().source;
  Workspace& workspace = any.workspace_;
  const std::uint64_t before = workspace.bytes_read();
  KAKEYA_ASSIGN_OR_RETURN(const DraftRows rows, run_blocks(jobs));
  if (any.drafter_.selector() != nullptr) {
    KAKEYA_TRY(walk_candidates(any.drafter_, rows, jobs, workspace));
  } else {
    choose_drafts(jobs, rows.logits);
  }
  const std::uint64_t bytes = workspace.bytes_read() - before;
  for (const DraftJob& job : jobs) {
    // The block's rows are not committed: its last tokens are guesses, and even its first one gets
    // its place in the context from the target's taps.
    job.source->context_.commit(0);
    job.source->bytes_read_ += bytes / jobs.size();
  }
  return {};
}

Result<DraftRows> DflashSource::run_blocks(std::span<const DraftJob> jobs) {
  const DflashSource& any = *jobs.front().source;
  const DrafterConfig& config = any.drafter_.config();
  Workspace& workspace = any.workspace_;
  BatchBuilder& builder = workspace.other_batch();
  builder.clear();
  std::array<TokenId, DrafterConfig::kMaxBlockSize> block;
  block.fill(config.mask_token_id);
  std::int64_t rows = 0;
  for (const DraftJob& job : jobs) {
    KvCache& context = job.source->context_;
    // The context is longer than the target's by a block.
    KAKEYA_TRY(context.reserve(std::ssize(job.out) + 1));
    block.front() = job.tokens.back();
    builder.add(std::span<const TokenId>(block).first(job.out.size() + 1), {}, context.length(),
                context.layers(), std::ssize(job.out));
    rows += std::ssize(job.out) + 1;
  }
  const DraftRows made = DraftRows::of(workspace, config, rows - std::ssize(jobs));
  Executor& executor = workspace.executor();
  executor.begin(builder.batch());
  const dflash::DraftActivations activations = any.activations(rows);
  const PassKey key = {.network = &any.drafter_,
                       .part = kDraftPart,
                       .rows = {made.logits, activations.layers.hidden, made.gates}};
  if (!executor.repeat(key)) {
    any.drafter_.forward(builder.batch(), executor, activations, made.logits, made.gates);
  }
  KAKEYA_TRY(executor.end(std::array<ConstRows, 2>{made.logits, made.gates}));
  return made;
}

void DflashSource::choose_drafts(std::span<const DraftJob> jobs, Rows logits) {
  const DflashSource& any = *jobs.front().source;
  std::vector<BlockChoice>& choices = any.workspace_.block_choices();
  choices.clear();
  std::int64_t first = 0;
  for (const DraftJob& job : jobs) {
    const std::int64_t count = std::ssize(job.out);
    choices.push_back({.logits = rows_from(logits, first, count),
                       .position = std::ssize(job.tokens),
                       .sampler = job.sampler,
                       .never = any.drafter_.config().mask_token_id,
                       .out = job.out});
    first += count;
  }
  any.workspace_.executor().choose_drafts(choices, any.workspace_);
}

Status DflashSource::bring_up_to_date(std::span<const DraftJob> jobs) {
  if (jobs.size() == 1) return jobs.front().source->bring_context_up_to_date();
  // Sources that have little to catch up on do it together.
  BatchBuilder& builder = jobs.front().source->workspace_.other_batch();
  std::size_t first = 0;
  while (first < jobs.size()) {
    DflashSource& leader = *jobs[first].source;
    const Rows taps = leader.workspace_.taps(leader.plan_.pass_rows, leader.taps_width());
    builder.clear();
    std::int64_t rows = 0;
    std::size_t last = first;
    for (; last < jobs.size(); ++last) {
      DflashSource& source = *jobs[last].source;
      const std::int64_t waiting = source.waiting_;
      if (rows + waiting > taps.count) break;
      KAKEYA_TRY(source.context_.reserve(waiting));
      if (waiting == 0) continue;
      leader.workspace_.memory().copy(source.taps_.data(),
                                      rows_from(taps, rows, waiting).data.as<std::byte>(),
                                      source.taps(waiting).size);
      builder.add_rows(waiting, source.context_.length(), source.context_.layers());
      rows += waiting;
    }
    if (last == first) {
      KAKEYA_TRY(leader.bring_context_up_to_date());
      ++first;
      continue;
    }
    if (rows > 0) {
      KAKEYA_TRY(leader.extend_contexts(first_rows(taps, rows), builder.batch(),
                                        jobs.subspan(first, last - first)));
    }
    first = last;
  }
  return {};
}

Status DflashSource::extend_contexts(ConstRows taps,
                                     const Batch& batch,
                                     std::span<const DraftJob> jobs) {
  const std::uint64_t before = workspace_.bytes_read();
  Executor& executor = workspace_.executor();
  executor.begin(batch);
  extend(taps, batch);
  KAKEYA_TRY(executor.end({}));
  const std::uint64_t bytes = workspace_.bytes_read() - before;
  for (const DraftJob& job : jobs) {
    job.source->context_.commit(job.source->waiting_);
    job.source->waiting_ = 0;
    job.source->bytes_read_ += bytes / jobs.size();
  }
  return {};
}

Footprint DflashSource::footprint() const {
  Footprint footprint = context_.footprint();
  footprint.reserved_bytes(MemoryClass::kDrafter) += taps_.group_bytes();
  footprint.live_bytes(MemoryClass::kDrafter) +=
      static_cast<std::uint64_t>(waiting_ * tap_width(drafter_.config())) * sizeof(float);
  return footprint;
}

}  // namespace kakeya
