// The selector of a DFlash 2 drafter at work: behind the pass of a block it takes each row's
// likeliest tokens for candidates and walks from row to row, where a candidate counts by its logit
// and by how well it follows the token chosen in the row before (dflash::CandidateSelector).
//
// The sampler chooses among a row's scores as it would among logits, with the noise that the target
// will meet at that position, and the walk goes on from what it chose. Proposals and nothing more:
// no output depends on them.
#pragma once

#include <cstdint>
#include <span>

#include "decode/draft_source.h"
#include "decode/workspace.h"
#include "kakeya/status.h"
#include "model/arena.h"
#include "model/dflash/dflash.h"

namespace kakeya {

// The rows that a pass of several blocks with n drafts in all leaves for the choice of drafts, in
// the workspace's memory for logits of drafts. DFlash leaves logits alone.
struct DraftRows {
  Rows logits;        // [n, V]
  Rows gates;         // [n, R]
  Rows predecessors;  // [n * k, R] codes A: a block's known token, then candidates, row after row
  Rows successors;    // [n * k, R] codes S of candidates, row after row

  static DraftRows layout(Arena& arena, const DrafterConfig& config, std::int64_t drafts);
  // Bytes of such rows.
  static std::uint64_t bytes(const DrafterConfig& config, std::int64_t drafts);
  // Lays them out in the workspace, which has room for them.
  static DraftRows of(const Workspace& workspace, const DrafterConfig& config, std::int64_t drafts);
};

// Chooses the drafts of all jobs, whose rows follow one another in `rows`, which a pass has left.
// Runs look-ups in the codebooks, within the turn of the workspace. Errors: as Executor::end().
Status walk_candidates(const dflash::Drafter& drafter,
                       const DraftRows& rows,
                       std::span<const DraftJob> jobs,
                       Workspace& workspace);

}  // namespace kakeya
