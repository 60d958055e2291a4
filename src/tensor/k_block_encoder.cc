// How the search goes, for each format: (1) each group of 16 or 32 elements gets the scale, and
// minimum, that suit it best, from a row of candidates that least squares improve; (2) those are
// rounded to whole multiples of a scale of scales; (3) in turns, each group tries the multiples
// next to its own, and least squares refit the scale of scales, as long as the error falls.
#include "tensor/k_block_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "tensor/dtype.h"
#include "tensor/scale_search.h"

namespace kakeya {

namespace {

constexpr std::size_t kBlockElements = 256;
// The rounds of step 3. On normal numbers one less costs 0.2 % of the error.
constexpr int kRounds = 3;

using scale_search::BestFit;
using scale_search::clamped;
using scale_search::Codes;
using scale_search::encode;
using scale_search::Fit;
using scale_search::Group;
using scale_search::group_of;
using scale_search::Levels;
using scale_search::Minimums;
using scale_search::nearest;

// Least squares after each candidate of step 1: a second time gains less than 0.3 % of the error.
constexpr int kGroupRefits = 1;

// The value rounded to half precision, as readers will see it.
float as_half(float value) {
  return half_to_float(float_to_half(value));
}

// The scale of scales for a largest scale, or minimum, that is `multiple` times as large. Never 0
// unless that is: the smallest half still tells small numbers from none.
float unit_for(float largest, float multiple) {
  constexpr float kSmallestHalf = 0x1p-24F;
  if (largest == 0.0F) return 0.0F;
  const float unit = as_half(largest / multiple);
  return unit == 0.0F ? std::copysign(kSmallestHalf, largest / multiple) : unit;
}

// Step 1 for formats with minimums. The candidates leave out up to a few steps at the ends:
// outliers may cost less than a coarser scale for all.
Fit fit_with_minimum(const Group<32>& group, Levels levels) {
  const auto [smallest, largest] = std::minmax_element(group.x.begin(), group.x.end());
  const float low = std::min(*smallest, 0.0F);
  const float width = *largest - low;
  if (!(width > 0.0F)) return {0.0F, -low};  // all zero, or one negative number
  BestFit<32> best(group, levels, Minimums::kNotNegative, kGroupRefits);
  for (int i = -4; i <= 5; ++i) {
    best.offer({width / (levels.high + 0.2F * static_cast<float>(i)), -low});
  }
  return best.best();
}

// Step 1 for Q6_K. The scale may be negative: there is one more code below zero than above.
Fit fit_symmetric(const Group<16>& group, Levels levels) {
  BestFit<16> best(group, levels, Minimums::kNone, kGroupRefits);
  scale_search::offer_symmetric(group, levels, {-4, 4}, best);
  return best.best();
}

// A block of G groups of N elements while it is being made: scales are whole multiples of `scale`,
// minimums of `minimum`.
template <std::size_t N>
struct Draft {
  static constexpr std::size_t kGroups = kBlockElements / N;

  Fit unit;  // halves
  std::array<float, kGroups> scales{};
  std::array<float, kGroups> minimums{};
  std::array<Codes<N>, kGroups> codes{};
  float error = 0.0F;

