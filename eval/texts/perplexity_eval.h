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

// Which tokens of a window count.
enum class Counted : std::uint8_t {
  kAll,         // all but the first one
  kSecondHalf,  // those of the second half but its first one, as llama.cpp's llama-perplexity
                // counts
};

struct PerplexityOptions {
  std::int64_t window = 512;  // tokens of a window, its first one included
  Counted counted = Counted::kAll;
  SessionOptions session = {};  // context and drafting are set by the evaluation
  // Called with the windows that are done and those to be done; may be empty.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};
  PartJournal* journal = nullptr;  // of windows
};

// Cuts texts into windows: the beginning-of-sequence token if the model has one, then the next
// tokens of the text. A last one that is shorter than half a window is left out.
std::vector<EvalPrompt> cut_windows(const PromptSet& texts, TokenId bos_id, std::int64_t window);
// Cuts texts as llama.cpp's llama-perplexity does: whole windows, one behind the other, the first
// token of each of which gives way to the beginning-of-sequence token if the model has one.
std::vector<EvalPrompt> cut_whole_windows(const PromptSet& texts,
                                          TokenId bos_id,
                                          std::int64_t window);
// Cuts texts as cut_windows() does, or as cut_whole_windows() where only second halves count.
// Errors: kInvalidArgument for texts that give no window and windows of which no token counts.
Result<std::vector<EvalPrompt>> windows_of(const PromptSet& texts,
                                           TokenId bos_id,
                                           std::int64_t window,
                                           Counted counted = Counted::kAll);

// Errors: as windows_of; as Session::score and PartJournal::result, with the text's id.
Result<PerplexityReport> evaluate_perplexity(Engine& engine,
                                             const PromptSet& texts,
                                             const PerplexityOptions& options);

}  // namespace kakeya::eval
