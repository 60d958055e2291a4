#include "eval/multitenant/tenant_arms.h"

#include <algorithm>

namespace kakeya::eval {

std::vector<TenantArm> tenant_arms(bool can_draft) {
  std::vector<TenantArm> arms = {{.name = "greedy"}, {.name = "sampled", .sampled = true}};
  if (can_draft) {
    arms.push_back({.name = "greedy-drafts", .drafts = true});
    arms.push_back({.name = "sampled-drafts", .drafts = true, .sampled = true});
  }
  arms.push_back({.name = "equal-lengths", .sampled = true, .equal_lengths = true});
  return arms;
}

double jain_index(std::span<const double> shares) {
  double sum = 0.0;
  double squares = 0.0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  if (squares == 0.0) return 0.0;
  // Not above 1 by rounding.
  return std::min(1.0, sum * sum / (static_cast<double>(shares.size()) * squares));
}

}  // namespace kakeya::eval