  Fit fit_of(std::size_t group) const {
    return {unit.scale * scales[group], unit.minimum * minimums[group]};
  }
};

struct Multiples {
  Levels scales;
  Levels minimums;  // {0, 0}: none
};

// Tries the multiples next to those it has; leaves the best, with its codes. Returns the error.
template <std::size_t N>
float improve_group(const Group<N>& group,
                    std::size_t index,
                    Levels levels,
                    const Multiples& multiples,
                    Draft<N>& draft) {
  const float scale = draft.scales[index];
  const float minimum = draft.minimums[index];
  float best = std::numeric_limits<float>::infinity();
  // Its own multiples first: they stay unless others are better.
  for (const float up : {0.0F, -1.0F, 1.0F}) {
    const float s = scale + up;
    if (s < multiples.scales.low || s > multiples.scales.high) continue;
    for (const float down : {0.0F, -1.0F, 1.0F}) {
      const float m = minimum + down;
      if (m < multiples.minimums.low || m > multiples.minimums.high) continue;
      Codes<N> codes;
      const float error =
          encode(group, {draft.unit.scale * s, draft.unit.minimum * m}, levels, codes);
      if (!(error < best)) continue;
      best = error;
      draft.scales[index] = s;
      draft.minimums[index] = m;
      draft.codes[index] = codes;
    }
  }
  return best;
}

template <std::size_t N>
using Groups = std::array<Group<N>, kBlockElements / N>;

// Least squares of the unit for the multiples and codes that there are.
template <std::size_t N>
Fit refit_unit(const Groups<N>& groups, const Draft<N>& draft) {
  double aa = 0.0;
  double ab = 0.0;
  double bb = 0.0;
  double ax = 0.0;
  double bx = 0.0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const double b = -draft.minimums[g];
    for (std::size_t i = 0; i < N; ++i) {
      const double w = groups[g].weight[i];
      const double a = static_cast<double>(draft.scales[g]) * draft.codes[g][i];
      aa += w * a * a;
      ab += w * a * b;
      bb += w * b * b;
      ax += w * a * groups[g].x[i];
      bx += w * b * groups[g].x[i];
    }
  }
  const double determinant = aa * bb - ab * ab;
  Fit unit = draft.unit;
  if (bb == 0.0) {
    if (aa > 0.0) unit.scale = as_half(static_cast<float>(ax / aa));
  } else if (determinant > 1e-12 * aa * bb) {
    unit.scale = as_half(static_cast<float>((ax * bb - bx * ab) / determinant));
    unit.minimum = as_half(static_cast<float>((bx * aa - ax * ab) / determinant));
  }
  return unit;
}

// Steps 2 and 3.
template <std::size_t N>
Draft<N> search_units(const Groups<N>& groups,
                      const std::array<Fit, kBlockElements / N>& fits,
                      Levels levels,
                      const Multiples& multiples) {
  // The group of the largest scale gets the largest multiple, that of the other sign if there is
  // one more on that side.
  Fit largest;
  for (const Fit& fit : fits) {
    if (std::fabs(fit.scale) > std::fabs(largest.scale)) largest.scale = fit.scale;
    largest.minimum = std::max(largest.minimum, fit.minimum);
  }
  Draft<N> draft;
  const bool is_signed = multiples.scales.low < 0.0F;
  draft.unit.scale =
      unit_for(largest.scale, is_signed ? multiples.scales.low : multiples.scales.high);
  if (multiples.minimums.high > 0.0F) {
    draft.unit.minimum = unit_for(largest.minimum, multiples.minimums.high);
  }
  const auto multiple = [](float value, float unit, Levels range) {
    return unit == 0.0F
               ? 0.0F
               : clamped(nearest(clamped(value / unit, -1e3F, 1e3F)), range.low, range.high);
  };
  for (std::size_t g = 0; g < groups.size(); ++g) {
    draft.scales[g] = multiple(fits[g].scale, draft.unit.scale, multiples.scales);
    draft.minimums[g] = multiple(fits[g].minimum, draft.unit.minimum, multiples.minimums);
  }
  Draft<N> best;
  best.error = std::numeric_limits<float>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    draft.error = 0.0F;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      draft.error += improve_group(groups[g], g, levels, multiples, draft);
    }
    if (!(draft.error < best.error)) break;
    best = draft;
    draft.unit = refit_unit(groups, draft);
  }
  return best;
}

template <std::size_t N>
Groups<N> groups_of(const float* x, const float* importance) {
  Groups<N> groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g] = group_of<N>(x, importance, g);
  }
  return groups;
}

Draft<32> search_with_minimums(const float* x, const float* importance, float most) {
  const Levels levels = {0.0F, most};
  const Groups<32> groups = groups_of<32>(x, importance);
  std::array<Fit, 8> fits;
  for (std::size_t g = 0; g < groups.size(); ++g) fits[g] = fit_with_minimum(groups[g], levels);
  constexpr Multiples kSixBits = {{0.0F, 63.0F}, {0.0F, 63.0F}};
  return search_units<32>(groups, fits, levels, kSixBits);
}

