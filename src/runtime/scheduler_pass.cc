// One pass of a scheduler: what it runs, and what its sequences take from it.
#include <algorithm>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/engine_impl.h"
#include "runtime/scheduler_impl.h"

namespace kakeya {

void SchedulerImpl::run_pass() {
  const Workspace::Turn turn = engine_.workspace().take_turn();
  rows_ = 0;
  logit_rows_ = 0;
  plan_rounds();
  plan_prompts();
  draft();
  run();
}

// Every sequence that decodes has a row, if there are enough; else they take turns. Prompts keep
// some: neither kind waits until the other is done.
void SchedulerImpl::plan_rounds() {
  const bool prompts = has_prompts();
  std::int64_t room = options_.max_logit_rows;
  if (prompts) {
    const std::int64_t prompt_rows = std::min(options_.prefill_rows, options_.max_rows / 2);
    room = std::min(options_.max_logit_rows - 1, options_.max_rows - prompt_rows);
  }
  if (room == 0) {
    prompts_turn_ = !prompts_turn_;
    room = prompts_turn_ ? 0 : 1;
  }
  rounds_ = 0;
  std::size_t last = first_round_;  // that has a row
  const std::size_t count = running_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Sequence& sequence = *running_[(first_round_ + i) % count];
    sequence.part = -1;
    sequence.prompt_rows = 0;
    if (!sequence.generation || rounds_ == room) continue;
    if (!sequence.generation->begin_round()) continue;
    sequence.part = 0;
    last = first_round_ + i;
    ++rounds_;
  }
  rows_ = rounds_;
  logit_rows_ = rounds_;
  plan_drafts(prompts);
  first_round_ = (rounds_ == room ? last + 1 : first_round_ + 1) % count;
}

// What room there is goes to drafts, in turn, but for the rows of prompts: drafts can wait.
void SchedulerImpl::plan_drafts(bool prompts) {
  lengths_.clear();
  const std::size_t count = running_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Sequence& sequence = *running_[(first_round_ + i) % count];
    if (sequence.part == 0) lengths_.push_back(sequence.generation->round_choice());
  }
  const std::int64_t prompt_rows = prompts ? options_.prefill_rows : 0;
  const std::int64_t prompt_logits = prompts ? 1 : 0;
  choose_together(lengths_, std::min(options_.max_rows - rows_ - prompt_rows,
                                     options_.max_logit_rows - logit_rows_ - prompt_logits));
  auto choice = lengths_.begin();
  for (std::size_t i = 0; i < count; ++i) {
    Sequence& sequence = *running_[(first_round_ + i) % count];
    if (sequence.part < 0) continue;
    sequence.generation->plan(choice->length);
    rows_ += choice->length;
    logit_rows_ += choice->length;
    ++choice;
  }
}

bool SchedulerImpl::has_prompts() const {
  return std::any_of(running_.begin(), running_.end(), [](const auto& sequence) {
    return !sequence->generation && sequence->leader == nullptr;
  });
}

// Prompts take turns in being first: a short one does not wait for the end of a long one. Only a
// prompt's last row has logits; where there is no room for them it waits.
void SchedulerImpl::plan_prompts() {
  const std::int64_t most = rounds_ > 0 ? options_.prefill_rows : options_.max_rows;
  std::int64_t room = std::min(most, options_.max_rows - rows_);
  const std::size_t count = running_.size();
  for (std::size_t i = 0; i < count && room > 0; ++i) {
    Sequence& sequence = *running_[(first_prompt_ + i) % count];
    if (sequence.generation || sequence.leader != nullptr) continue;
    const std::int64_t pending = std::ssize(sequence.timeline().pending());
    std::int64_t rows = std::min({room, pending, sequence.timeline().chunk()});
    if (rows == pending && logit_rows_ == options_.max_logit_rows) --rows;
    if (rows == 0) continue;
    if (rows == pending) ++logit_rows_;
    sequence.prompt_rows = rows;
    sequence.part = 0;
    room -= rows;
  }
  ++first_prompt_;
}

void SchedulerImpl::draft() {
  const Stopwatch watch;
  jobs_.clear();
  drafts_ = 0;
  std::int64_t tokens = 0;
  for (const auto& sequence : running_) {
    if (!sequence->generation || sequence->part < 0) continue;
    Generation& generation = *sequence->generation;
    if (generation.drafts().empty()) continue;
    drafts_ += std::ssize(generation.drafts());
    DraftSource& source = sequence->session->drafts()->source();
    if (DflashSource* drafter = source.drafter()) {
      jobs_.push_back({.source = drafter,
                       .tokens = generation.timeline().tokens(),
                       .sampler = &generation.sampler(),
                       .out = generation.mutable_drafts()});
      tokens += std::ssize(generation.drafts());
    } else if (const Status drafted = generation.draft(); !drafted) {
      generation.plan(0);
    }
  }
  // A budget that refuses a copy costs drafts, not the answer.
  if (!DflashSource::draft_together(jobs_)) {
    for (const auto& sequence : running_) {
      if (sequence->generation && sequence->part >= 0) sequence->generation->plan(0);
    }
  }
  for (const auto& sequence : running_) {
    if (sequence->generation && sequence->part >= 0) sequence->generation->drop_forbidden_drafts();
  }
  draft_seconds_ = watch.seconds();
  engine_.draft_costs().learn_drafts(tokens, draft_seconds_);
}

