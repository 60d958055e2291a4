#include "decode/round_costs.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"

namespace kakeya {
namespace {

constexpr int kMinRepetitions = 3;
constexpr int kMaxRepetitions = 15;
constexpr double kEnoughSeconds = 0.5;

// 1, 2, 3, 4, 6, 8, 12, 16, ... and the largest: costs bend most where blocks are small.
std::vector<std::int64_t> sizes_to_measure(std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t power = 1; power <= most; power *= 2) {
    sizes.push_back(power);
    const std::int64_t between = power + power / 2;
    if (power > 1 && between < most) sizes.push_back(between);
  }
  if (sizes.back() != most) sizes.push_back(most);
  return sizes;
}

// What other programs do only ever adds to the time of a pass, so a low quantile is nearer to the
// truth than the median. The least value would make rare luck the rule.
double low_quantile(std::vector<double>& values) {
  const auto low = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), low, values.end());
  return *low;
}

void shuffle(std::vector<std::size_t>& order, SequenceRng& random) {
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(i))]);
  }
}

class RoundTimer {
 public:
  RoundTimer(Timeline& timeline, Sampler& sampler, std::int64_t max_length)
      : timeline_(timeline), sampler_(sampler) {
    // Random tokens: rows of real text route to fewer distinct experts, so this errs on the side of
    // short blocks until real rounds correct it.
    SequenceRng rng(1);
    const auto vocabulary = static_cast<std::uint64_t>(timeline.decoder().config().vocab_size);
    for (std::int64_t i = 0; i < max_length; ++i) {
      drafts_.push_back(static_cast<TokenId>(rng.below(vocabulary)));
    }
  }

  Result<double> verify(std::int64_t rows) {
    const Stopwatch watch;
    KAKEYA_ASSIGN_OR_RETURN(const HostRows logits,
                            timeline_.verify(std::span<const TokenId>(drafts_).first(
                                static_cast<std::size_t>(rows - 1))));
    for (std::int64_t r = 0; r < rows; ++r) {
      sampler_.sample(logits.row(r), static_cast<Position>(timeline_.tokens().size()));
    }
    return watch.seconds();
  }

  Result<double> draft(DraftSource& drafter, std::int64_t length) {
    scratch_.resize(static_cast<std::size_t>(length));
    const Stopwatch watch;
    KAKEYA_TRY(drafter.draft(timeline_.tokens(), sampler_, scratch_));
    return watch.seconds();
  }

 private:
  Timeline& timeline_;
  Sampler& sampler_;
  std::vector<TokenId> drafts_;
  std::vector<TokenId> scratch_;
};

}  // namespace

std::vector<double> costs_of_samples(const std::vector<std::int64_t>& sizes,
                                     std::vector<std::vector<double>>& samples,
                                     std::int64_t most) {
  std::vector<double> measured;
  for (std::vector<double>& sample : samples) measured.push_back(low_quantile(sample));
  for (std::size_t i = measured.size() - 1; i-- > 0;) {
    measured[i] = std::min(measured[i], measured[i + 1]);
  }
  std::vector<double> costs;
  std::size_t right = 0;
  for (std::int64_t size = 1; size <= most; ++size) {
    while (sizes[right] < size) ++right;
    const std::size_t left = right > 0 && sizes[right] != size ? right - 1 : right;
    const auto span = static_cast<double>(std::max<std::int64_t>(1, sizes[right] - sizes[left]));
    const double share = static_cast<double>(size - sizes[left]) / span;
    costs.push_back(measured[left] + share * (measured[right] - measured[left]));
  }
  return costs;
}

Result<MeasuredCosts> measure_round_costs(Timeline& timeline,
                                          Sampler& sampler,
                                          std::int64_t max_length,
                                          DraftSource* drafter) {
  const std::vector<std::int64_t> rows = sizes_to_measure(max_length + 1);
  std::vector<std::int64_t> lengths;
  if (drafter != nullptr) lengths = sizes_to_measure(max_length);
  RoundTimer timer(timeline, sampler, max_length);
  std::vector<std::vector<double>> verify(rows.size());
  std::vector<std::vector<double>> draft(lengths.size());
  KAKEYA_TRY(timer.verify(max_length + 1));  // warms up
  if (drafter != nullptr) KAKEYA_TRY(timer.draft(*drafter, max_length));
  // In random order: a disturbance of some milliseconds must not meet the same sizes each time.
  std::vector<std::size_t> order(rows.size() + lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  SequenceRng random(2);
  const Stopwatch watch;
  for (int r = 0; r < kMaxRepetitions; ++r) {
    if (r >= kMinRepetitions && watch.seconds() > kEnoughSeconds) break;
    shuffle(order, random);
    for (const std::size_t i : order) {
      if (i < rows.size()) {
        KAKEYA_ASSIGN_OR_RETURN(const double seconds, timer.verify(rows[i]));
        verify[i].push_back(seconds);
      } else {
        const std::size_t j = i - rows.size();
        KAKEYA_ASSIGN_OR_RETURN(const double seconds, timer.draft(*drafter, lengths[j]));
        draft[j].push_back(seconds);
      }
    }
  }
  MeasuredCosts costs;
  costs.verify = costs_of_samples(rows, verify, max_length + 1);
  if (drafter != nullptr) costs.draft = costs_of_samples(lengths, draft, max_length);
  return costs;
}

RoundCosts costs_of(const DraftSource& source, const MeasuredCosts& measured) {
  const auto most = static_cast<std::size_t>(source.max_length());
  RoundCosts costs;
  costs.verify = measured.verify;
  for (int lane = 0; lane < source.num_lanes(); ++lane) {
    const bool computes = source.lane_kind(lane) == DraftKind::kDflash;
    costs.draft.push_back(computes ? measured.draft : std::vector<double>(most, 0.0));
  }
  return costs;
}

}  // namespace kakeya
