// The statistics of the rounds of many generations.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kakeya/session.h"

namespace kakeya::eval {

// Rounds that drafted at least so many tokens, and those of them that accepted so many.
struct DepthAcceptance {
  std::int64_t rounds = 0;
  std::int64_t accepted = 0;

  // 0 without any round.
  double share() const;
};

struct RoundCounts {
  std::int64_t rounds = 0;
  std::int64_t drafting_rounds = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  std::int64_t committed = 0;
  // [d]: of drafts d + 1 tokens deep; as deep as any round drafted.
  std::vector<DepthAcceptance> by_depth = {};
};

class RoundStatistics {
 public:
  RoundStatistics() = default;
  explicit RoundStatistics(RoundCounts counts) : counts_(std::move(counts)) {}

  void add(std::span<const RoundRecord> rounds);

  const RoundCounts& counts() const { return counts_; }
  std::int64_t rounds() const { return counts_.rounds; }
  std::int64_t drafting_rounds() const { return counts_.drafting_rounds; }
  std::int64_t drafted() const { return counts_.drafted; }
  std::int64_t accepted() const { return counts_.accepted; }
  std::int64_t committed() const { return counts_.committed; }

  // Accepted drafts of a drafting round; 0 without any.
  double accepted_per_round() const;
  // A drafting round's accepted drafts and the target's own token; 1 without any.
  double acceptance_length() const { return 1.0 + accepted_per_round(); }
  // Tokens committed by a round, plain steps included; 0 without any.
  double tokens_per_round() const;

  const std::vector<DepthAcceptance>& by_depth() const { return counts_.by_depth; }

 private:
  RoundCounts counts_;
};

}  // namespace kakeya::eval
