// How surprised a model is by texts: the perplexity of windows of tokens, each run from nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "eval/prompts/prompt_set.h"
#include "eval/report/part_journal.h"
#include "eval/texts/perplexity_report.h"
#include "kakeya/engine.h"
#include "kakeya/status.h"

namespace kakeya::eval {

struct PerplexityOptions {
  std::int64_t window = 512;    // tokens of a window, its first one included
  SessionOptions session = {};  // context and drafting are set by the evaluation
  // Called with the windows that are done and those to be done; may be empty.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};
  PartJournal* journal = nullptr;  // of windows
};

// Cuts texts into windows: the beginning-of-sequence token if the model has one, then the next
// tokens of the text. A last one that is shorter than half a window is left out.
std::vector<EvalPrompt> cut_windows(const PromptSet& texts, TokenId bos_id, std::int64_t window);
// Cuts texts as cut_windows() does. Errors: kInvalidArgument for texts that give no window and
// windows of less than two tokens.
Result<std::vector<EvalPrompt>> windows_of(const PromptSet& texts,
                                           TokenId bos_id,
                                           std::int64_t window);

// Errors: as windows_of; as Session::score and PartJournal::result, with the text's id.
Result<PerplexityReport> evaluate_perplexity(Engine& engine,
                                             const PromptSet& texts,
                                             const PerplexityOptions& options);

}  // namespace kakeya::eval
