// The scheduler behind include/kakeya/scheduler.h.
//
//   add() -> queue -> admitted, by bytes: chunks of its prompt -> rounds -> end
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "decode/step.h"
#include "kakeya/scheduler.h"
#include "runtime/admission.h"
#include "runtime/request_queue.h"
#include "runtime/sequence.h"
#include "runtime/step_plan.h"

namespace kakeya {

class EngineImpl;

class SchedulerImpl final : public Scheduler {
 public:
  // `owner` keeps the engine alive; null: the caller does. Errors: kInvalidArgument for options out
  // of range, kResourceExhausted for the workspace.
  static Result<std::unique_ptr<Scheduler>> create(EngineImpl& engine,
                                                   const SchedulerOptions& options,
                                                   std::shared_ptr<const void> owner);
  ~SchedulerImpl() override;

  Result<RequestId> add(Request request) override;
  Status cancel(RequestId id) override;
  Result<bool> step() override;
  bool wait(std::chrono::steady_clock::time_point until) override;
  void stop(Status why) override;
  SchedulerStatistics statistics() const override;

 private:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;

  SchedulerImpl(EngineImpl& engine,
                const SchedulerOptions& options,
                std::shared_ptr<const void> owner);

  // The right to step, which the queue has given: given back at its end, whatever happens.
  class Step {
   public:
    explicit Step(SchedulerImpl& scheduler) : scheduler_(scheduler) {}
    ~Step() { scheduler_.finish_step(); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    SchedulerImpl& scheduler_;
  };
  void step_once();
  // Gives the right to step back. After stop() all requests have ended before that.
  void finish_step();

  // Before a pass.
  void end_overdue();
  void admit();
  // True if there is room for a request that waits; the prompt cache gives way for it. Its need is
  // computed anew: the workspace has grown since it was added, if others have run. Errors: it can
  // never have room.
  Result<bool> make_room(Sequence& sequence);
  // True if make_room() would not return false.
  bool can_move(const Sequence& sequence) const;
  Status start(Sequence& sequence);
  // Starts a request that generates nothing: gives its session the tokens, and the sequence a
  // reader.
  Status start_reading(Sequence& sequence, SessionImpl& session);
  // The workspace that a request's passes need beside rows and logits.
  WorkspacePlan passes_of(const Request& request) const;
  SessionOptions options_of(const Request& request) const;
  // Bytes for its session with all tokens that it has. Errors: as Admission::need.
  Result<std::uint64_t> need_of(const Sequence& sequence) const;
  // Has sequences wait for leaders, and those whose leaders have come far enough go on alone.
  void follow();
  void seek_leader(std::size_t index);
  void take_rows(Sequence& follower, Position length);
  // Ends leading: the followers keep what the leader has run, and seek another one.
  void leave_followers(Sequence& leader);

  // The pass.
  void run_pass();
  void add_part(Sequence& sequence, const StepPart& part);
  // Fills candidates_ with what planning wants to know of those that run.
  void look_at_running();
  // Returns the rows that rounds and their drafts take.
  StepRows begin_rounds(const StepLimits& limits);
  void add_prompt(Sequence& sequence, const PromptRows& planned);
  // Makes the generation behind a prompt and begins its first round; false if no token is wanted.
  bool begin_generation(Sequence& sequence);
  void take_part(Sequence& sequence, StepPart& part);

  // The functions below follow the pass.
  void deliver();
  Status deliver_tokens(Sequence& sequence);
  // True if `status` says that memory is missing which others can give.
  bool can_wait_for_memory(const Sequence& sequence, const Status& status) const;
  // Gives the memory of the last request of the lowest priority to the others.
  void preempt_one();
  // Preempts one for a request of higher priority that waits; false if that would not help it.
  bool preempt_for(const Sequence& next);
  void count(Sequence& sequence);
  void end(Sequence& sequence, Status status);
  // Frees its session. `keeps`: the prompt cache shall have what it ran.
  void give_up_session(Sequence& sequence, bool keeps);
  // Ends all requests with the status given to stop().
  void end_all();
  void remove_ended();

  // First, for sessions refer to the engine.
  std::shared_ptr<const void> owner_;
  EngineImpl& engine_;
  SchedulerOptions options_;
  Admission admission_;
  RequestQueue queue_;
  std::optional<Workspace::Reservation> passes_;
  std::optional<Workspace::Reservation> embedding_passes_;  // since the first embedding

  mutable std::mutex mutex_;
  SchedulerStatistics statistics_;  // but for what the queue knows; under mutex_

  // Only the thread that steps uses the members below.
  Sequences running_;
  std::optional<Workspace::RowLimit> row_limit_;  // while some are running
  std::vector<StepPart> parts_;                   // of the present step
  std::vector<Sequence*> sequences_;              // whose parts they are
  std::vector<RoundChoice> lengths_;              // of the parts that are rounds, which come first
  std::vector<StepCandidate> candidates_;         // of running_, in its order
  std::vector<std::size_t> decoding_;             // in this step, by their index there
  std::vector<PromptRows> prompts_;
  StepTurns turns_;
  bool awaits_mask_ = false;   // a request does that decodes
  bool lacks_memory_ = false;  // a request of the last pass did: nobody else takes any
};

}  // namespace kakeya
