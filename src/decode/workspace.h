// The memory that passes need besides weights and the sequences' own: an executor, intermediate
// rows, logits and taps. An engine has one, and its sequences take turns: nothing in it outlives a
// turn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/choose.h"
#include "base/memory_budget.h"
#include "decode/draft_source.h"
#include "kakeya/memory.h"
#include "kv/kv_cache.h"
#include "model/arena.h"

namespace kakeya {

class Timeline;

// The largest passes that are to come.
struct WorkspacePlan {
  ExecutorPlan executor;
  std::uint64_t activation_bytes = 0;  // intermediate rows of one pass, of target or drafter
  std::uint64_t logit_bytes = 0;       // of one pass of the target
  std::uint64_t draft_logit_bytes = 0;
  std::uint64_t tap_bytes = 0;
  std::uint64_t hidden_bytes = 0;  // last hidden rows of one pass; only where somebody reads them

  // Whatever either of the two needs.
  void include(const WorkspacePlan& other);
  // Passes over these rows.
  void include_attention(const KvCacheSpec& cache);
  bool operator==(const WorkspacePlan&) const = default;
};

// The bytes of `rows` f32 rows.
inline std::uint64_t float_bytes(std::int64_t rows, std::int64_t width) {
  return static_cast<std::uint64_t>(rows * width) * sizeof(float);
}

// Bytes that a workspace of this plan takes, by class.
Footprint estimate_workspace(const WorkspacePlan& plan, const Backend& backend);

// Candidates for the drafts of several blocks, and the ids whose codes are looked up for them.
struct CandidateLists {
  std::vector<TokenLogit> candidates;  // so many a row, best first
  std::vector<TokenId> predecessors;
  std::vector<TokenId> successors;
  std::vector<float> gated;        // one predecessor's codes times the gate of a row
  std::vector<TokenLogit> scores;  // of one row's candidates
};

// Thread-safe where it says so; everything else belongs to the thread whose turn it is.
class Workspace final : public HostCopies {
 public:
  // Empty. Both must outlive it.
  Workspace(Backend& backend, MemoryBudget& budget) : backend_(backend), budget_(budget) {}

  // A right to run passes. Threads get theirs in the order in which they asked; one that has its
  // turn already may take another within it.
  class Turn {
   public:
    explicit Turn(Workspace& workspace) : workspace_(&workspace) { workspace.begin_turn(); }
    Turn(Turn&& other) noexcept : workspace_(std::exchange(other.workspace_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (workspace_ != nullptr) workspace_->end_turn();
    }

   private:
    Workspace* workspace_;
  };
  // Thread-safe; waits.
  Turn take_turn() { return Turn(*this); }

  // While it lives, those who run long texts in turns of their own take at most so many rows a
  // turn: somebody waits for the next token. Thread-safe.
  class RowLimit {
   public:
    RowLimit(Workspace& workspace, std::int64_t rows);
    ~RowLimit();
    RowLimit(const RowLimit&) = delete;
    RowLimit& operator=(const RowLimit&) = delete;

   private:
    Workspace& workspace_;
    std::multiset<std::int64_t>::iterator place_;
  };
  // `rows`, or as many as the limits allow. Thread-safe.
  std::int64_t limited_rows(std::int64_t rows) const;

  // Makes room for such passes, too, for good. Thread-safe; waits for a turn. Errors:
  // kResourceExhausted; nothing changes then.
  Status reserve(const WorkspacePlan& plan);

  // Room for passes while it lives. Thread-safe. Its end waits for a turn and gives memory back
  // that nobody else has reserved; within a turn of the same thread, which uses it, the next change
  // does.
  class Reservation {
   public:
    Reservation(Reservation&& other) noexcept
        : workspace_(std::exchange(other.workspace_, nullptr)), place_(other.place_) {}
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(workspace_, other.workspace_);
      std::swap(place_, other.place_);
      return *this;
    }
    ~Reservation() {
      if (workspace_ != nullptr) workspace_->give_back(place_);
    }

   private:
    friend class Workspace;
    Reservation(Workspace& workspace, std::list<WorkspacePlan>::iterator place)
        : workspace_(&workspace), place_(place) {}

    Workspace* workspace_;
    std::list<WorkspacePlan>::iterator place_;
  };
  // Reserves room as reserve() does, until the reservation goes.
  Result<Reservation> reserve_for_now(const WorkspacePlan& plan);

