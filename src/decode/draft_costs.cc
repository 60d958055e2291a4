#include "decode/draft_costs.h"

#include <algorithm>
#include <cmath>

namespace kakeya {
namespace {

// The made-up table, in plain steps.
constexpr double kRow = 0.12;
constexpr double kDrafting = 0.6;
constexpr double kDraft = 0.02;
constexpr double kContextRow = 0.01;
// Rows of a pass cost no more than passes of their own.
constexpr double kMostRow = 0.95;
constexpr int kFew = 3;

// Fewer rows say little of what one costs.
constexpr std::int64_t kLeastRows = 32;
constexpr double kContextWeight = 0.3;

const double kPriorFade = std::exp2(-1.0 / 48.0);  // of a round in what later requests expect
constexpr double kUsualWeight = 0.1;               // of a round in what is usually accepted
constexpr double kGainWeight = 0.25;               // of a request in the trust
constexpr double kLengthWeight = 0.1;              // of a request in the usual length
constexpr double kFirstLength = 128.0;

}  // namespace

std::size_t draft_class(const DraftOffer& offer) {
  if (offer.kind == DraftKind::kForm) return 3;
  if (offer.kind != DraftKind::kNgram) return 2;
  return offer.long_match ? 1 : 0;
}

DraftCosts::DraftCosts()
    : verify_(1.0 - kRow, kRow),
      draft_(kDrafting, kDraft),
      context_row_(kContextRow),
      usual_length_(kFirstLength) {}

void DraftCosts::learn(std::int64_t rows, Position context, double seconds) {
  if (rows < 1 || !(seconds > 0.0)) return;
  const std::lock_guard lock(mutex_);
  const double moved = verify_.learn(rows, context, seconds);
  // Drafting is on the same machine, and may not have been seen for long.
  draft_.scale(moved);
  context_row_ *= moved;
}

void DraftCosts::learn_drafts(std::int64_t tokens, Position context, double seconds) {
  if (tokens < 1 || !(seconds > 0.0)) return;
  const std::lock_guard lock(mutex_);
  if (verify_.is_known()) draft_.learn(tokens, context, seconds);
}

void DraftCosts::learn_context(const ContextWork& work) {
  if (work.rows < kLeastRows || !(work.seconds > 0.0)) return;
  const std::lock_guard lock(mutex_);
  if (!verify_.is_known()) return;
  const double row = work.seconds / static_cast<double>(work.rows);
  context_row_ = std::min(row, context_row_ + kContextWeight * (row - context_row_));
}

void DraftCosts::learn_acceptance(std::size_t draft_class,
                                  std::int64_t judged,
                                  std::int64_t accepted) {
  const std::lock_guard lock(mutex_);
  untried_[draft_class] = 0;
  usual_[draft_class] += kUsualWeight * (static_cast<double>(accepted) - usual_[draft_class]);
  auto& depths = depths_[draft_class];
  for (std::size_t d = 0; d < depths.size(); ++d) {
    const auto depth = static_cast<std::int64_t>(d);
    const double reached = depth < judged && depth <= accepted ? 1.0 : 0.0;
    const double right = depth < judged && depth < accepted ? 1.0 : 0.0;
    depths[d] = {kPriorFade * depths[d].reached + reached, kPriorFade * depths[d].accepted + right};
  }
}

void DraftCosts::learn_gain(bool gained) {
  const std::lock_guard lock(mutex_);
  trust_ += kGainWeight * ((gained ? 1.0 : 0.0) - trust_);
}

void DraftCosts::learn_length(std::int64_t tokens) {
  const std::lock_guard lock(mutex_);
  for (int& untried : untried_) untried = std::min(untried + 1, 1000);
  usual_length_ += kLengthWeight * (static_cast<double>(tokens) - usual_length_);
}

double DraftCosts::usual_length() const {
  const std::lock_guard lock(mutex_);
  return usual_length_;
}

DraftOutlook DraftCosts::outlook(const DraftOffer& offer,
                                 std::int64_t most,
                                 Position context,
                                 const PassShare& share) const {
  DraftOutlook outlook;
  const std::lock_guard lock(mutex_);
  const double base = verify_.at(share.rows, context);
  const double plain = base / static_cast<double>(share.requests);
  const double alone = verify_.at(1, context);
  const bool drafter = offer.kind == DraftKind::kDflash;
  const auto& depths = depths_[draft_class(offer)];
  for (std::int64_t n = 1; n <= std::min(most, DraftOutlook::kMostDrafts); ++n) {
    // The share is counted as if all drafted as much.
    const double drafting =
        drafter ? draft_.at(n * share.drafting, context) / static_cast<double>(share.drafting)
                : 0.0;
    const double rows = std::clamp(verify_.at(share.rows + n, context) - base, 0.0,
                                   kMostRow * static_cast<double>(n) * alone);
    const auto i = static_cast<std::size_t>(n);
    // Noise must not make rows cheaper than none.
    outlook.extra[i] = std::max((rows + drafting) / plain, outlook.extra[i - 1]);
    const Depth& depth = depths[i - 1];
    outlook.prior[i - 1] = depth.reached > 1e-3 ? depth.accepted / depth.reached : -1.0;
  }
  outlook.context = static_cast<double>(offer.context_rows) * context_row_ / plain;
  outlook.plain_is_new = share.requests == 1 && verify_.seen(1, context) < kFew;
  outlook.trust = trust_;
  outlook.usual = usual_[draft_class(offer)];
  outlook.rounds = depths.front().reached;
  outlook.untried = untried_[draft_class(offer)];
  return outlook;
}

double DraftCosts::plain_seconds(Position context) const {
  const std::lock_guard lock(mutex_);
  return verify_.is_known() ? verify_.at(1, context) : 0.0;
}

std::optional<CostTable> DraftCosts::table(std::int64_t max_length) const {
  const std::lock_guard lock(mutex_);
  if (!verify_.is_known()) return std::nullopt;
  CostTable table;
  for (std::int64_t n = 1; n <= max_length + 1; ++n) table.verify.push_back(verify_.at(n, 0));
  for (std::int64_t n = 1; n <= max_length; ++n) table.draft.push_back(draft_.at(n, 0));
  return table;
}

}  // namespace kakeya
