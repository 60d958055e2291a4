#include "decode/draft_costs.h"

#include <algorithm>
#include <cmath>

namespace kakeya {
namespace {

// The made-up table, in plain steps.
constexpr double kRow = 0.12;
constexpr double kDrafting = 0.6;
constexpr double kDraft = 0.02;

// Other work makes passes slower and never faster, so slow news counts little.
constexpr double kMostSlower = 0.1;
constexpr double kMostFaster = 0.4;
// The weights of a pass's news: for all sizes, and for its own size beyond that.
constexpr double kLevel = 0.15;
constexpr double kShape = 0.12;
constexpr double kFirstShape = 0.6;
constexpr int kFew = 3;

const double kPriorFade = std::exp2(-1.0 / 48.0);  // of a round in what later requests expect
constexpr double kGainWeight = 0.25;               // of a request in the trust

}  // namespace

DraftCosts::DraftCosts() {
  for (std::size_t i = 0; i < kNodes.size(); ++i) {
    const auto size = static_cast<double>(kNodes[i]);
    verify_[i].seconds = 1.0 + kRow * (size - 1.0);
    draft_[i].seconds = kDrafting + kDraft * size;
  }
}

double DraftCosts::at(const Costs& costs, std::int64_t size) {
  if (size > kNodes.back()) {
    return costs.back().seconds * static_cast<double>(size) / static_cast<double>(kNodes.back());
  }
  const auto node = std::lower_bound(kNodes.begin() + 1, kNodes.end() - 1, size);
  const auto i = static_cast<std::size_t>(node - kNodes.begin());
  const auto width = static_cast<double>(kNodes[i] - kNodes[i - 1]);
  const double share = static_cast<double>(size - kNodes[i - 1]) / width;
  return costs[i - 1].seconds + share * (costs[i].seconds - costs[i - 1].seconds);
}

// Returns by how much the logarithm of all sizes has moved.
double DraftCosts::correct(Costs& costs, std::int64_t size, double seconds) {
  const auto node = std::lower_bound(kNodes.begin(), kNodes.end() - 1, size) - kNodes.begin();
  Cost& own = costs[static_cast<std::size_t>(node)];
  // The first passes of a size say more of it than the made-up table does.
  const double most_slower = own.seen < kFew ? kMostFaster : kMostSlower;
  const double shape = std::max(kShape, kFirstShape / (1.0 + own.seen));
  own.seen = std::min(own.seen + 1, 1000);
  const double step = std::clamp(std::log(seconds / at(costs, size)), -kMostFaster, most_slower);
  for (std::size_t i = 0; i < kNodes.size(); ++i) {
    const double away =
        std::abs(std::log2(static_cast<double>(kNodes[i]) / static_cast<double>(size)));
    costs[i].seconds *= std::exp(step * (kLevel + shape * std::exp(-away)));
  }
  return kLevel * step;
}

void DraftCosts::learn(std::int64_t rows, double seconds) {
  if (rows < 1 || !(seconds > 0.0)) return;
  const std::lock_guard lock(mutex_);
  double moved = 0.0;
  if (known_) {
    moved = correct(verify_, rows, seconds);
  } else {
    moved = std::log(seconds / at(verify_, rows));
    for (Cost& cost : verify_) cost.seconds *= std::exp(moved);
    known_ = true;
  }
  // Drafting is on the same machine, and may not have been seen for long.
  for (Cost& cost : draft_) cost.seconds *= std::exp(moved);
}

void DraftCosts::learn_drafts(std::int64_t tokens, double seconds) {
  const std::lock_guard lock(mutex_);
  if (known_ && tokens >= 1 && seconds > 0.0) correct(draft_, tokens, seconds);
}

void DraftCosts::learn_acceptance(DraftKind kind, std::int64_t judged, std::int64_t accepted) {
  const std::lock_guard lock(mutex_);
  auto& depths = depths_[kind == DraftKind::kNgram ? 0 : 1];
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

DraftOutlook DraftCosts::outlook(DraftKind kind, std::int64_t most, const PassShare& share) const {
  DraftOutlook outlook;
  const std::lock_guard lock(mutex_);
  const double base = at(verify_, share.rows);
  const double plain = base / static_cast<double>(share.requests);
  const auto& depths = depths_[kind == DraftKind::kNgram ? 0 : 1];
  for (std::int64_t n = 1; n <= std::min(most, DraftOutlook::kMostDrafts); ++n) {
    // The share is counted as if all drafted as much.
    const double drafting = kind == DraftKind::kNgram ? 0.0
                                                      : at(draft_, n * share.drafting) /
                                                            static_cast<double>(share.drafting);
    const double rows = at(verify_, share.rows + n) - base;
    const auto i = static_cast<std::size_t>(n);
    // Noise must not make rows cheaper than none.
    outlook.extra[i] = std::max((std::max(rows, 0.0) + drafting) / plain, outlook.extra[i - 1]);
    const Depth& depth = depths[i - 1];
    outlook.prior[i - 1] = depth.reached > 1e-3 ? depth.accepted / depth.reached : -1.0;
  }
  outlook.plain_is_new = share.requests == 1 && verify_.front().seen < kFew;
  outlook.trust = trust_;
  return outlook;
}

double DraftCosts::plain_seconds() const {
  const std::lock_guard lock(mutex_);
  return known_ ? verify_.front().seconds : 0.0;
}

std::optional<CostTable> DraftCosts::table(std::int64_t max_length) const {
  const std::lock_guard lock(mutex_);
  if (!known_) return std::nullopt;
  CostTable table;
  for (std::int64_t n = 1; n <= max_length + 1; ++n) table.verify.push_back(at(verify_, n));
  for (std::int64_t n = 1; n <= max_length; ++n) table.draft.push_back(at(draft_, n));
  return table;
}

}  // namespace kakeya
