#include "eval/report/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/random.h"

namespace kakeya::eval {
namespace {

double mean_of(const GroupSum& whole) {
  return whole.sum / static_cast<double>(std::max<std::int64_t>(whole.count, 1));
}

}  // namespace

double mean_of(std::span<const GroupSum> groups) {
  GroupSum whole;
  for (const GroupSum& group : groups) {
    whole.sum += group.sum;
    whole.count += group.count;
  }
  return mean_of(whole);
}

Interval mean_interval(std::span<const GroupSum> groups) {
  constexpr std::size_t kDraws = 1000;
  if (groups.empty()) return {};
  SequenceRng random(1);
  std::vector<double> means(kDraws);
  for (double& mean : means) {
    GroupSum drawn;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const GroupSum& group = groups[random.below(groups.size())];
      drawn.sum += group.sum;
      drawn.count += group.count;
    }
    mean = mean_of(drawn);
  }
  std::ranges::sort(means);
  return {means[kDraws * 25 / 1000], means[kDraws * 975 / 1000 - 1]};
}

Interval wilson_interval(std::int64_t found, std::int64_t samples) {
  constexpr double kZ = 1.959963984540054;  // 97.5 % of a normal distribution lie below
  const auto n = static_cast<double>(samples);
  const double share = static_cast<double>(found) / n;
  const double scale = 1.0 + kZ * kZ / n;
  const double centre = (share + kZ * kZ / (2.0 * n)) / scale;
  const double half = kZ / scale * std::sqrt(share * (1.0 - share) / n + kZ * kZ / (4.0 * n * n));
  // Where nothing or everything was found one end is the share itself, but for rounding.
  return {.low = found == 0 ? 0.0 : centre - half, .high = found == samples ? 1.0 : centre + half};
}

}  // namespace kakeya::eval
