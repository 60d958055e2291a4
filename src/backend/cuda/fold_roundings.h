// Roundings of rows to codes that no kernel has to itself: the one that makes the rows rounds them,
// or blocks of the one that reads them do, each for itself, while its weights are on their way.
#pragma once

#include <cstddef>

#include "backend/cuda/fuse.h"

namespace kakeya::cuda {

// Leaves out launches of round_rows() that others can do.
void fold_roundings(FusedLaunches& fused);

// Makes a launch of fused ones what launch i of others is now, but for a rounding that it has
// besides. False if it cannot have it any more.
bool renew_launch(LaunchList& fused, std::size_t place, const LaunchList& launches, std::size_t i);

}  // namespace kakeya::cuda
