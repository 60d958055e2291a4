// Plans the rows of a scheduler's step (continuous batching, chunked prefill): which requests
// decode, and how many rows of which prompts run beside them. Functions of their arguments alone:
// no engine, no clock. Nothing allocates once the lists have room for all running requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kakeya {

// A running request as planning sees it. Numbers of rows, of its next chunk.
struct StepCandidate {
  enum class Kind : std::uint8_t {
    kWaits,    // for a leader, or for its end
    kDecodes,  // one row, and drafts
    kPrompt,   // rows of its prompt
  };
  Kind kind = Kind::kWaits;
  std::int64_t pending = 0;    // of its prompt
  std::int64_t chunk = 0;      // the most of one pass
  std::int64_t to_branch = 0;  // to where a chunk ends; 0 or less: nowhere
  std::int64_t to_logits = 0;  // in front of the first one whose logits are wanted
  std::int64_t most_logit_rows = 0;
};

// SchedulerOptions of the same names.
struct StepLimits {
  std::int64_t max_rows = 0;
  std::int64_t max_logit_rows = 0;
  std::int64_t prefill_rows = 0;
};

// Whose turn it is to be first, from one step to the next.
struct StepTurns {
  std::size_t first_round = 0;
  std::size_t first_prompt = 0;
  bool prompts = false;  // where a pass has room for one kind only
};

// Rows that a step has already.
struct StepRows {
  std::int64_t rows = 0;
  std::int64_t logit_rows = 0;
};

// The rows of one prompt in a step.
struct PromptRows {
  std::size_t index = 0;  // of the request
  std::int64_t rows = 0;
  std::int64_t logit_rows = 0;  // the last ones of these, whose logits are wanted
};

// Chooses who decodes, in ascending order: everybody, if there are enough rows; else requests take
// turns. Prompts keep some rows: neither kind waits until the other is done.
void plan_rounds(std::span<const StepCandidate> running,
                 const StepLimits& limits,
                 StepTurns& turns,
                 std::vector<std::size_t>& decoding);

// The rows that are left to drafts beside what the step has, without those of prompts: drafts can
// wait.
std::int64_t draft_rows(std::span<const StepCandidate> running,
                        const StepLimits& limits,
                        const StepRows& taken);

// Chooses rows of prompts, which take turns in being first: a short one does not wait for the end
// of a long one. Where there is no room for the logits that a row wants, the row waits.
void plan_prompts(std::span<const StepCandidate> running,
                  const StepLimits& limits,
                  StepRows taken,
                  StepTurns& turns,
                  std::vector<PromptRows>& prompts);

}  // namespace kakeya
