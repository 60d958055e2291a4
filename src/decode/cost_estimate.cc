#include "decode/cost_estimate.h"

#include <algorithm>
#include <cmath>

namespace kakeya {
namespace {

// Standard deviations of logarithms. A first table may be wrong by a factor of two, and its shape
// by a half between one row and many.
constexpr double kLevelDoubt = 0.7;
constexpr double kShapeDoubt = 0.35;
constexpr double kSizeDoubt = 0.05;
// Sizes a factor of four apart share a part 1/e of their error in shape.
constexpr double kSharedDoublings = 2.0;
// Of one pass on a machine that does other work, too.
constexpr double kPassNoise = 0.08;
// What changes from one pass to the next: the machine, and the text's length and experts.
constexpr double kLevelDrift = 0.015;
constexpr double kSizeDrift = 0.004;
// What the level of another session may differ by.
constexpr double kResumedDoubt = 0.2;
// A pass beyond so many standard deviations counts as one there.
constexpr double kFar = 2.5;
// So many far passes one after the other are believed. Other work makes passes slower and never
// faster, so that fast ones are believed sooner.
constexpr double kBelievedSlower = 12.0;
constexpr double kBelievedFaster = 2.0;
// What is then in doubt of the shape.
constexpr double kChangedShapeDoubt = 0.2;
// No sum of doubts comes near it.
constexpr double kMostVariance = 1e6;

double square(double x) {
  return x * x;
}

}  // namespace

CostEstimate::CostEstimate(std::span<const double> first_table)
    : seconds_(first_table.begin(), first_table.end()),
      covariance_(first_table.size() * first_table.size()),
      gain_(first_table.size()) {
  add_doubt(kShapeDoubt);
}

void CostEstimate::add_doubt(double shape) {
  for (std::size_t i = 0; i < size(); ++i) {
    for (std::size_t j = 0; j < size(); ++j) {
      const double doublings =
          std::abs(std::log2(static_cast<double>(i + 1)) - std::log2(static_cast<double>(j + 1)));
      covariance(i, j) += square(kLevelDoubt) +
                          square(shape) * std::exp(-doublings / kSharedDoublings) +
                          (i == j ? square(kSizeDoubt) : 0.0);
    }
  }
}

void CostEstimate::add_level(double variance) {
  for (double& entry : covariance_) entry += variance;
}

// Knowledge ages, but never below that of the first table.
void CostEstimate::age() {
  const double most = square(kLevelDoubt) + square(kShapeDoubt) + square(kSizeDoubt);
  double largest = 0.0;
  for (std::size_t i = 0; i < size(); ++i) {
    if (covariance(i, i) < most) covariance(i, i) += square(kSizeDrift);
    largest = std::max(largest, covariance(i, i));
  }
  if (largest < most) add_level(square(kLevelDrift));
}

CostEstimate::News CostEstimate::observe(std::size_t index, double seconds) {
  if (index >= size() || !std::isfinite(seconds) || seconds <= 0.0) return News::kUsual;
  age();
  const double surprise = std::log(seconds / seconds_[index]);
  News news = News::kUsual;
  if (std::abs(surprise) <= kFar * pass_doubt(index)) {
    far_passes_ = 0.0;
  } else {
    news = News::kFar;
    const double sign = surprise > 0.0 ? 1.0 : -1.0;
    far_passes_ = far_passes_ * sign > 0.0 ? far_passes_ + sign : sign;
    if (far_passes_ >= kBelievedSlower || far_passes_ <= -kBelievedFaster) {
      add_doubt(kChangedShapeDoubt);
      far_passes_ = 0.0;
      news = News::kChanged;
    }
  }
  learn(index, surprise);
  return news;
}

double CostEstimate::pass_doubt(std::size_t index) const {
  return std::sqrt(covariance(index, index) + square(kPassNoise));
}

// A Kalman filter's step; what lies beyond kFar is cut off and counts as noise.
void CostEstimate::learn(std::size_t index, double surprise) {
  const double most = kFar * pass_doubt(index);
  const double heeded = std::clamp(surprise, -most, most);
  double variance = covariance(index, index) + square(kPassNoise);
  if (heeded != surprise) variance += square(kPassNoise) * (surprise / heeded - 1.0);
  for (std::size_t i = 0; i < size(); ++i) gain_[i] = covariance(i, index) / variance;
  for (std::size_t i = 0; i < size(); ++i) {
    seconds_[i] *= std::exp(gain_[i] * heeded);
    for (std::size_t j = 0; j < size(); ++j) covariance(i, j) -= gain_[i] * gain_[j] * variance;
  }
}

void CostEstimate::doubt_level() {
  add_doubt(0.0);
}

void CostEstimate::resume(const CostEstimate& other) {
  seconds_ = other.seconds_;
  covariance_ = other.covariance_;
  far_passes_ = 0.0;
  add_level(square(kResumedDoubt));
}

double CostEstimate::doubt(std::size_t index, std::size_t base) const {
  const double variance =
      covariance(index, index) + covariance(base, base) - 2.0 * covariance(index, base);
  return std::sqrt(std::max(0.0, variance));
}

double CostEstimate::doubt(std::size_t index) const {
  return std::sqrt(std::max(0.0, covariance(index, index)));
}

std::size_t CostEstimate::count_numbers(std::size_t size) {
  return 1 + size + size * size;
}

void CostEstimate::append_numbers(std::vector<double>& numbers) const {
  numbers.push_back(far_passes_);
  numbers.insert(numbers.end(), seconds_.begin(), seconds_.end());
  numbers.insert(numbers.end(), covariance_.begin(), covariance_.end());
}

std::optional<CostEstimate> CostEstimate::from_numbers(std::span<const double> numbers,
                                                       std::size_t size) {
  if (numbers.size() != count_numbers(size)) return std::nullopt;
  const auto finite = [](double x) { return std::isfinite(x); };
  if (!std::all_of(numbers.begin(), numbers.end(), finite)) return std::nullopt;
  const auto table = numbers.subspan(1, size);
  if (std::any_of(table.begin(), table.end(), [](double x) { return x <= 0.0; })) {
    return std::nullopt;
  }
  CostEstimate estimate(table);
  estimate.far_passes_ = numbers[0];
  const auto covariance = numbers.subspan(1 + size);
  std::copy(covariance.begin(), covariance.end(), estimate.covariance_.begin());
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const double entry = estimate.covariance(i, j);
      const double most = estimate.covariance(i, i) * estimate.covariance(j, j);
      if (estimate.covariance(i, i) < 0.0 || estimate.covariance(i, i) > kMostVariance ||
          entry != estimate.covariance(j, i) || square(entry) > most * (1.0 + 1e-6) + 1e-12) {
        return std::nullopt;
      }
    }
  }
  return estimate;
}

}  // namespace kakeya
