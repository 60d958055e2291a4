// One step of any number of sequences, whoever drives them: rounds of generations and chunks of
// prompts share a pass.
//
//   draft    what the rounds have planned, in one pass of the drafter
//   verify   all rows in one pass of the target
//   choose   the tokens behind every row that has logits, in one call
//   read     rows of chunks, where somebody wants them
//   commit   of each round the rows of the tokens that were chosen, of each chunk all rows
#pragma once

#include <cstdint>
#include <span>

#include "decode/draft_costs.h"
#include "decode/generation.h"
#include "decode/row_reader.h"
#include "decode/timeline.h"
#include "decode/workspace.h"
#include "kakeya/status.h"

namespace kakeya {

// The part of one sequence in a step: a round, or a chunk of a prompt (chunked prefill). The last
// chunk of a prompt that is to be continued is a round: that of the first token.
struct StepPart {
  Generation* round = nullptr;  // begun and planned
  Timeline* prompt = nullptr;   // where there is no round
  std::int64_t rows = 0;        // of the prompt's pending tokens
  // The number of the last ones of these rows that have logits, for `reader`; if it gets none, it
  // gets the hidden rows of all. The workspace has room for them.
  std::int64_t logit_rows = 0;
  RowReader* reader = nullptr;  // of the prompt's rows; null: nobody looks at them
  // The error that ended this part of the step; the other parts go on.
  Status status = {};
};

// The cost of a step.
struct StepCost {
  std::int64_t rows = 0;    // of the target's pass; 0: there was none, or it failed
  std::uint64_t bytes = 0;  // weights and cached rows that its passes read, the drafter's too
};

// Takes a turn of the workspace, which all sequences share; each has one part at most. Where a
// budget refuses a copy that drafts need, their rounds go on without. `costs` learns what passes
// took; may be null. Allocates nothing once there were as many parts.
StepCost run_step(Workspace& workspace, DraftCosts* costs, std::span<StepPart> parts);

}  // namespace kakeya
