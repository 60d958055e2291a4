// How far one configuration of a model is from another one on texts: Kullback-Leibler divergence,
// most likely tokens and perplexity, in windows of tokens that are each run from nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/prompts/prompt_set.h"
#include "eval/texts/divergence_totals.h"
#include "eval/texts/model_difference.h"
#include "kakeya/status.h"

namespace kakeya::eval {

struct DivergenceReport {
  std::string set;
  std::vector<WindowDivergence> windows;
  // Nearest-rank percentiles of the divergences of all tokens.
  double median = 0.0;
  double p99 = 0.0;
  double most = 0.0;
  double seconds = 0.0;  // of all windows, whenever they ran
};

// `journal`: null, or where windows are kept. Errors: as windows_of and compare_windows.
Result<DivergenceReport> evaluate_divergence(EngineImpl& reference,
                                             EngineImpl& other,
                                             const PromptSet& texts,
                                             std::int64_t window,
                                             const DifferenceProgress& progress,
                                             PartJournal* journal = nullptr);

}  // namespace kakeya::eval
