// Machines for tests of the length policy: what passes of each size take, and how slow the machine
// is at the moment.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"

namespace kakeya::test {

constexpr std::int64_t kMostSimulated = 15;

// In plain steps.
class SimulatedCosts {
 public:
  explicit SimulatedCosts(std::string kind) : kind_(std::move(kind)) {}

  double verify(std::int64_t rows) const {
    const auto r = static_cast<double>(rows);
    if (kind_ == "dense") return 1.0 + 0.105 * (r - 1.0);
    if (kind_ == "experts") {
      return between({{1, 1.0}, {2, 1.25}, {4, 1.54}, {8, 2.16}, {16, 3.17}}, r);
    }
    if (kind_ == "demo") return between({{1, 1.0}, {3, 1.66}, {16, 4.65}}, r);
    return 1.0 + 0.01 * (r - 1.0);  // gpu
  }
  double draft(std::int64_t tokens) const {
    if (tokens == 0) return 0.0;
    const auto n = static_cast<double>(tokens);
    if (kind_ == "dense") return 0.58 + 0.023 * n;
    if (kind_ == "experts") return 0.86 + 0.0185 * n;
    return kind_ == "demo" ? 0.5 + 0.1 * n : 0.25 + 0.005 * n;
  }
  double round(std::int64_t drafts) const { return verify(drafts + 1) + draft(drafts); }

  // Plain steps a token of the best fixed length.
  double best(double acceptance) const {
    double best = 1.0;
    for (std::int64_t n = 1; n <= kMostSimulated; ++n) {
      best = std::min(best, round(n) / expected_tokens(n, acceptance));
    }
    return best;
  }
  static double expected_tokens(std::int64_t drafts, double acceptance) {
    double tokens = 0.0;
    for (std::int64_t d = 0; d <= drafts; ++d) tokens += std::pow(acceptance, d);
    return tokens;
  }

 private:
  static double between(const std::vector<std::pair<double, double>>& points, double x) {
    std::size_t right = 1;
    while (right + 1 < points.size() && points[right].first < x) ++right;
    const auto [x0, y0] = points[right - 1];
    const auto [x1, y1] = points[right];
    return y0 + (x - x0) / (x1 - x0) * (y1 - y0);
  }

  std::string kind_;
};

// How much slower than at its best, pass by pass.
class SimulatedMachine {
 public:
  SimulatedMachine(std::string kind, std::uint64_t seed) : kind_(std::move(kind)), rng_(seed) {}

  double uniform() { return static_cast<double>(rng_.below(1 << 30)) / (1 << 30); }
  double noise() {
    double sum = -6.0;  // of twelve: nearly normal, of variance 1
    for (int i = 0; i < 12; ++i) sum += uniform();
    return std::exp(0.05 * sum);
  }
  double factor() {
    const double time = static_cast<double>(passes_++) / 1000.0;
    if (kind_ == "drift") {
      // A slow wave, and a sudden change now and then.
      const double wave = 1.0 + 0.3 * std::sin(2.0 * std::numbers::pi * time);
      return std::fmod(time, 1.0) < 0.5 ? wave : 1.8 * wave;
    }
    if (kind_ != "stutter") return 1.0;
    if (left_ > 0) return --left_, 4.0;
    if (rng_.below(60) == 0) left_ = static_cast<int>(rng_.below(8));
    return 1.0;
  }

 private:
  std::string kind_;
  SequenceRng rng_;
  std::int64_t passes_ = 0;
  int left_ = 0;  // slow passes of this burst
};

}  // namespace kakeya::test
