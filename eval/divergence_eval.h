// How far one configuration of a model is from another one on texts: Kullback-Leibler divergence,
// most likely tokens and perplexity, in windows of tokens that are each run from nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap.h"
#include "kakeya/status.h"
#include "model_difference.h"
#include "prompt_set.h"

namespace kakeya::eval {

// The tokens of a window but its first one, which nothing is known of.
struct WindowDivergence {
  std::string text;  // its id
  std::int64_t tokens = 0;
  double divergence = 0.0;     // sum of KL(reference || other) before each token, in nats
  double reference_nll = 0.0;  // negative log-likelihood of all of them, in nats
  double nll = 0.0;
  std::int64_t same_top = 0;  // tokens before which both have the same most likely one
};

// What the windows of a set add up to.
struct DivergenceTotals {
  std::int64_t tokens = 0;
  double mean = 0.0;  // divergence a token
  Interval interval = {};
  double top_agreement = 0.0;  // share of the tokens
  double reference_perplexity = 0.0;
  double perplexity = 0.0;
};
DivergenceTotals divergence_totals(const std::vector<WindowDivergence>& windows);

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
