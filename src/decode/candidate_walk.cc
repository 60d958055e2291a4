#include "decode/candidate_walk.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {
namespace {

// Looks up the codes of `ids` in as few batches as the executor takes.
void look_up(std::span<const TokenId> ids, const Matrix& codebook, Workspace& workspace, Rows out) {
  Executor& executor = workspace.executor();
  const std::int64_t most = workspace.plan().executor.max_rows;
  for (std::int64_t first = 0; first < std::ssize(ids); first += most) {
    const std::int64_t count = std::min(most, std::ssize(ids) - first);
    BatchBuilder& builder = workspace.other_batch();
    builder.clear();
    builder.add(ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), {},
                0, {}, 0);
    executor.begin(builder.batch());
    executor.embed(codebook, 1.0F, rows_from(out, first, count));
  }
}

HostRows rows_from(HostRows rows, std::int64_t first, std::int64_t count) {
  return {rows.data + first * rows.width, count, rows.width};
}

// One block's walk over what all have in common.
class Walk {
 public:
  Walk(const DrafterConfig& config, const DraftJob& job, Rows logits, Workspace& workspace)
      : config_(config),
        lists_(workspace.candidate_lists()),
        workspace_(workspace),
        choice_({.logits = logits,
                 .position = std::ssize(job.tokens),
                 .sampler = job.sampler,
                 .never = config.mask_token_id,
                 .out = job.out}) {}

  // `candidates` [n * k]; gates [n, R]; predecessors [1 + (n - 1) * k, R]; successors [n * k, R].
  void run(std::span<const TokenLogit> candidates,
           HostRows gates,
           HostRows predecessors,
           HostRows successors) {
    const auto k = static_cast<std::size_t>(config_.selector_top_k);
    std::optional<std::int64_t> before = 0;  // the row of the chosen token in `predecessors`
    for (std::size_t r = 0; r < choice_.out.size(); ++r) {
      const auto own = candidates.subspan(r * k, k);
      const auto first = static_cast<std::int64_t>(r * k);
      lists_.gated.assign(static_cast<std::size_t>(config_.selector_rank), 0.0F);
      if (before) {
        std::ranges::transform(predecessors.row(*before), gates.row(static_cast<std::int64_t>(r)),
                               lists_.gated.begin(), std::multiplies<>());
      }
      score(own, rows_from(successors, first, config_.selector_top_k));
      const TokenId id = choose(r);
      choice_.out[r] = id;
      const auto found = std::ranges::find(own, id, &TokenLogit::id);
      before.reset();
      if (found != own.end()) before = 1 + first + (found - own.begin());
    }
    choice_.sampler->end_drafts();
  }

 private:
  void score(std::span<const TokenLogit> candidates, HostRows successors) {
    lists_.scores.clear();
    const float cap = config_.layers.final_logit_softcapping;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      float score = candidates[i].logit * config_.output_multiplier;
      if (cap > 0.0F) score = cap * std::tanh(score / cap);
      const std::span<const float> codes = successors.row(static_cast<std::int64_t>(i));
      for (std::size_t c = 0; c < codes.size(); ++c) score += lists_.gated[c] * codes[c];
      lists_.scores.push_back({candidates[i].id, score});
    }
  }

  // Where no candidate may follow, any token that may; nothing is known of how that one is
  // followed.
  TokenId choose(std::size_t row) {
    const Position position = choice_.position + static_cast<Position>(row);
    const LargestLogits all = {.listed = lists_.scores, .others = kNever};
    if (const auto id = choice_.sampler->draft(all, position)) return *id;
    const Rows logits = rows_from(choice_.logits, static_cast<std::int64_t>(row), 1);
    return draft_row(choice_, row, workspace_.download(logits).row(0));
  }

  const DrafterConfig& config_;
  CandidateLists& lists_;
  Workspace& workspace_;
  BlockChoice choice_;
};

// Fills the ids to be looked up: for each block its known token and the candidates of all rows but
// the last one, and the candidates of all rows.
void list_ids(std::span<const DraftJob> jobs, std::int64_t top_k, CandidateLists& lists) {
  lists.predecessors.clear();
  lists.successors.clear();
  std::int64_t first = 0;
  for (const DraftJob& job : jobs) {
    lists.predecessors.push_back(job.tokens.back());
    const std::int64_t count = std::ssize(job.out) * top_k;
    for (std::int64_t i = first; i < first + count; ++i) {
      const TokenId id = lists.candidates[static_cast<std::size_t>(i)].id;
      lists.successors.push_back(id);
      if (i < first + count - top_k) lists.predecessors.push_back(id);
    }
    first += count;
  }
}

}  // namespace

DraftRows DraftRows::layout(Arena& arena, const DrafterConfig& config, std::int64_t drafts) {
  DraftRows rows;
  rows.logits = arena.rows(drafts, config.layers.vocab_size);
  if (!config.has_selector()) return rows;
  rows.gates = arena.rows(drafts, config.selector_rank);
  rows.predecessors = arena.rows(drafts * config.selector_top_k, config.selector_rank);
  rows.successors = arena.rows(drafts * config.selector_top_k, config.selector_rank);
  return rows;
}

std::uint64_t DraftRows::bytes(const DrafterConfig& config, std::int64_t drafts) {
  Arena measure;
  layout(measure, config, drafts);
  return measure.used();
}

DraftRows DraftRows::of(const Workspace& workspace,
                        const DrafterConfig& config,
                        std::int64_t drafts) {
  KAKEYA_CHECK(bytes(config, drafts) <= workspace.plan().draft_logit_bytes);
  Arena arena = workspace.draft_arena();
  return layout(arena, config, drafts);
}

Status walk_candidates(const dflash::Drafter& drafter,
                       const DraftRows& rows,
                       std::span<const DraftJob> jobs,
                       Workspace& workspace) {
  const DrafterConfig& config = drafter.config();
  const std::int64_t top_k = config.selector_top_k;
  CandidateLists& lists = workspace.candidate_lists();
  lists.candidates.resize(static_cast<std::size_t>(rows.logits.count * top_k));
  workspace.executor().list_largest(rows.logits, config.mask_token_id, workspace, lists.candidates);
  list_ids(jobs, top_k, lists);
  const Rows predecessors = first_rows(rows.predecessors, std::ssize(lists.predecessors));
  look_up(lists.predecessors, *drafter.selector()->predecessor_codebook, workspace, predecessors);
  look_up(lists.successors, *drafter.selector()->successor_codebook, workspace, rows.successors);
  KAKEYA_TRY(workspace.executor().end(std::array<ConstRows, 2>{predecessors, rows.successors}));
  const HostRows gates = workspace.download(rows.gates);
  const HostRows before = workspace.download(predecessors);
  const HostRows after = workspace.download(rows.successors);
  std::int64_t first = 0;
  std::int64_t first_before = 0;
  for (const DraftJob& job : jobs) {
    const std::int64_t count = std::ssize(job.out);
    const std::int64_t num_before = 1 + (count - 1) * top_k;
    const std::span candidates(lists.candidates);
    Walk(config, job, rows_from(rows.logits, first, count), workspace)
        .run(candidates.subspan(static_cast<std::size_t>(first * top_k),
                                static_cast<std::size_t>(count * top_k)),
             rows_from(gates, first, count), rows_from(before, first_before, num_before),
             rows_from(after, first * top_k, count * top_k));
    first += count;
    first_before += num_before;
  }
  return {};
}

}  // namespace kakeya
