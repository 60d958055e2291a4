// One pass of a scheduler: what it runs, and what its sequences take from it.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "runtime/engine_impl.h"
#include "runtime/scheduler_impl.h"

namespace kakeya {

void SchedulerImpl::run_pass() {
  const Workspace::Turn turn = engine_.workspace().take_turn();
  parts_.clear();
  sequences_.clear();
  look_at_running();
  const StepLimits limits = {.max_rows = options_.max_rows,
                             .max_logit_rows = options_.max_logit_rows,
                             .prefill_rows = options_.prefill_rows};
  plan_rounds(candidates_, limits, turns_, decoding_);
  const StepRows taken = begin_rounds(limits);
  plan_prompts(candidates_, limits, taken, turns_, prompts_);
  for (const PromptRows& prompt : prompts_) add_prompt(*running_[prompt.index], prompt);
  const StepCost cost = run_step(engine_.workspace(), &engine_.draft_costs(), parts_);
  for (std::size_t i = 0; i < parts_.size(); ++i) take_part(*sequences_[i], parts_[i]);
  if (cost.rows == 0) return;
  const std::lock_guard lock(mutex_);
  ++statistics_.passes;
  statistics_.bytes += cost.bytes;
}

// A context that is full ends its request here.
void SchedulerImpl::look_at_running() {
  candidates_.clear();
  awaits_mask_ = false;
  for (const auto& sequence : running_) {
    StepCandidate& candidate = candidates_.emplace_back();
    if (sequence->generation) {
      if (sequence->generation->is_over()) continue;
      if (sequence->generation->is_ready()) {
        candidate.kind = StepCandidate::Kind::kDecodes;
      } else {
        awaits_mask_ = true;
      }
      continue;
    }
    if (sequence->leader != nullptr) continue;
    const Timeline& timeline = sequence->timeline();
    candidate = {.kind = StepCandidate::Kind::kPrompt,
                 .pending = std::ssize(timeline.pending()),
                 .chunk = timeline.chunk(),
                 .to_branch = sequence->branch - timeline.position(),
                 .to_logits = sequence->logits_from() - timeline.position(),
                 .most_logit_rows = timeline.most_logit_rows()};
  }
}

void SchedulerImpl::add_part(Sequence& sequence, const StepPart& part) {
  parts_.push_back(part);
  sequences_.push_back(&sequence);
}

// Begins the rounds of those that decode, and gives the room that is left to drafts, in turn.
StepRows SchedulerImpl::begin_rounds(const StepLimits& limits) {
  lengths_.clear();
  for (const std::size_t index : decoding_) {
    Sequence& sequence = *running_[index];
    if (!sequence.generation->begin_round()) continue;
    sequence.prompt_rows = 0;
    add_part(sequence, {.round = &*sequence.generation});
    lengths_.push_back(sequence.generation->round_choice());
  }
  StepRows taken = {.rows = std::ssize(parts_), .logit_rows = std::ssize(parts_)};
  choose_together(lengths_, draft_rows(candidates_, limits, taken));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::int64_t drafts = lengths_[i].plan.length;
    parts_[i].round->plan(lengths_[i].plan);
    taken.rows += drafts;
    taken.logit_rows += drafts;
  }
  return taken;
}

void SchedulerImpl::add_prompt(Sequence& sequence, const PromptRows& planned) {
  sequence.prompt_rows = planned.rows;
  StepPart part{.prompt = &sequence.timeline(), .rows = planned.rows};
  if (sequence.reader) {
    part.logit_rows = planned.logit_rows;
    const bool reads = part.logit_rows > 0 || sequence.logits_from() == PromptReader::kNever;
    part.reader = reads ? sequence.reader.get() : nullptr;
  } else if (planned.logit_rows > 0 && begin_generation(sequence)) {
    part = {.round = &*sequence.generation};
  }
  add_part(sequence, part);
}

bool SchedulerImpl::begin_generation(Sequence& sequence) {
  SessionImpl& session = *sequence.session;
  PreparedGeneration& prepared = sequence.prepared;
  return sequence.generation
      .emplace(sequence.timeline(), session.sampler(), session.sources(prepared),
               &engine_.draft_costs(), prepared.request, prepared.result)
      .begin_round();
}

void SchedulerImpl::take_part(Sequence& sequence, StepPart& part) {
  sequence.failed = std::move(part.status);
  if (sequence.prompt_rows == 0) return;
  if (!sequence.failed) {
    // It may be tried again, as a prompt.
    if (sequence.generation && sequence.generation->is_first()) sequence.generation.reset();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    statistics_.prompt_rows += sequence.prompt_rows;
  }
  if (!sequence.generation && sequence.timeline().position() == sequence.branch) {
    sequence.session->keep_for_others();
  }
  if (!sequence.generation && !sequence.done()) return;
  GenerateResult& result = sequence.prepared.result;
  const double seconds = sequence.since_admitted.seconds();
  result.prefill_seconds += seconds;
  if (engine_.prompt_cache() != nullptr) {
    engine_.prompt_cache()->note_run(result.prefill_tokens, seconds);
  }
  if (sequence.first_token_seconds == 0.0 && !result.ids.empty()) {
    sequence.first_token_seconds = sequence.since_added.seconds();
  }
  if (sequence.generation) sequence.session->keep_for_others();
}

}  // namespace kakeya
