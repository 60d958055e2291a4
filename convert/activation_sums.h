// Sums over the rows that were multiplied with the matrices of one tensor, and the importance of
// its columns that follows from them.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/memory_budget.h"
#include "convert/importance.h"
#include "kakeya/status.h"

namespace kakeya {

// One thread at a time; move-only.
class ActivationSums {
 public:
  // Creates sums for X matrices of K columns. Errors: kResourceExhausted.
  static Result<ActivationSums> create(std::int64_t matrices,
                                       std::int64_t columns,
                                       MemoryBudget& budget);

  // Adds rows [T, K] that were multiplied with one of the matrices. Allocates nothing.
  void add(std::int64_t matrix, ConstRows rows);

  // How many rows one of the matrices has seen, and all of them.
  std::int64_t rows(std::int64_t matrix) const { return counts_.as<std::int64_t>()[matrix]; }
  std::int64_t total_rows() const;

  // The mean of the squares of what each column was multiplied with. The mean over the rows of all
  // matrices stands in for kLayerRows rows of each matrix, so that an expert that saw few rows is
  // weighed by what its layer saw. Nothing may be larger than 1: all factors of a matrix are
  // divided by its largest, which changes no comparison. Errors: kResourceExhausted.
  Result<ColumnImportance> importance(MemoryBudget& budget) const;

  static constexpr double kLayerRows = 32.0;

 private:
  std::int64_t matrices_ = 0;
  std::int64_t columns_ = 0;
  Buffer sums_;    // [X, K] f64
  Buffer counts_;  // [X] i64
};

}  // namespace kakeya
