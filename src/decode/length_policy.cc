#include "decode/length_policy.h"

#include <algorithm>
#include <cmath>

namespace kakeya {
namespace {

// Before anything is known drafts are taken for right so often: who never tries never learns.
constexpr double kLeastPrior = 0.7;
// The weight of the prior, in rounds.
constexpr double kPriorWeight = 1.5;
const double kCountFade = std::exp2(-1.0 / 24.0);  // of a round in the request's own counts
// Plain steps of what was gained that may be lost again where a text turns bad.
constexpr double kMostSaved = 4.0;
// Requests after which a drafter that was not asked meanwhile may have a context made again.
constexpr int kUntried = 16;
// Rounds of a class that say enough of it.
constexpr double kFewRounds = 8.0;
// A request that has gone on beyond the usual length goes on for at least so many tokens.
constexpr double kLeastExpected = 16.0;

std::int64_t clipped(const DraftOffer& offer, std::int64_t most) {
  return std::clamp<std::int64_t>(std::min(offer.length, most), 0, DraftOutlook::kMostDrafts);
}

}  // namespace

DraftPlan plan_fixed(std::span<const DraftOffer> offers, std::int64_t length) {
  // Classes in the order in which they are taken: short matches last.
  constexpr std::array<int, kDraftClasses> kOrder = {0, 2, 1, 3};
  DraftPlan plan;
  int best = -1;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const int order = kOrder[draft_class(offers[i])];
    if (offers[i].length < 1 || order <= best) continue;
    best = order;
    plan = {.offer = i,
            .length = std::clamp<std::int64_t>(length, 0, offers[i].length),
            .reason = DraftReason::kAsked};
  }
  return plan;
}

LengthPolicy::LengthPolicy(DraftCosts& costs)
    : costs_(&costs), usual_length_(costs.usual_length()) {}

double LengthPolicy::expected(std::int64_t remaining) const {
  const auto done = static_cast<double>(tokens_);
  return std::min(static_cast<double>(remaining),
                  std::max({usual_length_ - done, done, kLeastExpected}));
}

LengthPolicy::Candidate LengthPolicy::best_of(const DraftOffer& offer,
                                              std::int64_t most,
                                              double remaining,
                                              const DraftOutlook& outlook) const {
  const double block = outlook.extra[kProbe];
  const double stake = block * (1.0 + (kMostBlocks - 1.0) * outlook.trust);
  const double room = stake + kShare * static_cast<double>(tokens_) - spent(offer.kind);
  const Class& known = classes_[draft_class(offer)];
  Candidate best = {.plan = {.reason = DraftReason::kNoGain}, .context = outlook.context};
  double acceptance = kLeastPrior;
  double survival = 1.0;
  double tokens = 1.0;
  // A long context of a drafter is bought by what was seen lately, where that is known well enough,
  // and to find out only now and then.
  const bool finds_out =
      outlook.untried >= kUntried || outlook.rounds < kFewRounds || outlook.context <= block;
  double seen_survival = 1.0;
  double seen_tokens = 1.0;
  bool was_refused = false;
  const auto usual = static_cast<std::int64_t>(std::ceil(2.0 * outlook.usual)) + 1;
  for (std::int64_t n = 1; n <= std::min(most, std::max(known.limit, usual)); ++n) {
    const auto d = static_cast<std::size_t>(n - 1);
    const double lately = outlook.prior[d] < 0.0 ? acceptance : outlook.prior[d];
    const double prior = std::max(kLeastPrior, lately);
    const Count& count = known.by_depth[d];
    acceptance = (count.accepted + kPriorWeight * prior) / (count.reached + kPriorWeight);
    survival *= acceptance;
    tokens += survival;
    seen_survival *= finds_out ? acceptance : std::min(acceptance, lately);
    seen_tokens += seen_survival;
    const double extra = outlook.extra[d + 1];
    const double cost = (1.0 + extra) / tokens;
    const double gain = remaining * (1.0 - (1.0 + extra) / seen_tokens);
    if (outlook.context > 0.0 && kReturn * outlook.context > gain) continue;
    const double with_context = cost + outlook.context / remaining;
    if (with_context >= best.cost) continue;
    if (extra > room) {
      was_refused = true;
      continue;
    }
    best.cost = with_context;
    best.extra = extra;
    best.plan = {.length = n, .reason = DraftReason::kGain};
  }
  if (best.plan.length > 0) return best;
  if (was_refused) best.plan.reason = DraftReason::kSpent;
  if (block > room || outlook.context > block) return best;
  best.plan = {.length = std::min(kProbe, most), .reason = DraftReason::kTry};
  best.extra = outlook.extra[static_cast<std::size_t>(best.plan.length)];
  return best;
}

