#include "decode/step.h"

#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "decode/dflash_source.h"
#include "decode/pass.h"

namespace kakeya {
namespace {

struct Drafted {
  std::int64_t tokens = 0;
  double seconds = 0.0;
};

// The mean length of what the rounds attend to.
Position context_of(std::span<const StepPart> parts) {
  Position sum = 0;
  std::int64_t rounds = 0;
  for (const StepPart& part : parts) {
    if (part.round == nullptr) continue;
    sum += part.round->timeline().position();
    ++rounds;
  }
  return rounds == 0 ? 0 : sum / rounds;
}

// Sources without a drafter draft one by one, all others together.
Drafted draft(Workspace& workspace, DraftCosts* costs, std::span<StepPart> parts) {
  const Stopwatch watch;
  std::vector<DraftJob>& jobs = workspace.draft_jobs();
  jobs.clear();
  for (const StepPart& part : parts) {
    if (part.round != nullptr) part.round->draft(jobs);
  }
  std::int64_t together = 0;
  for (const DraftJob& job : jobs) together += std::ssize(job.out);
  ContextWork context;
  const bool drafted = DflashSource::draft_together(jobs, context).has_value();
  Drafted all;
  for (const StepPart& part : parts) {
    if (part.round == nullptr) continue;
    if (!drafted) part.round->drop_drafts();
    part.round->drop_forbidden_drafts();
    all.tokens += std::ssize(part.round->drafts());
  }
  all.seconds = watch.seconds();
  if (costs != nullptr && together > 0 && drafted) {
    costs->learn_context(context);
    costs->learn_drafts(together, context_of(parts), all.seconds - context.seconds);
  }
  return all;
}

Status add_to(Pass& pass, const StepPart& part) {
  if (part.round == nullptr) {
    const auto rows = part.prompt->pending().first(static_cast<std::size_t>(part.rows));
    KAKEYA_TRY(pass.add(*part.prompt, rows, {}, part.logit_rows));
    if (part.reader != nullptr && part.logit_rows == 0) pass.keep_hidden();
    return {};
  }
  Timeline& timeline = part.round->timeline();
  const auto drafts = part.round->drafts();
  return pass.add(timeline, timeline.pending(), drafts, std::ssize(drafts) + 1);
}

// The tokens of all rounds in one call; those of rounds[i] come to choices()[i].
void choose(Workspace& workspace, const Pass& pass, std::span<const StepPart> parts) {
  std::vector<SequenceChoice>& choices = workspace.choices();
  choices.clear();
  std::int64_t index = 0;
  for (const StepPart& part : parts) {
    if (!part.status) continue;
    if (part.round != nullptr) choices.push_back(part.round->choice(pass.logits(index)));
    ++index;
  }
  workspace.executor().choose(choices, workspace);
}

// `index`: of the part in the pass.
Status commit_chunk(const Pass& pass, std::int64_t index, const StepPart& part) {
  Timeline& timeline = *part.prompt;
  if (part.reader != nullptr) {
    const HostRows rows = part.logit_rows > 0 ? pass.host_logits(index) : pass.host_hidden(index);
    const Position first = timeline.position() + part.rows - rows.count;
    for (std::int64_t i = 0; i < rows.count; ++i) {
      KAKEYA_TRY(part.reader->read(first + i, rows.row(i)));
    }
  }
  timeline.commit(part.rows);
  return timeline.finish_chunk();
}

}  // namespace

StepCost run_step(Workspace& workspace, DraftCosts* costs, std::span<StepPart> parts) {
  const Workspace::Turn turn = workspace.take_turn();
  const std::uint64_t before = workspace.bytes_read();
  const Drafted drafted = draft(workspace, costs, parts);

  const Stopwatch watch;
  Pass pass(workspace);
  std::int64_t decoding = 0;  // rows of rounds but first ones
  for (StepPart& part : parts) {
    part.status = add_to(pass, part);
    if (!part.status || part.round == nullptr || part.round->is_first()) continue;
    decoding += std::ssize(part.round->drafts()) + 1;
  }
  const std::int64_t rows = pass.rows();
  if (rows == 0) return {};
  if (const Status ran = pass.run(); !ran) {
    for (StepPart& part : parts) {
      if (part.status) part.status = ran;
    }
    return {};
  }
  choose(workspace, pass, parts);
  const double seconds = watch.seconds();
  // Rows of prompts cost less: most of them have no logits.
  if (costs != nullptr && decoding == rows) costs->learn(rows, context_of(parts), seconds);

  auto choice = workspace.choices().begin();
  std::int64_t index = -1;
  for (StepPart& part : parts) {
    if (!part.status) continue;
    ++index;
    if (part.round == nullptr) {
      part.status = commit_chunk(pass, index, part);
      continue;
    }
    // Its share of what was done together: shares of all add up to it.
    const auto share = [](std::int64_t part_of, std::int64_t all) {
      return all == 0 ? 0.0 : static_cast<double>(part_of) / static_cast<double>(all);
    };
    const std::int64_t drafts = std::ssize(part.round->drafts());
    part.status = part.round->commit(*choice++, drafted.seconds * share(drafts, drafted.tokens),
                                     seconds * share(drafts + 1, rows));
  }
  return {.rows = rows, .bytes = workspace.bytes_read() - before};
}

}  // namespace kakeya