void SchedulerImpl::run() {
  const Stopwatch watch;
  Pass pass(engine_.workspace());
  std::int64_t parts = 0;
  pass_rows_ = 0;
  bool decodes = true;  // and nothing else
  for (const auto& sequence : running_) {
    if (sequence->part < 0) continue;
    sequence->failed = add_to(pass, *sequence);
    sequence->part = sequence->failed ? parts++ : -1;
    decodes = decodes && sequence->generation;
  }
  if (parts == 0) return;
  if (const Status ran = pass.run(); !ran) {
    for (const auto& sequence : running_) {
      if (sequence->part >= 0) sequence->failed = ran;
    }
    return;
  }
  choose(pass);
  pass_seconds_ = watch.seconds();
  // Rows of prompts cost less: most of them have no logits.
  if (decodes) engine_.draft_costs().learn(pass_rows_, pass_seconds_);
  for (const auto& sequence : running_) {
    if (sequence->part >= 0) absorb(*sequence, pass);
  }
  const std::lock_guard lock(mutex_);
  ++statistics_.passes;
  statistics_.bytes += pass.bytes();
}

Status SchedulerImpl::add_to(Pass& pass, Sequence& sequence) {
  Timeline& timeline = sequence.timeline();
  if (sequence.generation) {
    const auto drafts = sequence.generation->drafts();
    KAKEYA_TRY(pass.add(timeline, timeline.pending(), drafts, std::ssize(drafts) + 1));
    pass_rows_ += std::ssize(drafts) + 1;
    return {};
  }
  const auto rows = timeline.pending().first(static_cast<std::size_t>(sequence.prompt_rows));
  const bool last = rows.size() == timeline.pending().size();
  KAKEYA_TRY(pass.add(timeline, rows, {}, last ? 1 : 0));
  pass_rows_ += sequence.prompt_rows;
  return {};
}

// The tokens of all rounds in one call.
void SchedulerImpl::choose(Pass& pass) {
  choices_.clear();
  for (const auto& sequence : running_) {
    if (sequence->part < 0 || !sequence->generation) continue;
    sequence->choice = std::ssize(choices_);
    choices_.push_back(sequence->generation->choice(pass.logits(sequence->part)));
  }
  engine_.workspace().executor().choose(choices_, engine_.workspace());
}

void SchedulerImpl::absorb(Sequence& sequence, Pass& pass) {
  if (!sequence.generation) {
    sequence.failed = absorb_prompt(sequence, pass);
    return;
  }
  Generation& generation = *sequence.generation;
  const double drafts = static_cast<double>(generation.drafts().size());
  sequence.failed = generation.absorb(choices_[static_cast<std::size_t>(sequence.choice)]);
  // Its share by rows: shares of all add up to the pass.
  const double part = (drafts + 1.0) / static_cast<double>(pass_rows_);
  generation.end_round(drafts_ == 0 ? 0.0 : draft_seconds_ * drafts / static_cast<double>(drafts_),
                       pass_seconds_ * part,
                       static_cast<std::uint64_t>(static_cast<double>(pass.bytes()) * part));
}

Status SchedulerImpl::absorb_prompt(Sequence& sequence, Pass& pass) {
  Timeline& timeline = sequence.timeline();
  timeline.commit(sequence.prompt_rows);
  {
    const std::lock_guard lock(mutex_);
    statistics_.prompt_rows += sequence.prompt_rows;
  }
  if (!timeline.pending().empty()) return timeline.finish_chunk();
  SessionImpl& session = *sequence.session;
  PreparedGeneration& prepared = sequence.prepared;
  prepared.result.prefill_seconds = sequence.since_admitted.seconds();
  sequence.generation.emplace(timeline, session.sampler(),
                              prepared.speculates ? &session.drafts()->source() : nullptr,
                              &engine_.draft_costs(), prepared.request, prepared.result);
  KAKEYA_TRY(sequence.generation->begin(pass.host_logits(sequence.part).row(0)));
  if (!prepared.result.ids.empty()) {
    sequence.first_token_seconds = sequence.since_added.seconds();
  }
  KAKEYA_TRY(timeline.finish_chunk());
  session.keep_for_others();
  return {};
}

}  // namespace kakeya