unsigned whole(float value) {
  return static_cast<unsigned>(static_cast<int>(value));
}

// Scale and minimum of eight groups in 12 bytes; k_scales() of quantized_format.cc reads them.
void put_k_scales(const Draft<32>& draft, std::uint8_t* out) {
  for (std::size_t g = 0; g < 4; ++g) {
    const unsigned high_scale = whole(draft.scales[g + 4]);
    const unsigned high_minimum = whole(draft.minimums[g + 4]);
    out[g] = static_cast<std::uint8_t>(whole(draft.scales[g]) | ((high_scale >> 4) << 6));
    out[4 + g] = static_cast<std::uint8_t>(whole(draft.minimums[g]) | ((high_minimum >> 4) << 6));
    out[8 + g] = static_cast<std::uint8_t>((high_scale & 15U) | ((high_minimum & 15U) << 4));
  }
}

unsigned code_at(const Draft<32>& draft, std::size_t i) {
  return whole(draft.codes[i / 32][i % 32]);
}

// Nibbles in runs of 32 bytes for 64 elements.
void put_low_bits(const Draft<32>& draft, std::uint8_t* out) {
  for (std::size_t i = 0; i < kBlockElements / 2; ++i) {
    const std::size_t first = i / 32 * 64 + i % 32;
    const unsigned low = code_at(draft, first) & 15U;
    const unsigned high = code_at(draft, first + 32) & 15U;
    out[i] = static_cast<std::uint8_t>(low | (high << 4));
  }
}

}  // namespace

void encode_q4_k(const float* x, const float* importance, std::uint8_t* out) {
  const Draft<32> draft = search_with_minimums(x, importance, 15.0F);
  store_half(draft.unit.scale, out);
  store_half(draft.unit.minimum, out + 2);
  put_k_scales(draft, out + 4);
  put_low_bits(draft, out + 16);
}

void encode_q5_k(const float* x, const float* importance, std::uint8_t* out) {
  const Draft<32> draft = search_with_minimums(x, importance, 31.0F);
  store_half(draft.unit.scale, out);
  store_half(draft.unit.minimum, out + 2);
  put_k_scales(draft, out + 4);
  // Bit g of byte i is the fifth bit of element i of group g.
  for (std::size_t i = 0; i < 32; ++i) {
    unsigned bits = 0;
    for (std::size_t g = 0; g < 8; ++g) bits |= (code_at(draft, 32 * g + i) >> 4) << g;
    out[16 + i] = static_cast<std::uint8_t>(bits);
  }
  put_low_bits(draft, out + 48);
}

void encode_q6_k(const float* x, const float* importance, std::uint8_t* out) {
  constexpr Levels kLevels = {-32.0F, 31.0F};
  const Groups<16> groups = groups_of<16>(x, importance);
  std::array<Fit, 16> fits;
  for (std::size_t g = 0; g < groups.size(); ++g) fits[g] = fit_symmetric(groups[g], kLevels);
  constexpr Multiples kBytes = {{-128.0F, 127.0F}, {0.0F, 0.0F}};
  const Draft<16> draft = search_units<16>(groups, fits, kLevels, kBytes);
  std::fill_n(out, 192, std::uint8_t{0});
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    const unsigned code = whole(draft.codes[i / 16][i % 16] + 32.0F);
    const std::size_t half = i / 128;
    const std::size_t low = 64 * half + i % 64;
    const std::size_t high = 128 + 32 * half + i % 32;
    out[low] = static_cast<std::uint8_t>(out[low] | ((code & 15U) << (i % 128 < 64 ? 0 : 4)));
    out[high] = static_cast<std::uint8_t>(out[high] | ((code >> 4) << (2 * (i % 128 / 32))));
  }
  for (std::size_t g = 0; g < 16; ++g) {
    out[192 + g] = static_cast<std::uint8_t>(static_cast<std::int8_t>(draft.scales[g]));
  }
  store_half(draft.unit.scale, out + 208);
}

}  // namespace kakeya
