// Where the rows of row_steps() lie in shared memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "backend/cuda/device/params.h"
#include "backend/cuda/driver.h"

namespace kakeya::cuda {

// An operation on rows: `step` but for its places, and the rows and weights by their addresses.
struct RowOperation {
  device::RowStep step;
  const float* a;
  const float* b;            // null: none
  bool b_is_vector = false;  // of kAdd: b is a vector of weights, which is added to all rows
};

struct RowStepPlan {
  device::RowStepsParams params;
  LaunchShape shape;
};

// Operations on `rows` rows of `width` columns, one after the other, as one launch. None if places
// do not suffice, or if what it reads is not where copies of 16 bytes can begin.
std::optional<RowStepPlan> plan_row_steps(std::span<const RowOperation> operations,
                                          std::int64_t rows,
                                          std::int64_t width);

}  // namespace kakeya::cuda