DraftPlan LengthPolicy::choose(const RoundFacts& facts, std::int64_t most, const PassShare& share) {
  chosen_ = {};
  const double remaining = expected(facts.remaining);
  for (std::size_t i = 0; i < facts.offers.size(); ++i) {
    const DraftOffer& offer = facts.offers[i];
    const std::int64_t length = clipped(offer, most);
    if (length < 1) continue;
    const DraftOutlook outlook =
        costs_->outlook(offer, std::max(length, kProbe), facts.context, share);
    if (rounds_since_plain_ >= (outlook.plain_is_new ? kFirstRounds : kMostRounds)) {
      chosen_.plan.reason = DraftReason::kPlainDue;
      break;
    }
    Candidate candidate = best_of(offer, length, remaining, outlook);
    candidate.plan.offer = i;
    // A reason for none gives way to a try, and that to a gain.
    if (candidate.plan.reason > chosen_.plan.reason ||
        (candidate.plan.reason == chosen_.plan.reason && candidate.cost < chosen_.cost)) {
      chosen_ = candidate;
      offer_ = offer;
    }
  }
  return chosen_.plan;
}

void LengthPolicy::observe(const RoundRecord& round) {
  tokens_ += round.committed;
  const bool drafts = chosen_.plan.length > 0;
  rounds_since_plain_ = drafts ? rounds_since_plain_ + 1 : 0;
  if (!drafts) return;
  has_drafted_ = true;
  double& spent = spent_[ledger_of(offer_.kind)];
  spent = std::max(-kMostSaved, spent + 1.0 + chosen_.extra - round.committed);
  // A round that was stopped commits no token after its accepted drafts: the rest was never judged.
  const std::int64_t judged = std::min(round.drafted, round.committed);
  Class& known = classes_[draft_class(offer_)];
  known.limit = std::max<std::int64_t>(known.limit, 2 * round.accepted + 1);
  for (Count& count : known.by_depth) {
    count = {kCountFade * count.reached, kCountFade * count.accepted};
  }
  for (std::int64_t d = 0; d < judged; ++d) {
    Count& count = known.by_depth[static_cast<std::size_t>(d)];
    count.reached += 1.0;
    if (d < round.accepted) count.accepted += 1.0;
  }
  costs_->learn_acceptance(draft_class(offer_), judged, round.accepted);
}

void LengthPolicy::end() {
  if (has_drafted_) costs_->learn_gain(spent_[0] + spent_[1] < 0.0);
  has_drafted_ = false;
  if (tokens_ > 0) costs_->learn_length(tokens_);
  tokens_ = 0;
}

void choose_together(std::span<RoundChoice> rounds, std::int64_t room) {
  const auto drafts = [](const RoundChoice& round) {
    return round.plan.length > 0 && round.facts.offers[round.plan.offer].kind == DraftKind::kDflash;
  };
  std::int64_t drafting = 0;
  for (const RoundChoice& round : rounds) {
    for (const DraftOffer& offer : round.facts.offers) {
      drafting += offer.kind == DraftKind::kDflash && offer.length > 0 ? 1 : 0;
    }
  }
  // Repeats until as many draft as share the cost of the drafter's pass: fewer would leave some
  // unpaid.
  for (;;) {
    PassShare share{.rows = std::ssize(rounds),
                    .requests = std::ssize(rounds),
                    .drafting = std::max<std::int64_t>(1, drafting)};
    std::int64_t left = room;
    std::int64_t found = 0;
    for (RoundChoice& round : rounds) {
      const std::int64_t most = std::max<std::int64_t>(0, left);
      round.plan = round.policy == nullptr
                       ? plan_fixed(round.facts.offers, std::min(most, round.length))
                       : round.policy->choose(round.facts, most, share);
      share.rows += round.plan.length;
      left -= round.plan.length;
      found += drafts(round) ? 1 : 0;
    }
    if (found >= drafting) return;
    drafting = found;
  }
}

}  // namespace kakeya
