#include "eval/texts/distribution_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace kakeya::eval {

bool PositionDifference::finite() const {
  return std::isfinite(divergence) && std::isfinite(reference_nll) && std::isfinite(nll);
}

PositionDifference compare_logits(std::span<const float> reference,
                                  std::span<const float> other,
                                  TokenId next) {
  KAKEYA_CHECK(!reference.empty() && reference.size() == other.size());
  const auto index = static_cast<std::size_t>(next);
  KAKEYA_CHECK(next >= 0 && index < reference.size());
  const TokenId reference_top = top_token(reference);
  const TokenId other_top = top_token(other);
  const double reference_largest = reference[static_cast<std::size_t>(reference_top)];
  const double other_largest = other[static_cast<std::size_t>(other_top)];
  double reference_sum = 0.0;
  double other_sum = 0.0;
  double gap_sum = 0.0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double weight = std::exp(static_cast<double>(reference[i]) - reference_largest);
    reference_sum += weight;
    gap_sum += weight * (static_cast<double>(reference[i]) - static_cast<double>(other[i]));
    other_sum += std::exp(static_cast<double>(other[i]) - other_largest);
  }
  const double reference_total = reference_largest + std::log(reference_sum);
  const double other_total = other_largest + std::log(other_sum);
  // KL = E_p[ln p - ln q]: the mean gap of the logits less the gap of their totals, so that equal
  // logits give 0 without rounding.
  const double divergence = gap_sum / reference_sum - (reference_total - other_total);
  return {// Rounding may leave it a little below 0; what is no number has to stay none.
          .divergence = divergence < 0.0 ? 0.0 : divergence,
          .reference_nll = reference_total - static_cast<double>(reference[index]),
          .nll = other_total - static_cast<double>(other[index]),
          .same_top = reference_top == other_top};
}

TokenId top_token(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void DistributionStatistics::add(const PositionDifference& difference) {
  sums_.divergences.push_back(difference.divergence);
  sums_.reference_nll += difference.reference_nll;
  sums_.nll += difference.nll;
  sums_.same_tops += difference.same_top ? 1 : 0;
}

void DistributionStatistics::add(const DistributionStatistics& more) {
  sums_.divergences.insert(sums_.divergences.end(), more.sums_.divergences.begin(),
                           more.sums_.divergences.end());
  sums_.reference_nll += more.sums_.reference_nll;
  sums_.nll += more.sums_.nll;
  sums_.same_tops += more.sums_.same_tops;
}

double DistributionStatistics::mean(double sum) const {
  return sums_.divergences.empty() ? 0.0 : sum / static_cast<double>(sums_.divergences.size());
}

double DistributionStatistics::mean_divergence() const {
  return mean(std::accumulate(sums_.divergences.begin(), sums_.divergences.end(), 0.0));
}

double DistributionStatistics::divergence_percentile(double percent) const {
  if (sums_.divergences.empty()) return 0.0;
  const auto count = static_cast<double>(sums_.divergences.size());
  // Multiplied first: 0.99 * 100 is above 99 in binary.
  const double rank = std::clamp(std::ceil(percent * count / 100.0), 1.0, count);
  std::vector<double> sorted = sums_.divergences;
  const auto nth = sorted.begin() + static_cast<std::ptrdiff_t>(rank) - 1;
  std::nth_element(sorted.begin(), nth, sorted.end());
  return *nth;
}

double DistributionStatistics::top_agreement() const {
  return mean(static_cast<double>(sums_.same_tops));
}

double DistributionStatistics::reference_nll() const {
  return mean(sums_.reference_nll);
}

double DistributionStatistics::nll() const {
  return mean(sums_.nll);
}

double DistributionStatistics::reference_perplexity() const {
  return sums_.divergences.empty() ? 0.0 : std::exp(reference_nll());
}

double DistributionStatistics::perplexity() const {
  return sums_.divergences.empty() ? 0.0 : std::exp(nll());
}

}  // namespace kakeya::eval
