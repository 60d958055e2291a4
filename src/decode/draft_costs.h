// An engine's measurements about drafting: the times of passes, and how drafts fared lately. Passes
// of all its sessions and schedulers teach it.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "decode/draft_source.h"
#include "decode/pass_times.h"
#include "kakeya/session.h"

namespace kakeya {

// Seconds of passes by size.
struct CostTable {
  std::vector<double> verify;  // [i]: a target pass of i + 1 rows
  std::vector<double> draft;   // [i]: drafting i + 1 tokens
};

// The pass that a round is part of, and who shares it.
struct PassShare {
  std::int64_t rows = 1;      // planned so far, without the drafts that are to be chosen
  std::int64_t requests = 1;  // that decode in it
  std::int64_t drafting = 1;  // that share the drafter's pass
};

// Drafts whose chances are counted together: n-grams of short and of long matches, drafters, forms.
inline constexpr std::size_t kDraftClasses = 4;
std::size_t draft_class(const DraftOffer& offer);

// The outlook of a request's next drafts: their costs and their chances.
struct DraftOutlook {
  static constexpr std::int64_t kMostDrafts = 63;

  // [n]: what n drafts cost everybody, in plain steps of the request: its share of a pass without
  // drafts.
  std::array<double, kMostDrafts + 1> extra{};
  // Cost of the drafter's context beforehand, in plain steps.
  double context = 0.0;
  // [d]: how often draft d + 1 was right lately where those before it were; -1: nobody came so far.
  std::array<double, kMostDrafts> prior{};
  bool plain_is_new = true;  // passes of one row are hardly known
  double trust = 0.0;        // share of late requests that gained by drafting
  double usual = 0.0;        // drafts that late rounds of the class accepted
  double rounds = 0.0;       // that prior[0] is of, late ones more than early ones
  int untried = 0;           // requests that have ended since drafts of the class were looked at
};

// Thread-safe; nothing allocates but table().
class DraftCosts {
 public:
  // Starts from one made-up table for all machines, for the first passes correct it at no cost.
  DraftCosts();

  // A target pass of so many rows, all with logits, over contexts of about so many tokens took
  // `seconds`.
  void learn(std::int64_t rows, Position context, double seconds);
  // The drafter's pass for so many tokens, of all requests in it, did.
  void learn_drafts(std::int64_t tokens, Position context, double seconds);
  // Rows of drafters' contexts were made.
  void learn_context(const ContextWork& work);
  // `judged` drafts of a round were looked at, the first `accepted` of them right.
  void learn_acceptance(std::size_t draft_class, std::int64_t judged, std::int64_t accepted);
  // A request that drafted has ended, and took fewer or more plain steps than without.
  void learn_gain(bool gained);
  // A request has ended after so many tokens.
  void learn_length(std::int64_t tokens);

  // For rounds of up to `most` drafts of the offer, at most kMostDrafts, behind `context` tokens;
  // n-grams cost no pass.
  DraftOutlook outlook(const DraftOffer& offer,
                       std::int64_t most,
                       Position context,
                       const PassShare& share) const;
  // Tokens that late requests had.
  double usual_length() const;

  // Seconds of a pass of one row, over contexts of about so many tokens; 0 before any pass was run.
  double plain_seconds(Position context) const;
  // For drafts of up to `max_length`, over short contexts; nothing before any pass was run.
  std::optional<CostTable> table(std::int64_t max_length) const;

 private:
  struct Depth {
    double reached = 0.0;
    double accepted = 0.0;
  };

  mutable std::mutex mutex_;
  PassTimes verify_;  // in plain steps before a pass was seen, as the other times
  PassTimes draft_;
  double context_row_;  // of one row of a drafter's context
  std::array<std::array<Depth, DraftOutlook::kMostDrafts>, kDraftClasses> depths_{};
  std::array<double, kDraftClasses> usual_{};
  std::array<int, kDraftClasses> untried_{};
  double trust_ = 0.0;
  double usual_length_;
};

}  // namespace kakeya
