// An engine's measurements about drafting: the times of passes, and how drafts fared lately. Passes
// of all its sessions and schedulers teach it.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

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

// The outlook of a request's next drafts: their costs and their chances.
struct DraftOutlook {
  static constexpr std::int64_t kMostDrafts = 63;

  // [n]: what n drafts cost everybody, in plain steps of the request: its share of a pass without
  // drafts.
  std::array<double, kMostDrafts + 1> extra{};
  // [d]: how often draft d + 1 was right lately where those before it were; -1: nobody came so far.
  std::array<double, kMostDrafts> prior{};
  bool plain_is_new = true;  // passes of one row are hardly known
  double trust = 1.0;        // share of late requests that gained by drafting
};

// Thread-safe; nothing allocates but table().
class DraftCosts {
 public:
  // Starts from one made-up table for all machines: a measured one that is wrong by factors costs
  // more than what it saves.
  DraftCosts();

  // A target pass of so many rows, all with logits, took `seconds`.
  void learn(std::int64_t rows, double seconds);
  // The drafter's pass for so many tokens, of all requests in it, did.
  void learn_drafts(std::int64_t tokens, double seconds);
  // `judged` drafts of a round were looked at, the first `accepted` of them right.
  void learn_acceptance(DraftKind kind, std::int64_t judged, std::int64_t accepted);
  // A request that drafted has ended, and took fewer or more plain steps than without.
  void learn_gain(bool gained);

  // For rounds of up to `most` drafts, at most kMostDrafts; n-grams cost no pass.
  DraftOutlook outlook(DraftKind kind, std::int64_t most, const PassShare& share) const;

  // Seconds of a pass of one row; 0 before any pass was run.
  double plain_seconds() const;
  // For drafts of up to `max_length`; nothing before any pass was run.
  std::optional<CostTable> table(std::int64_t max_length) const;

 private:
  // Sizes between the nodes lie on lines, those beyond on one through 0.
  static constexpr std::array<std::int64_t, 34> kNodes = {
      1,  2,  3,  4,  5,  6,  7,  8,   9,   10,  11,  12,  13,  14,  15,  16,  20,
      24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024};
  struct Cost {
    double seconds = 0.0;  // plain steps, before any pass was run
    int seen = 0;          // passes of about this size
  };
  using Costs = std::array<Cost, kNodes.size()>;
  struct Depth {
    double reached = 0.0;
    double accepted = 0.0;
  };

  static double at(const Costs& costs, std::int64_t size);
  static double correct(Costs& costs, std::int64_t size, double seconds);

  mutable std::mutex mutex_;
  bool known_ = false;  // costs are seconds; else plain steps
  Costs verify_{};
  Costs draft_{};
  std::array<std::array<Depth, DraftOutlook::kMostDrafts>, 2> depths_{};  // of n-grams, drafters
  double trust_ = 1.0;
};

}  // namespace kakeya
