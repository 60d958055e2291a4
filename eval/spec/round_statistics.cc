#include "eval/spec/round_statistics.h"

#include <algorithm>

namespace kakeya::eval {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

double DepthAcceptance::share() const {
  return ratio(accepted, rounds);
}

void RoundStatistics::add(std::span<const RoundRecord> rounds) {
  for (const RoundRecord& round : rounds) {
    ++counts_.rounds;
    counts_.committed += round.committed;
    if (round.drafted == 0) continue;
    ++counts_.drafting_rounds;
    counts_.drafted += round.drafted;
    counts_.accepted += round.accepted;
    const auto depth = static_cast<std::size_t>(round.drafted);
    if (counts_.by_depth.size() < depth) counts_.by_depth.resize(depth);
    for (std::size_t d = 0; d < depth; ++d) {
      ++counts_.by_depth[d].rounds;
      if (d < static_cast<std::size_t>(round.accepted)) ++counts_.by_depth[d].accepted;
    }
  }
}

double RoundStatistics::accepted_per_round() const {
  return ratio(counts_.accepted, counts_.drafting_rounds);
}

double RoundStatistics::tokens_per_round() const {
  return ratio(counts_.committed, counts_.rounds);
}

}  // namespace kakeya::eval
