// How far two configurations of a model are from one another in windows of tokens, added up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/report/bootstrap.h"

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

// The totals of a set's windows.
struct DivergenceTotals {
  std::int64_t tokens = 0;
  double mean = 0.0;  // divergence a token
  Interval interval = {};
  double top_agreement = 0.0;  // share of the tokens
  double reference_perplexity = 0.0;
  double perplexity = 0.0;
};
DivergenceTotals divergence_totals(const std::vector<WindowDivergence>& windows);

}  // namespace kakeya::eval
