// Two reports of a kind, claim by claim.
#include <algorithm>

#include "base/median.h"
#include "base/random.h"
#include "eval/report/report_claims.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {
namespace {

using Bounds = std::pair<double, double>;

double median_drawn_anew(const std::vector<double>& samples, SequenceRng& random) {
  std::vector<double> drawn(samples.size());
  for (double& value : drawn) value = samples[random.below(samples.size())];
  return median(std::move(drawn));
}

// The bootstrap's percentiles (Efron, 1979).
Bounds ratio_interval(const Claim& before, const Claim& after) {
  constexpr std::size_t kDraws = 2000;
  SequenceRng random(1);
  std::vector<double> ratios(kDraws);
  for (double& ratio : ratios) {
    ratio = median_drawn_anew(after.samples, random) / median_drawn_anew(before.samples, random);
  }
  std::ranges::sort(ratios);
  return {ratios[kDraws / 40], ratios[kDraws - 1 - kDraws / 40]};
}

// `interval` of a difference, which is none at `none`.
Verdict verdict_of(const Bounds& interval, double none, Better better) {
  if (interval.first <= none && none <= interval.second) return Verdict::kUndecided;
  if (better == Better::kNeither) return Verdict::kOther;
  return (interval.first > none) == (better == Better::kMore) ? Verdict::kBetter : Verdict::kWorse;
}

ClaimChange change_of(const ClaimGroup& group, const Claim& before, const Claim& after) {
  ClaimChange change{.group = group.title,
                     .name = after.name,
                     .unit = group.unit,
                     .before = before.value,
                     .after = after.value};
  const auto sampled = [](const Claim& claim) {
    return claim.samples.size() >= kFewestSamples && smallest(claim.samples) > 0.0;
  };
  if (sampled(before) && sampled(after)) {
    change.ratio = ratio_interval(before, after);
    change.verdict = verdict_of(*change.ratio, 1.0, group.better);
  } else if (before.value == after.value) {
    change.verdict = Verdict::kEqual;
  } else if (before.interval && after.interval) {
    // The difference, where one interval is as far as can be from the other.
    const Bounds difference = {after.interval->first - before.interval->second,
                               after.interval->second - before.interval->first};
    change.verdict = verdict_of(difference, 0.0, group.better);
  }
  return change;
}

}  // namespace

std::vector<ClaimChange> compare_claims(const Report& before, const Report& after) {
  std::vector<ClaimChange> changes;
  const std::vector<ClaimGroup> old = claims_of(before);
  for (const ClaimGroup& group : claims_of(after)) {
    const auto same = std::ranges::find(old, group.title, &ClaimGroup::title);
    if (same == old.end()) continue;
    for (const Claim& claim : group.claims) {
      const auto was = std::ranges::find(same->claims, claim.name, &Claim::name);
      if (was != same->claims.end()) changes.push_back(change_of(group, *was, claim));
    }
  }
  return changes;
}

}  // namespace kakeya::eval
