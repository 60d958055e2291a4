#include "eval/overlap/overlap_rows.h"

#include <cmath>

namespace kakeya::eval {

double expected_evenly(std::int64_t num_experts, std::int64_t top_k, std::int64_t rows) {
  const auto experts = static_cast<double>(num_experts);
  const double missed = 1.0 - static_cast<double>(top_k) / experts;
  return experts * (1.0 - std::pow(missed, static_cast<double>(rows)));
}

double OverlapRow::mean_distinct() const {
  return blocks == 0 ? 0.0 : static_cast<double>(distinct) / static_cast<double>(blocks);
}

}  // namespace kakeya::eval
