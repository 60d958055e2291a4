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

}  // namespace

std::int64_t LengthPolicy::choose(DraftKind kind, std::int64_t most, const PassShare& share) {
  kind_ = kind;
  length_ = 0;
  extra_ = 0.0;
  most = std::min(most, DraftOutlook::kMostDrafts);
  if (most < 1) return 0;
  const DraftOutlook outlook = costs_->outlook(kind, std::max(most, kProbe), share);
  if (rounds_since_plain_ >= (outlook.plain_is_new ? kFirstRounds : kMostRounds)) return 0;
  const double block = outlook.extra[kProbe];
  const double stake = block * (1.0 + (kMostBlocks - 1.0) * outlook.trust);
  const double room = stake + kShare * static_cast<double>(tokens_) - spent_;
  const Counts& counts = counts_of(kind);
  double acceptance = kLeastPrior;
  double survival = 1.0;
  double tokens = 1.0;
  double best = 1.0;
  for (std::int64_t n = 1; n <= most; ++n) {
    const auto d = static_cast<std::size_t>(n - 1);
    const double known = outlook.prior[d] < 0.0 ? acceptance : outlook.prior[d];
    const double prior = std::max(kLeastPrior, known);
    acceptance = (counts[d].accepted + kPriorWeight * prior) / (counts[d].reached + kPriorWeight);
    survival *= acceptance;
    tokens += survival;
    const double extra = outlook.extra[d + 1];
    if (extra > room || tokens <= best * (1.0 + extra)) continue;
    best = tokens / (1.0 + extra);
    length_ = n;
  }
  if (length_ == 0 && block <= room) length_ = std::min(kProbe, most);
  extra_ = outlook.extra[static_cast<std::size_t>(length_)];
  return length_;
}

void LengthPolicy::observe(const RoundRecord& round) {
  tokens_ += round.committed;
  rounds_since_plain_ = length_ == 0 ? 0 : rounds_since_plain_ + 1;
  if (length_ == 0) return;
  has_drafted_ = true;
  spent_ = std::max(-kMostSaved, spent_ + 1.0 + extra_ - round.committed);
  // A round that was stopped commits no token after its accepted drafts: the rest was never judged.
  const std::int64_t judged = std::min(round.drafted, round.committed);
  Counts& counts = counts_of(kind_);
  for (Count& count : counts) count = {kCountFade * count.reached, kCountFade * count.accepted};
  for (std::int64_t d = 0; d < judged; ++d) {
    Count& count = counts[static_cast<std::size_t>(d)];
    count.reached += 1.0;
    if (d < round.accepted) count.accepted += 1.0;
  }
  costs_->learn_acceptance(kind_, judged, round.accepted);
}

void LengthPolicy::end() {
  if (has_drafted_) costs_->learn_gain(spent_ < 0.0);
  has_drafted_ = false;
}

void choose_together(std::span<RoundChoice> rounds, std::int64_t room) {
  const auto drafts = [](const RoundChoice& round) {
    return round.kind == DraftKind::kDflash && round.length > 0;
  };
  std::int64_t drafting = 0;
  for (RoundChoice& round : rounds) {
    if (round.policy == nullptr) round.most = std::min(round.most, round.length);
    round.length = round.most;
    drafting += drafts(round) ? 1 : 0;
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
      const std::int64_t most = std::max<std::int64_t>(0, std::min(round.most, left));
      round.length = round.policy == nullptr ? most : round.policy->choose(round.kind, most, share);
      share.rows += round.length;
      left -= round.length;
      found += drafts(round) ? 1 : 0;
    }
    if (found >= drafting) return;
    drafting = found;
  }
}

}  // namespace kakeya
