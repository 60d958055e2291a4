// What passes of each size take, learnt from passes that were run; a first table is only a guess.
//
// The logarithms of the costs are Gaussian around the first table: one level for all sizes, a shape
// in which neighbours err alike, and a little for each size alone. The level follows the machine.
// A pass that is far from its expectation hardly counts. Two faster ones in a row are believed, or
// twelve slower ones: other work on the machine makes passes slower and never faster.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace kakeya {

// One thread at a time. Nothing allocates after construction.
class CostEstimate {
 public:
  // Seconds of each size, all positive; or empty, of what cannot be estimated.
  explicit CostEstimate(std::span<const double> first_table);

  enum class News { kUsual, kFar, kChanged };

  // A pass of size `index` took `seconds`. kFar: it says little of what passes usually take.
  // kChanged: nor did those before it, so the machine has changed or the estimate was wrong.
  // Ignores what is no time.
  News observe(std::size_t index, double seconds);

  // The machine has changed, by other evidence.
  void doubt_level();

  // Starts from what `other` knows, of as many sizes; the machine may have changed since.
  void resume(const CostEstimate& other);

  // Standard deviation of the logarithm of (cost of `index` / cost of `base`).
  double doubt(std::size_t index, std::size_t base) const;
  // The same, of the cost of `index` alone.
  double doubt(std::size_t index) const;

  std::span<const double> seconds() const { return seconds_; }
  std::size_t size() const { return seconds_.size(); }

  // All that it knows; and an estimate that knows it, or nothing for numbers that none can have.
  void append_numbers(std::vector<double>& numbers) const;
  static std::size_t count_numbers(std::size_t size);
  static std::optional<CostEstimate> from_numbers(std::span<const double> numbers,
                                                  std::size_t size);

 private:
  double& covariance(std::size_t i, std::size_t j) { return covariance_[i * size() + j]; }
  double covariance(std::size_t i, std::size_t j) const { return covariance_[i * size() + j]; }
  void add_level(double variance);
  void add_doubt(double shape);
  void age();
  double pass_doubt(std::size_t index) const;
  void learn(std::size_t index, double surprise);

  std::vector<double> seconds_;
  std::vector<double> covariance_;  // of the logarithms, row by row
  std::vector<double> gain_;        // scratch
  double far_passes_ = 0.0;         // in a row, up to now; negative: of those that were fast
};

}  // namespace kakeya
