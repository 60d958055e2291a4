#include "eval/texts/perplexity_report.h"

#include <cmath>

namespace kakeya::eval {
namespace {

std::vector<GroupSum> sums_of(const std::vector<WindowScore>& windows) {
  std::vector<GroupSum> sums;
  for (const WindowScore& window : windows) sums.push_back({window.nll, window.tokens});
  return sums;
}

}  // namespace

std::int64_t PerplexityReport::tokens() const {
  std::int64_t sum = 0;
  for (const WindowScore& window : windows) sum += window.tokens;
  return sum;
}

double PerplexityReport::perplexity() const {
  return std::exp(mean_of(sums_of(windows)));
}

Interval perplexity_interval(const std::vector<WindowScore>& windows) {
  const Interval nll = mean_interval(sums_of(windows));
  return {std::exp(nll.low), std::exp(nll.high)};
}

}  // namespace kakeya::eval
