// How far a mean or a share would move had other samples been drawn: the bootstrap (Efron, 1979)
// for means, Wilson's interval (1927) for shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kakeya::eval {

struct Interval {
  double low = 0.0;
  double high = 0.0;
};

// Values that belong together, such as those of one window of tokens.
struct GroupSum {
  double sum = 0.0;
  std::int64_t count = 0;
};

// The sum of all over their count; 0 without any.
double mean_of(std::span<const GroupSum> groups);

// Says whether so many groups have an interval: what is drawn from one is that one.
constexpr bool has_interval(std::size_t groups) {
  return groups >= 2;
}

// The middle 95 % of the means of 1,000 sets of as many groups, drawn with replacement. The draws
// are always the same. {0, 0} without groups.
Interval mean_interval(std::span<const GroupSum> groups);

// Wilson's interval at 95 % for a share of which `found` of `samples` > 0 were seen.
Interval wilson_interval(std::int64_t found, std::int64_t samples);

}  // namespace kakeya::eval
