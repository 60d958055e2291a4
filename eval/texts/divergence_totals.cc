#include "eval/texts/divergence_totals.h"

#include <cmath>

namespace kakeya::eval {

DivergenceTotals divergence_totals(const std::vector<WindowDivergence>& windows) {
  const auto groups = [&](double WindowDivergence::*sum) {
    std::vector<GroupSum> all;
    for (const WindowDivergence& window : windows) all.push_back({window.*sum, window.tokens});
    return all;
  };
  const std::vector<GroupSum> divergences = groups(&WindowDivergence::divergence);
  DivergenceTotals totals{
      .mean = mean_of(divergences),
      .interval = mean_interval(divergences),
      .reference_perplexity = std::exp(mean_of(groups(&WindowDivergence::reference_nll))),
      .perplexity = std::exp(mean_of(groups(&WindowDivergence::nll)))};
  std::int64_t same = 0;
  for (const WindowDivergence& window : windows) {
    totals.tokens += window.tokens;
    same += window.same_top;
  }
  if (totals.tokens > 0) {
    totals.top_agreement = static_cast<double>(same) / static_cast<double>(totals.tokens);
  }
  return totals;
}

}  // namespace kakeya::eval
