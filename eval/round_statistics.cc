#include "round_statistics.h"

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
    ++rounds_;
    committed_ += round.committed;
    if (round.drafted == 0) continue;
    ++drafting_rounds_;
    drafted_ += round.drafted;
    accepted_ += round.accepted;
    const auto depth = static_cast<std::size_t>(round.drafted);
    if (by_depth_.size() < depth) by_depth_.resize(depth);
    for (std::size_t d = 0; d < depth; ++d) {
      ++by_depth_[d].rounds;
      if (d < static_cast<std::size_t>(round.accepted)) ++by_depth_[d].accepted;
    }
  }
}

double RoundStatistics::accepted_per_round() const {
  return ratio(accepted_, drafting_rounds_);
}

double RoundStatistics::tokens_per_round() const {
  return ratio(committed_, rounds_);
}

}  // namespace kakeya::eval
