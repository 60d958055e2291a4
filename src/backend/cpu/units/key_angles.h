// Keys that are made of values: key = RoPE_p(k_norm * value), and the angles by which they turn.
// Included after rows.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

// The kinds of angles: position * frequency in f32, as published; that product with sines as exact
// as a rope table's, for results that must be equal to one's after both are rounded to f32; the
// product in double.
enum class AngleOf { kRounded, kTable, kExact };

// Sines and cosines of the angles position * frequencies[i]: reduced by multiples of pi / 2 in
// double, then two Taylor polynomials on [-pi/4, pi/4]. One width throughout and no jumps, so that
// the compiler makes vectors of it.
//
// The error stays below 1e-10 up to position 2^20, of which 3e-12 are the polynomials'. For kTable
// pi / 2 is in two parts, products of the first being exact up to 2^20 turns, and two more terms
// leave 5e-17.
template <AngleOf kKind>
inline void turn_angles(
    const float* frequencies, Index count, Index position, float* cos, float* sin) {
  const auto place = static_cast<float>(position);
  for (Index i = 0; i < count; ++i) {
    const double rounded = place * frequencies[i];
    const double angle =
        kKind == AngleOf::kExact ? static_cast<double>(place) * frequencies[i] : rounded;
    // Adding and taking away 1.5 * 2^52 rounds to a whole number.
    constexpr double kRound = 6755399441055744.0;
    const double turns = (angle * 0.63661977236758134308 + kRound) - kRound;
    double r = angle - turns * 1.57079632679489661923;
    if constexpr (kKind == AngleOf::kTable) {
      r = (angle - turns * 1.57079632673412561417) - turns * 6.07710050650619224932e-11;
    }
    const double s = r * r;
    double sin_end = -1.0 / 39916800;
    double cos_end = 1.0 / 479001600;
    if constexpr (kKind == AngleOf::kTable) {
      sin_end += s * (1.0 / 6227020800 - s / 1307674368000.0);
      cos_end += s * (-1.0 / 87178291200 + s / 20922789888000.0);
    }
    const double sin_r =
        r * (1.0 + s * (-1.0 / 6 +
                        s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880 + s * sin_end)))));
    const double cos_r =
        1.0 +
        s * (-0.5 + s * (1.0 / 24 + s * (-1.0 / 720 +
                                         s * (1.0 / 40320 + s * (-1.0 / 3628800 + s * cos_end)))));
    // turns = 4 n + quadrant, quadrant -2 ... 2; 2 and -2 are the same.
    const double quadrant = turns - 4.0 * ((turns * 0.25 + kRound) - kRound);
    const double size = quadrant < 0.0 ? -quadrant : quadrant;
    const bool odd = size == 1.0;
    const double turned_sin = odd ? (quadrant < 0.0 ? -cos_r : cos_r) : sin_r;
    const double turned_cos = odd ? (quadrant < 0.0 ? sin_r : -sin_r) : cos_r;
    const double sign = size == 2.0 ? -1.0 : 1.0;
    sin[i] = static_cast<float>(sign * turned_sin);
    cos[i] = static_cast<float>(sign * turned_cos);
  }
}

// Sines and cosines for one position after another, of fl(p f), the published angle rounded to f32.
//
// In fast mode they follow from one another: from key to key the exact angle p f grows by f, so its
// sine and cosine rotate, beginning with those of the last multiple of kKeyChunk, whatever was
// asked before: a position's bits are always the same. What fl() adds to the angle is put back to
// second order. The error stays below 1e-5 up to position 2^20, a hundredth of what bf16 rounds
// off. In f32 mode each position's are computed on their own.
class KeyAngles {
 public:
  // Makes the angles of `pairs` pairs, whole vectors, of which attention.rotated_pairs turn.
  // `attention` must outlive it.
  KeyAngles(const Attention& attention, Index pairs) : attention_(attention), pairs_(pairs) {
    for (Index i = 0; i < pairs; ++i) {
      frequency_[i] = i < attention.rotated_pairs ? attention.inverse_frequencies[i] : 0.0F;
    }
    if (attention.fast) {
      turn_angles<AngleOf::kExact>(frequency_, pairs, 1, step_cos_, step_sin_);
    }
  }
  // Makes the angles that attention needs to make keys; none if there are keys.
  explicit KeyAngles(const Attention& attention)
      : KeyAngles(attention,
                  attention.keys == nullptr ? round_up(attention.rotated_pairs, 16) : 0) {}

  const float* cos() const { return cos_; }
  const float* sin() const { return sin_; }

  // Positions should ascend.
  void turn_to(Index position) {
    if (!attention_.fast) {
      return turn_angles<AngleOf::kRounded>(frequency_, pairs_, position, cos_, sin_);
    }
    const Index chunk = position / kKeyChunk * kKeyChunk;
    if (at_ < chunk || at_ > position) {
      turn_angles<AngleOf::kExact>(frequency_, pairs_, chunk, exact_cos_, exact_sin_);
      at_ = chunk;
    }
    for (; at_ < position; ++at_) step();
    round_angles(position);
  }

 private:
  void step() {
    for (Index i = 0; i < pairs_; i += 16) {
      const Vec c = load(exact_cos_ + i);
      const Vec s = load(exact_sin_ + i);
      const Vec step_c = load(step_cos_ + i);
      const Vec step_s = load(step_sin_ + i);
      store(exact_cos_ + i, negative_multiply_add(s, step_s, mul(c, step_c)));
      store(exact_sin_ + i, multiply_add(c, step_s, mul(s, step_c)));
    }
  }

  // Turns the angles p f to fl(p f).
  void round_angles(Index position) {
    const Vec place = splat(static_cast<float>(position));
    const Vec negative_place = splat(-static_cast<float>(position));
    for (Index i = 0; i < pairs_; i += 16) {
      const Vec f = load(frequency_ + i);
      const Vec added = fused_multiply_add(negative_place, f, mul(place, f));
      const Vec lost = mul(mul(added, added), splat(-0.5F));
      const Vec c = load(exact_cos_ + i);
      const Vec s = load(exact_sin_ + i);
      store(cos_ + i, multiply_add(c, lost, negative_multiply_add(s, added, c)));
      store(sin_ + i, multiply_add(s, lost, multiply_add(c, added, s)));
    }
  }

  static constexpr Index kMost = kMaxHeadDim / 2;

  const Attention& attention_;
  Index pairs_;
  Index at_ = -1;  // position of the exact angles
  alignas(64) float frequency_[kMost];
  alignas(64) float step_cos_[kMost];
  alignas(64) float step_sin_[kMost];
  alignas(64) float exact_cos_[kMost];
  alignas(64) float exact_sin_[kMost];
  alignas(64) float cos_[kMost];
  alignas(64) float sin_[kMost];
};

// Turns a value into the key of its position.
inline void derive_key(const Attention& attention, KeyAngles& angles, Index position, float* row) {
  angles.turn_to(position);
  const Index half = attention.head_dim / 2;
  const float* norm = attention.k_norm;
  for (Index e = 0; e < attention.head_dim; ++e) row[e] *= norm[e];
  const float* cos = angles.cos();
  const float* sin = angles.sin();
  float* low = row;
  float* high = row + half;
  for (Index i = 0; i < attention.rotated_pairs; ++i) {
    const float a = low[i];
    const float b = high[i];
    low[i] = a * cos[i] - b * sin[i];
    high[i] = b * cos[i] + a * sin[i];
  }
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
