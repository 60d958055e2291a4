// The ways in which requests share the passes of a scheduler, and how alike they are served.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace kakeya::eval {

// One way to ask.
struct TenantArm {
  std::string name = {};
  bool drafts = false;
  bool sampled = false;
  // Prompts cut to the shortest one's length, and answers that go on whatever stop ids they have:
  // of these alone it can be said whether they are served alike.
  bool equal_lengths = false;

  bool operator==(const TenantArm&) const = default;
};
// The last one is of equal lengths.
std::vector<TenantArm> tenant_arms(bool can_draft);

// Jain's index of n shares, 0 or more and not all 0: (sum x)^2 / (n sum x^2), 1 where all are
// equal, 1 / n where one has all. R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness",
// DEC TR-301, 1984.
double jain_index(std::span<const double> shares);

}  // namespace kakeya::eval
