// The pieces of every search for scales: groups of numbers whose squared errors have weights, codes
// for a given scale and minimum, least squares for given codes, and the best of several tries. Used
// by the encoders of block and affine formats only.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

namespace kakeya::scale_search {

// The nearest whole number, ties to even, for magnitudes below 2^22. Unlike nearbyint() it compiles
// to two additions on every machine.
inline float nearest(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: its last bit is worth 1
  return (x + kMagic) - kMagic;
}

inline float clamped(float x, float low, float high) {
  return std::min(std::max(x, low), high);
}

// Elements of a group with the weights of their errors.
template <std::size_t N>
struct Group {
  std::array<float, N> x;
  std::array<float, N> weight;
};

// Group number `index` of the numbers x; without an importance all weigh the same.
template <std::size_t N>
Group<N> group_of(const float* x, const float* importance, std::size_t index) {
  Group<N> group;
  for (std::size_t i = 0; i < N; ++i) {
    group.x[i] = x[index * N + i];
    group.weight[i] = importance == nullptr ? 1.0F : importance[index * N + i];
  }
  return group;
}

// A code q from `low` to `high` stands for scale * q - minimum.
struct Levels {
  float low;
  float high;
};

struct Fit {
  float scale = 0.0F;
  float minimum = 0.0F;
};

// Which minimums a format can store.
enum class Minimums : unsigned char { kNone, kNotNegative, kAny };

template <std::size_t N>
using Codes = std::array<float, N>;

// Sums run in lanes, which compilers turn into vectors.
inline constexpr std::size_t kLanes = 8;
using Lanes = std::array<float, kLanes>;

inline float total(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// The best codes, and the weighted squared error that they leave.
template <std::size_t N>
float encode(const Group<N>& group, Fit fit, Levels levels, Codes<N>& codes) {
  const float inverse = fit.scale == 0.0F ? 0.0F : 1.0F / fit.scale;
  const float factor = std::isfinite(inverse) ? inverse : 0.0F;
  Lanes errors{};
  for (std::size_t i = 0; i < N; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = group.x[i + lane];
      const float code = nearest(clamped((x + fit.minimum) * factor, levels.low, levels.high));
      const float difference = fit.scale * code - fit.minimum - x;
      errors[lane] += group.weight[i + lane] * difference * difference;
      codes[i + lane] = code;
    }
  }
  return total(errors);
}

// The scale, and the minimum if there may be one, of the least squares for given codes.
template <std::size_t N>
Fit refit(const Group<N>& group, const Codes<N>& codes, Minimums minimums) {
  Lanes w_lanes{};
  Lanes wx_lanes{};
  Lanes wq_lanes{};
  Lanes wqq_lanes{};
  Lanes wxq_lanes{};
  for (std::size_t i = 0; i < N; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float weight = group.weight[i + lane];
      const float weighted_code = weight * codes[i + lane];
      w_lanes[lane] += weight;
      wx_lanes[lane] += weight * group.x[i + lane];
      wq_lanes[lane] += weighted_code;
      wqq_lanes[lane] += weighted_code * codes[i + lane];
      wxq_lanes[lane] += weighted_code * group.x[i + lane];
    }
  }
  const float w = total(w_lanes);
  const float wx = total(wx_lanes);
  const float wq = total(wq_lanes);
  const float wqq = total(wqq_lanes);
  const float wxq = total(wxq_lanes);
  const Fit without = {wqq > 0.0F ? wxq / wqq : 0.0F, 0.0F};
  if (minimums == Minimums::kNone) return without;
  const float determinant = w * wqq - wq * wq;
  if (!(determinant > 0.0F)) return without;
  const Fit fit = {(w * wxq - wx * wq) / determinant, (wq * wxq - wqq * wx) / determinant};
  return minimums == Minimums::kNotNegative && fit.minimum < 0.0F ? without : fit;
}

// A fit that is stored, or rounded later, as it is.
struct StoredExactly {
  Fit operator()(Fit fit) const { return fit; }
};

// Keeps the best of what it is offered, and of what least squares make of that. `Stored` says what
// readers will see of a fit: its errors are what counts.
template <std::size_t N, typename Stored = StoredExactly>
class BestFit {
 public:
  // `refits`: how often least squares follow an offer.
  BestFit(const Group<N>& group, Levels levels, Minimums minimums, int refits, Stored stored = {})
      : group_(group), levels_(levels), minimums_(minimums), refits_(refits), stored_(stored) {}

  void offer(Fit fit) {
    for (int i = 0; i <= refits_; ++i) {
      fit = stored_(fit);
      Codes<N> codes;
      const float error = encode(group_, fit, levels_, codes);
      if (error < error_) {
        error_ = error;
        best_ = fit;
      }
      fit = refit(group_, codes, minimums_);
    }
  }

  Fit best() const { return best_; }
  float error() const { return error_; }  // infinite before an offer

 private:
  const Group<N>& group_;
  Levels levels_;
  Minimums minimums_;
  int refits_;
  Stored stored_;
  Fit best_;
  float error_ = std::numeric_limits<float>::infinity();
};

// Which scales to try: fifths of a step that the lowest code is moved away from zero.
struct Fifths {
  int first;
  int last;
};

// Offers scales around the one that spans the group, whose largest magnitude gets the lowest code.
template <std::size_t N, typename Stored>
void offer_symmetric(const Group<N>& group,
                     Levels levels,
                     Fifths fifths,
                     BestFit<N, Stored>& best) {
  float edge = 0.0F;
  for (const float x : group.x) edge = std::fabs(x) > std::fabs(edge) ? x : edge;
  if (edge == 0.0F) return;
  for (int i = fifths.first; i <= fifths.last; ++i) {
    best.offer({edge / (levels.low + 0.2F * static_cast<float>(i)), 0.0F});
  }
}

// Offers scales and minimums that span the group, or leave out some steps at either end: outliers
// may cost less than a coarser scale for all. The lowest code is 0.
template <std::size_t N, typename Stored>
void offer_spans(const Group<N>& group, Levels levels, BestFit<N, Stored>& best) {
  const auto [low, high] = std::minmax_element(group.x.begin(), group.x.end());
  const float step = (*high - *low) / levels.high;
  if (!(step > 0.0F)) return;
  constexpr std::array kLeftOut = {0.0F, 0.5F, 1.0F, 1.5F};
  for (const float below : kLeftOut) {
    for (const float above : kLeftOut) {
      const float width = step * (levels.high - below - above);
      best.offer({width / levels.high, -(*low + step * below)});
    }
  }
}

}  // namespace kakeya::scale_search
