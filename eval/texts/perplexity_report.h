// Perplexity of windows of tokens, and how sure one may be of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/report/bootstrap.h"

namespace kakeya::eval {

// The cost of a window's tokens that count. Its first one never does, for nothing is known of it.
struct WindowScore {
  std::string text;  // its id
  std::int64_t tokens = 0;
  double nll = 0.0;  // negative log-likelihood of all of them, in nats
};

struct PerplexityReport {
  std::string set;
  std::vector<WindowScore> windows;
  double seconds = 0.0;  // of all windows, whenever they ran

  std::int64_t tokens() const;
  // exp(sum of nll / tokens).
  double perplexity() const;
};

// The middle 95 % of the perplexities that mean_interval() draws.
Interval perplexity_interval(const std::vector<WindowScore>& windows);

}  // namespace kakeya::eval
