// Drafts with a DFlash drafter: keeps its context up to date from the target's taps and runs one
// block a round.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_budget.h"
#include "decode/candidate_walk.h"
#include "decode/draft_source.h"
#include "decode/tap_sink.h"
#include "decode/timeline.h"
#include "decode/workspace.h"
#include "model/dflash/dflash.h"

namespace kakeya {

struct DflashPlan {
  KvCacheSpec context;
  WorkspacePlan workspace;     // of its passes alone, and of the taps that the target's leave
  std::int64_t pass_rows = 0;  // most rows of one pass of the drafter
  std::int64_t tap_rows = 0;   // taps that wait to be turned into keys and values
};

// The target's hidden states that the drafter reads, of so many rows.
std::uint64_t tap_bytes(const DrafterConfig& config, std::int64_t rows);

// The workspace of the drafter's passes of `pass_rows` rows, of which `draft_rows` have logits, and
// of the taps of the target's passes of `target_rows`.
WorkspacePlan plan_drafter_passes(const DrafterConfig& config,
                                  std::int64_t pass_rows,
                                  std::int64_t draft_rows,
                                  std::int64_t target_rows);

DflashPlan plan_dflash(const DrafterConfig& config, const TimelinePlan& target);

// Bytes that DflashSource::create will charge, by class, without the workspace.
Footprint estimate_dflash(const DrafterConfig& config, const DflashPlan& plan);

// Invariant: committed taps are of positions [context length, context length + waiting rows), and
// that is where the target's cache ends.
class DflashSource final : public DraftSource, public TapSink {
 public:
  // Drafts for all of them in one pass, within a turn of their workspace, which must have room for
  // their blocks. They have one drafter. `work` gets what their contexts took beforehand. Errors:
  // as draft(); nothing that counts has changed then.
  static Status draft_together(std::span<const DraftJob> jobs, ContextWork& work);

  // The workspace grows if it is too small. Errors: kResourceExhausted. What is referred to must
  // outlive it.
  static Result<std::unique_ptr<DflashSource>> create(const dflash::Drafter& drafter,
                                                      Workspace& workspace,
                                                      const DflashPlan& plan,
                                                      MemoryBudget& budget);

  // Forks the source: both share context and waiting taps until one of them writes. Allocates
  // nothing that is charged until it is used.
  std::unique_ptr<DflashSource> fork();

  // For snapshots: the context, and what has not become context yet.
  struct State {
    KvCache::Extent context;
    std::int64_t waiting = 0;  // rows of taps

    bool operator==(const State&) const = default;
  };
  KvCache& context() { return context_; }
  // The state after truncate(length). Errors: as truncate.
  Result<State> state(Position length) const;
  // Makes context and taps of `state`, which goes with `length` tokens run, writable. Errors: as
  // KvCache::prepare_restore; nothing that counts has changed then.
  Status prepare_restore(const State& state, Position length);
  // Takes `state` for its own; was prepared. Rows and taps are for the caller to fill.
  void restore(const State& state);
  // The first `count` waiting taps.
  KvPiece taps(std::int64_t count) const;

  std::int64_t max_length() const override { return drafter_.max_length(); }
  DraftOffer offer(std::span<const TokenId> /*tokens*/, Sampler& /*sampler*/) override {
    return {.kind = DraftKind::kDflash, .length = max_length(), .context_rows = waiting_};
  }
  Status draft(std::span<const TokenId> tokens, Sampler& sampler, std::span<TokenId> out) override;
  DflashSource* drafter() override { return this; }
  std::uint64_t bytes_read() const override { return bytes_read_; }

  std::span<const std::int64_t> taps() const override { return drafter_.config().target_layer_ids; }
  Status reserve_taps(std::int64_t rows) override;
  void commit_taps(ConstRows rows) override;
  Status finish_taps() override;
  Status check_truncate(Position length) const override;
  void truncate(Position length) override;

  Footprint footprint() const;

 private:
  DflashSource(const dflash::Drafter& drafter,
               Workspace& workspace,
               const DflashPlan& plan,
               KvCache context,
               MemoryBudget& budget)
      : drafter_(drafter),
        workspace_(workspace),
        budget_(budget),
        plan_(plan),
        context_(std::move(context)) {}

  // Makes taps_ writable.
  Status own_taps();
  Rows tap_rows(std::int64_t first, std::int64_t count) const;
  // Runs the operations that turn rows of taps into context, or runs them again.
  void extend(ConstRows taps, const Batch& batch);
  // Turns the oldest `count` rows of taps into context; they stay where they are.
  Status extend_context(std::int64_t count);
  Status bring_context_up_to_date();
  // Runs the jobs' blocks in one pass; their rows are reserved and not committed.
  static Result<DraftRows> run_blocks(std::span<const DraftJob> jobs);
  // Chooses each draft from its own row, as DFlash does.
  static void choose_drafts(std::span<const DraftJob> jobs, Rows logits);
  // Turns what waits in the jobs' sources into context, in as few passes as possible.
  static Status bring_up_to_date(std::span<const DraftJob> jobs);
  // Turns one batch of the jobs' waiting taps, whose rows are reserved, into context.
  Status extend_contexts(ConstRows taps, const Batch& batch, std::span<const DraftJob> jobs);
  std::int64_t taps_width() const;
  // Where a pass of so many rows lays out what it makes.
  dflash::DraftActivations activations(std::int64_t rows) const;

  const dflash::Drafter& drafter_;
  Workspace& workspace_;
  MemoryBudget& budget_;
  DflashPlan plan_;
  KvCache context_;
  SharedBlock taps_;          // [tap_rows, num_taps * D]
  std::int64_t waiting_ = 0;  // rows of taps_
  std::uint64_t bytes_read_ = 0;
};

}  // namespace kakeya