  Executor& executor() { return *executor_; }
  // Where a pass lays out its intermediate rows (Activations::layout and its like).
  Arena arena() const { return Arena(activations_.device<std::byte>()); }
  // The first `count` rows of each. More than reserve() made room for ends the program: they would
  // be written over somebody else's memory.
  Rows logits(std::int64_t count, std::int64_t width) const {
    return first_rows(logits_, count, width);
  }
  Rows taps(std::int64_t count, std::int64_t width) const {
    return first_rows(taps_, count, width);
  }
  Rows hidden(std::int64_t count, std::int64_t width) const {
    return first_rows(hidden_, count, width);
  }
  // Where the pass of a drafter lays out its logits and what belongs to them.
  Arena draft_arena() const { return Arena(draft_logits_.device<std::byte>()); }
  // Rows of logits(), draft_arena() or hidden() where host code may read and overwrite them:
  // themselves if the backend's memory is the host's, else a copy. Valid until a pass gives others.
  HostRows download(Rows rows) override;
  MemorySpace& memory() const { return backend_.memory(); }
  // Memory to put a batch together in, of the target's passes and of all others.
  BatchBuilder& target_batch() { return target_batch_; }
  BatchBuilder& other_batch() { return other_batch_; }
  // The timelines of the target's batch, segment by segment.
  std::vector<Timeline*>& timelines() { return timelines_; }
  // Memory for a step's drafting and choosing.
  std::vector<DraftJob>& draft_jobs() { return draft_jobs_; }
  std::vector<BlockChoice>& block_choices() { return block_choices_; }
  std::vector<SequenceChoice>& choices() { return choices_; }
  CandidateLists& candidate_lists() { return candidate_lists_; }

  // Bytes of weights and cached rows that all passes so far have read.
  std::uint64_t bytes_read() const {
    return bytes_read_ + (executor_ ? executor_->bytes_read() : 0);
  }

  const WorkspacePlan& plan() const { return plan_; }
  // The plan, for callers without a turn: thread-safe.
  WorkspacePlan reserved_plan() const {
    const std::lock_guard lock(mutex_);
    return plan_;
  }
  Footprint footprint() const { return estimate_workspace(plan_, backend_); }

 private:
  struct Part;  // one of the buffers below
  static std::span<const Part> parts();

  // In a turn: what is reserved for good and for now, and what must stay during it.
  WorkspacePlan reserved() const;
  // In a turn: has exactly this room. Errors: kResourceExhausted; nothing changes then.
  Status resize(const WorkspacePlan& wanted);
  // Gives back what is of another size than `wanted` says; returns what there is then.
  WorkspacePlan free_others(const WorkspacePlan& wanted);
  // Allocates what `wanted` has and `present`, which there is, does not, beside the buffers that it
  // replaces.
  Status replace(const WorkspacePlan& present, const WorkspacePlan& wanted);
  void give_back(std::list<WorkspacePlan>::iterator place);
  static Rows first_rows(const Buffer& buffer, std::int64_t count, std::int64_t width);
  void begin_turn();
  void end_turn();

  Backend& backend_;
  MemoryBudget& budget_;
  WorkspacePlan kept_;                  // for good
  std::list<WorkspacePlan> temporary_;  // of each Reservation
  WorkspacePlan plan_;                  // what there is
  Buffer activations_;
  Buffer logits_;
  Buffer draft_logits_;
  Buffer taps_;
  Buffer hidden_;
  // Copies of these; empty where the host reads them themselves.
  Buffer host_logits_;
  Buffer host_draft_logits_;
  Buffer host_hidden_;
  std::unique_ptr<Executor> executor_;
  BatchBuilder target_batch_;
  BatchBuilder other_batch_;
  std::vector<Timeline*> timelines_;
  std::vector<DraftJob> draft_jobs_;
  std::vector<BlockChoice> block_choices_;
  std::vector<SequenceChoice> choices_;
  CandidateLists candidate_lists_;
  std::uint64_t bytes_read_ = 0;  // by executors that were replaced

  std::multiset<std::int64_t> row_limits_;  // under mutex_

  mutable std::mutex mutex_;  // of what follows, and of changes of plan_
  std::condition_variable turn_ended_;
  std::uint64_t next_ticket_ = 0;
  std::uint64_t serving_ = 0;
  std::thread::id owner_;
  int depth_ = 0;  // turns that the owner has taken within one another
};

}  // namespace kakeya
