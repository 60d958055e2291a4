// The scheduler behind include/kakeya/scheduler.h.
//
//   add() -> arrived -> waiting, by priority -> admitted, by bytes: chunks of its prompt -> rounds
//   -> end
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "decode/generation.h"
#include "decode/pass.h"
#include "kakeya/scheduler.h"
#include "runtime/session_impl.h"

namespace kakeya {

class EngineImpl;

class SchedulerImpl final : public Scheduler {
 public:
  // `owner` keeps the engine alive; null: the caller does. Errors: kInvalidArgument for options out
  // of range, kResourceExhausted for the workspace.
  static Result<std::unique_ptr<Scheduler>> create(EngineImpl& engine,
                                                   const SchedulerOptions& options,
                                                   std::shared_ptr<const void> owner);

  Result<RequestId> add(Request request) override;
  Status cancel(RequestId id) override;
  Result<bool> step() override;
  SchedulerStatistics statistics() const override;

 private:
  struct Sequence {
    RequestId id = 0;
    Request request;
    std::unique_ptr<SessionImpl> session;  // null while it waits
    PreparedGeneration prepared;
    std::optional<Generation> generation;  // there from the first logits on
    Stopwatch watch;                       // since it was admitted
    // One that runs a prompt which begins alike; this one waits until it has run `shared` tokens.
    // Null: none.
    Sequence* leader = nullptr;
    Position shared = 0;
    bool seeks = true;  // a leader, when it is its turn
    std::atomic<bool> cancelled{false};
    // Of the present step.
    std::int64_t prompt_rows = 0;  // that it runs; 0 where it decodes
    std::int64_t part = -1;        // of the pass; -1: none
    std::int64_t choice = -1;      // of choices_, in a round
    Status failed;

    Timeline& timeline() const { return session->timeline(); }
  };
  using Sequences = std::vector<std::unique_ptr<Sequence>>;

  SchedulerImpl(EngineImpl& engine,
                const SchedulerOptions& options,
                std::shared_ptr<const void> owner);

  // Before a pass.
  void take_arrived();
  void end_overdue();
  void admit();
  Status start(Sequence& sequence);
  // Has sequences wait for leaders, and those whose leaders have come far enough go on alone.
  void follow();
  void seek_leader(std::size_t index);
  void take_rows(Sequence& follower, Position length);
  // Its followers keep what it has run, and seek another leader.
  void leave_followers(Sequence& leader);

  // The pass.
  void plan_rounds();
  void plan_drafts();
  bool has_prompts() const;
  void plan_prompts();
  void draft();
  void run();
  void choose(Pass& pass);
  void absorb(Sequence& sequence, Pass& pass);
  Status absorb_prompt(Sequence& sequence, Pass& pass);

  // After it.
  void deliver();
  void end(Sequence& sequence, Status status);
  void remove_ended(Sequences& sequences);

  // First, for sessions refer to the engine.
  std::shared_ptr<const void> owner_;
  EngineImpl& engine_;
  SchedulerOptions options_;

  mutable std::mutex mutex_;  // of what follows
  Sequences arrived_;         // since the last step
  std::vector<std::pair<RequestId, Sequence*>> live_;
  RequestId next_id_ = 1;
  SchedulerStatistics statistics_;

  // Of the thread that steps.
  Sequences waiting_;  // by priority, then in order
  Sequences running_;
  std::vector<DflashSource::Job> jobs_;
  std::vector<SequenceChoice> choices_;
  std::vector<RoundChoice> lengths_;
  std::size_t first_prompt_ = 0;  // of the running ones, whose prompt comes first in this step
  std::size_t first_round_ = 0;   // whose round does
  std::int64_t rounds_ = 0;       // sequences that decode in this step
  std::int64_t rows_ = 0;         // planned for this step
  std::int64_t logit_rows_ = 0;
  double draft_seconds_ = 0.0;
  double pass_seconds_ = 0.0;
};

}  // namespace kakeya
