// What the rounds of many generations add up to.
#pragma once

#include <cstdint>
#include <span>
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

class RoundStatistics {
 public:
  void add(std::span<const RoundRecord> rounds);

  std::int64_t rounds() const { return rounds_; }
  std::int64_t drafting_rounds() const { return drafting_rounds_; }
  std::int64_t drafted() const { return drafted_; }
  std::int64_t accepted() const { return accepted_; }
  std::int64_t committed() const { return committed_; }

  // Accepted drafts of a drafting round; 0 without any.
  double accepted_per_round() const;
  // A drafting round's accepted drafts and the target's own token; 1 without any.
  double acceptance_length() const { return 1.0 + accepted_per_round(); }
  // Tokens committed by a round, plain steps included; 0 without any.
  double tokens_per_round() const;

  // [d]: of drafts d + 1 tokens deep; as deep as any round drafted.
  const std::vector<DepthAcceptance>& by_depth() const { return by_depth_; }

 private:
  std::int64_t rounds_ = 0;
  std::int64_t drafting_rounds_ = 0;
  std::int64_t drafted_ = 0;
  std::int64_t accepted_ = 0;
  std::int64_t committed_ = 0;
  std::vector<DepthAcceptance> by_depth_;
};

}  // namespace kakeya::eval
