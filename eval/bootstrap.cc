#include "bootstrap.h"

#include <algorithm>
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

}  // namespace kakeya::eval
