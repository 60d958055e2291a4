#include "eval/report/report_claims.h"

#include <algorithm>

#include "base/median.h"
#include "eval/report/report_kind.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {

std::string field_text(const Report& value) {
  return value.get<std::string>();
}

double field_number(const Report& value) {
  return value.get<double>();
}

Claim claim_of_samples(std::string name, std::vector<double> samples) {
  Claim claim{.name = std::move(name), .value = median(samples)};
  if (samples.size() > 1) claim.interval = {smallest(samples), largest(samples)};
  claim.samples = std::move(samples);
  return claim;
}

std::vector<double> ratios(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> result;
  for (std::size_t i = 0; i < std::min(of.size(), to.size()); ++i) result.push_back(of[i] / to[i]);
  return result;
}

std::vector<ClaimGroup> claims_of(const Report& report) {
  const ReportKind* kind = find_report_kind(report["schema"].get<std::string>());
  return kind == nullptr ? std::vector<ClaimGroup>() : kind->claims(report);
}

}  // namespace kakeya::eval
