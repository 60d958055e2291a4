#include "convert/activation_sums.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/host_rows.h"
#include "base/status.h"

namespace kakeya {

namespace {

// Writes means as factors of at most 1.
void scale_to_one(std::span<const double> means, float* factors) {
  const double largest = *std::max_element(means.begin(), means.end());
  for (std::size_t k = 0; k < means.size(); ++k) {
    factors[k] = largest > 0.0 ? static_cast<float>(means[k] / largest) : 1.0F;
  }
}

}  // namespace

Result<ActivationSums> ActivationSums::create(std::int64_t matrices,
                                              std::int64_t columns,
                                              MemoryBudget& budget) {
  ActivationSums sums;
  sums.matrices_ = matrices;
  sums.columns_ = columns;
  const auto elements = static_cast<std::uint64_t>(matrices * columns);
  KAKEYA_ASSIGN_OR_RETURN(sums.sums_,
                          budget.allocate(MemoryClass::kActivations, elements * sizeof(double)));
  KAKEYA_ASSIGN_OR_RETURN(
      sums.counts_, budget.allocate(MemoryClass::kActivations,
                                    static_cast<std::uint64_t>(matrices) * sizeof(std::int64_t)));
  std::fill_n(sums.sums_.as<double>(), elements, 0.0);
  std::fill_n(sums.counts_.as<std::int64_t>(), matrices, 0);
  return sums;
}

void ActivationSums::add(std::int64_t matrix, ConstRows rows) {
  double* sums = sums_.as<double>() + matrix * columns_;
  for (std::int64_t t = 0; t < rows.count; ++t) {
    const float* row = host_row(rows, t);
    for (std::int64_t k = 0; k < columns_; ++k) {
      sums[k] += static_cast<double>(row[k]) * row[k];
    }
  }
  counts_.as<std::int64_t>()[matrix] += rows.count;
}

std::int64_t ActivationSums::total_rows() const {
  const std::int64_t* counts = counts_.as<std::int64_t>();
  return std::accumulate(counts, counts + matrices_, std::int64_t{0});
}

Result<ColumnImportance> ActivationSums::importance(MemoryBudget& budget) const {
  ColumnImportance result = {.matrices = matrices_, .columns = columns_};
  const auto columns = static_cast<std::size_t>(columns_);
  KAKEYA_ASSIGN_OR_RETURN(
      result.factors,
      budget.allocate(MemoryClass::kActivations,
                      static_cast<std::uint64_t>(matrices_ * columns_) * sizeof(float)));
  std::vector<double> layer(columns, 0.0);
  for (std::int64_t m = 0; m < matrices_; ++m) {
    const double* sums = sums_.as<double>() + m * columns_;
    for (std::size_t k = 0; k < columns; ++k) layer[k] += sums[k];
  }
  const auto total = static_cast<double>(std::max<std::int64_t>(total_rows(), 1));
  std::vector<double> means(columns);
  for (std::int64_t m = 0; m < matrices_; ++m) {
    const double* sums = sums_.as<double>() + m * columns_;
    for (std::size_t k = 0; k < columns; ++k) {
      means[k] =
          (sums[k] + kLayerRows * layer[k] / total) / (static_cast<double>(rows(m)) + kLayerRows);
    }
    scale_to_one(means, result.factors.as<float>() + m * columns_);
  }
  return result;
}

}  // namespace kakeya
