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
  rows_ = 0;
  logit_rows_ = 0;
  plan_rounds();
  plan_prompts();
  const StepCost cost = run_step(engine_.workspace(), &engine_.draft_costs(), parts_);
  for (std::size_t i = 0; i < parts_.size(); ++i) take_part(*sequences_[i], parts_[i]);
  if (cost.rows == 0) return;
  const std::lock_guard lock(mutex_);
  ++statistics_.passes;
  statistics_.bytes += cost.bytes;
}

void SchedulerImpl::add_part(Sequence& sequence, const StepPart& part) {
  parts_.push_back(part);
  sequences_.push_back(&sequence);
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
  std::size_t last = first_round_;  // that has a row
  const std::size_t count = running_.size();
  for (std::size_t i = 0; i < count && std::ssize(parts_) < room; ++i) {
    Sequence& sequence = *running_[(first_round_ + i) % count];
    if (!sequence.generation || !sequence.generation->begin_round()) continue;
    sequence.prompt_rows = 0;
    add_part(sequence, {.round = &*sequence.generation});
    last = first_round_ + i;
  }
  rows_ = std::ssize(parts_);
  logit_rows_ = rows_;
  plan_drafts(prompts);
  first_round_ = (rows_ == room ? last + 1 : first_round_ + 1) % count;
}

// Gives the room that is left to drafts, in turn, except the rows of prompts: drafts can wait.
void SchedulerImpl::plan_drafts(bool prompts) {
  lengths_.clear();
  for (const StepPart& part : parts_) lengths_.push_back(part.round->round_choice());
  const std::int64_t prompt_rows = prompts ? options_.prefill_rows : 0;
  choose_together(lengths_, std::min(options_.max_rows - rows_ - prompt_rows,
                                     options_.max_logit_rows - logit_rows_ - prompt_logits()));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::int64_t drafts = lengths_[i].length;
    parts_[i].round->plan(drafts);
    rows_ += drafts;
    logit_rows_ += drafts;
  }
}

bool SchedulerImpl::has_prompts() const {
  return std::any_of(running_.begin(), running_.end(), [](const auto& sequence) {
    return !sequence->generation && sequence->leader == nullptr;
  });
}

// One for the last row of a prompt, some for rows that are scored.
std::int64_t SchedulerImpl::prompt_logits() const {
  std::int64_t most = 0;
  for (const auto& sequence : running_) {
    if (sequence->generation || sequence->leader != nullptr) continue;
    const Timeline& timeline = sequence->timeline();
    const std::int64_t rows =
        std::min<std::int64_t>(std::ssize(timeline.pending()), options_.prefill_rows);
    const std::int64_t wanted =
        std::min(timeline.position() + rows - sequence->logits_from(), timeline.most_logit_rows());
    most = std::max({most, std::int64_t{1}, std::min(wanted, options_.max_logit_rows / 2)});
  }
  return most;
}

std::int64_t SchedulerImpl::fitting_rows(const Sequence& sequence, std::int64_t rows) const {
  const Timeline& timeline = sequence.timeline();
  const std::int64_t room =
      std::min(options_.max_logit_rows - logit_rows_, timeline.most_logit_rows());
  const Position before = sequence.logits_from() - timeline.position();  // rows without logits
  return before >= rows ? rows : std::min(rows, std::max<Position>(before, 0) + room);
}

// Prompts take turns in being first: a short one does not wait for the end of a long one. Where
// there is no room for the logits that a row wants, it waits.
void SchedulerImpl::plan_prompts() {
  const std::int64_t most = parts_.empty() ? options_.max_rows : options_.prefill_rows;
  std::int64_t room = std::min(most, options_.max_rows - rows_);
  const std::size_t count = running_.size();
  for (std::size_t i = 0; i < count && room > 0; ++i) {
    Sequence& sequence = *running_[(first_prompt_ + i) % count];
    if (sequence.generation || sequence.leader != nullptr) continue;
    const std::int64_t pending = std::ssize(sequence.timeline().pending());
    const Position to_branch = sequence.branch - sequence.timeline().position();
    const std::int64_t most_rows = to_branch > 0 ? std::min(room, to_branch) : room;
    const std::int64_t rows =
        fitting_rows(sequence, std::min({most_rows, pending, sequence.timeline().chunk()}));
    if (rows == 0) continue;
    room -= rows;
    sequence.prompt_rows = rows;
    StepPart part{.prompt = &sequence.timeline(), .rows = rows};
    if (sequence.reader) {
      part.logit_rows = std::clamp<std::int64_t>(
          sequence.timeline().position() + rows - sequence.logits_from(), 0, rows);
      const bool reads = part.logit_rows > 0 || sequence.logits_from() == PromptReader::kNever;
      part.reader = reads ? sequence.reader.get() : nullptr;
      logit_rows_ += part.logit_rows;
    } else if (rows == pending && begin_generation(sequence)) {
      part = {.round = &*sequence.generation};
      ++logit_rows_;
    }
    add_part(sequence, part);
  }
  ++first_prompt_;
}

bool SchedulerImpl::begin_generation(Sequence& sequence) {
  SessionImpl& session = *sequence.session;
  PreparedGeneration& prepared = sequence.prepared;
  return sequence.generation
      .emplace(sequence.timeline(), session.sampler(),
               prepared.speculates ? &session.drafts()->source() : nullptr, &engine_.draft_costs(),
               prepared.request, prepared.result)
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
  result.prefill_seconds += sequence.since_admitted.seconds();
  if (sequence.first_token_seconds == 0.0 && !result.ids.empty()) {
    sequence.first_token_seconds = sequence.since_added.seconds();
  }
  if (sequence.generation) sequence.session->keep_for_others();
}

}  // namespace kakeya
