// Which operations on rows are those between the products of a layer, that residual_steps() takes.
#pragma once

#include <optional>
#include <span>

#include "backend/cuda/row_step_plan.h"

namespace kakeya::cuda {

// Returns the operations in the terms of residual_steps(); none if they are others, or if rows are
// too wide.
std::optional<device::ResidualStepsParams> plan_residual_steps(
    std::span<const RowOperation> operations, std::int64_t width);

}  // namespace kakeya::cuda
