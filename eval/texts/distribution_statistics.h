// How far one distribution over next tokens is from another, at one position and over many. Pure
// arithmetic on logits; knows no model.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "eval/report/report_fields.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya::eval {

// One position: p is the softmax of the reference's logits, q that of the compared ones.
struct PositionDifference {
  double divergence = 0.0;     // KL(p || q) in nats; exactly 0 for equal logits
  double reference_nll = 0.0;  // -ln p(next token)
  double nll = 0.0;            // -ln q(next token)
  bool same_top = false;       // whether the most likely tokens are the same

  // False if a logit was infinite or no number.
  bool finite() const;
};

// Logits [V] of both, V > 0; `next` is the token that really follows, 0 <= next < V. Sums are of
// double precision, around the largest logit.
PositionDifference compare_logits(std::span<const float> reference,
                                  std::span<const float> other,
                                  TokenId next);

// The most likely token; of equal ones the lowest id.
TokenId top_token(std::span<const float> logits);

// The sums and samples kept of many positions.
struct DistributionSums {
  std::vector<double> divergences = {};  // of each
  double reference_nll = 0.0;
  double nll = 0.0;
  std::int64_t same_tops = 0;
};

// The statistics of many positions. Every figure is 0 without any.
class DistributionStatistics {
 public:
  DistributionStatistics() = default;
  explicit DistributionStatistics(DistributionSums sums) : sums_(std::move(sums)) {}

  void add(const PositionDifference& difference);
  void add(const DistributionStatistics& more);

  std::int64_t positions() const { return std::ssize(sums_.divergences); }
  const DistributionSums& sums() const { return sums_; }
  double mean_divergence() const;
  // Nearest rank: the smallest divergence that at least `percent` of the positions do not exceed;
  // 0 < percent <= 100.
  double divergence_percentile(double percent) const;
  // Positions with the same most likely token, and their share.
  std::int64_t same_tops() const { return sums_.same_tops; }
  double top_agreement() const;
  // Means of -ln of the next token's probability, and e to the power of them.
  double reference_nll() const;
  double nll() const;
  double reference_perplexity() const;
  double perplexity() const;

 private:
  double mean(double sum) const;

  DistributionSums sums_;
};

// As journals have them. Errors: kDataLoss for what is none.
Report distribution_json(const DistributionStatistics& statistics);
Result<DistributionStatistics> parse_distribution(const Report& json);

}  // namespace kakeya::eval
