#include "eval/multitenant/multitenant_report.h"

#include <algorithm>

#include "base/median.h"

namespace kakeya::eval {
namespace {

template <typename Of>
double largest_of(const std::vector<TenantRequest>& requests, Of&& of) {
  double largest = 0.0;
  for (const TenantRequest& request : requests) largest = std::max(largest, of(request.together));
  return largest;
}

}  // namespace

std::int64_t TenantArmReport::tokens() const {
  std::int64_t tokens = 0;
  for (const TenantRequest& request : requests) tokens += request.together.tokens;
  return tokens;
}

double TenantArmReport::solo_tokens_per_second() const {
  return static_cast<double>(tokens()) / median(solo_seconds);
}

double TenantArmReport::together_tokens_per_second() const {
  return static_cast<double>(tokens()) / median(together_seconds);
}

double TenantArmReport::throughput_ratio() const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(solo_seconds.size(), together_seconds.size()); ++i) {
    ratios.push_back(solo_seconds[i] / together_seconds[i]);
  }
  return median(ratios);
}

double TenantArmReport::longest_wait_seconds() const {
  return largest_of(requests, [](const TenantAnswer& a) { return a.first_token_seconds; });
}

double TenantArmReport::longest_gap_seconds() const {
  return largest_of(requests, [](const TenantAnswer& a) { return a.longest_gap_seconds; });
}

double TenantArmReport::bytes_ratio() const {
  const double alone = static_cast<double>(requests.size()) * static_cast<double>(alone_bytes);
  return alone > 0.0 ? static_cast<double>(together_bytes) / alone : 0.0;
}

double TenantArmReport::fairness() const {
  std::vector<double> speeds;
  for (const TenantRequest& request : requests) {
    speeds.push_back(request.together.tokens_per_second());
  }
  return jain_index(speeds);
}

std::optional<double> TenantArmReport::fairness_of_equal_lengths() const {
  return arm.equal_lengths ? std::optional(fairness()) : std::nullopt;
}

bool TenantArmReport::equal() const {
  return std::ranges::all_of(requests, &TenantRequest::equal);
}

bool TenantsReport::outputs_equal() const {
  return std::ranges::all_of(arms, &TenantArmReport::equal);
}

}  // namespace kakeya::eval
